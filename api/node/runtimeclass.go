// Package node has the kind of the group node.k8s.io.
package node

import (
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// RuntimeClasses say what runs pods, and what that costs.
var RuntimeClasses = api.Define(api.Kind{Group: "node.k8s.io", Version: "v1", Name: "RuntimeClass", Resource: "runtimeclasses",
	Singular: "runtimeclass"},
	api.Rules[*nodev1.RuntimeClass]{
		New: func() *nodev1.RuntimeClass { return &nodev1.RuntimeClass{} }, NewList: func() api.ListObject { return &nodev1.RuntimeClassList{} },
		Validate: validateRuntimeClass,
		ValidateUpdate: func(c, old *nodev1.RuntimeClass, _ string) field.ErrorList {
			return append(validateRuntimeClass(c), apivalidation.ValidateImmutableField(c.Handler, old.Handler, field.NewPath("handler"))...)
		},
		Columns: table.Columns{table.Name, table.Column("Handler", "string", "What runs pods of this class."), table.Age},
		Cells:   func(c *nodev1.RuntimeClass, l table.Look) []any { return []any{c.Name, c.Handler, l.AgeOf(c)} },
	})

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := valid.Each(validation.IsDNS1123Label(c.Handler), func(msg string) *field.Error {
		return field.Invalid(field.NewPath("handler"), c.Handler, msg)
	})
	if c.Overhead != nil {
		errs = append(errs, api.ValidateOverhead(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if s := c.Scheduling; s != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, api.ValidateTolerations(s.Tolerations, at.Child("tolerations"))...)
	}
	return errs
}
