package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// Controller is what the classes name whose Ingresses ledge serves itself; DefaultClass is the one that every board has.
const (
	Controller   = "ledge.local/ingress"
	DefaultClass = "ledge"
	// Pods is the name of what takes requests in for them: a DaemonSet and its service account, in kube-system.
	Pods = "ledge-ingress"
)

// IngressClasses say who serves the Ingresses that name them.
var IngressClasses = api.Define(api.Kind{Group: "networking.k8s.io", Version: "v1", Name: "IngressClass", Resource: "ingressclasses",
	Singular: "ingressclass", Generation: true},
	api.Rules[*networkingv1.IngressClass]{
		New:      func() *networkingv1.IngressClass { return &networkingv1.IngressClass{} },
		NewList:  func() api.ListObject { return &networkingv1.IngressClassList{} },
		Default:  defaultClass,
		Validate: validateClass,
		ValidateUpdate: func(c, old *networkingv1.IngressClass, _ string) field.ErrorList {
			return append(apivalidation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller")),
				validateClass(c)...)
		},
		Spec: func(c *networkingv1.IngressClass) any { return &c.Spec },
		Columns: table.Columns{table.Name, table.Column("Controller", "string", "Who serves the Ingresses of the class."),
			table.Column("Parameters", "string", "An object that says more."), table.Age},
		Cells: classCells,
	})

// IsDefault says that a class is for Ingresses that name none.
func IsDefault(c *networkingv1.IngressClass) bool {
	return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
}

func defaultClass(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil && p.Scope == nil {
		scope := networkingv1.IngressClassParametersReferenceScopeCluster
		p.Scope = &scope
	}
}

// mostController is how long the name of a controller may be.
const mostController = 250

func validateClass(c *networkingv1.IngressClass) field.ErrorList {
	at := field.NewPath("spec", "controller")
	var errs field.ErrorList
	if len(c.Spec.Controller) > mostController {
		errs = append(errs, field.TooLong(at, "", mostController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(at, c.Spec.Controller)...)
	if p := c.Spec.Parameters; p != nil {
		errs = append(errs, validateParameters(p, field.NewPath("spec", "parameters"))...)
		if c.Spec.Controller == Controller {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "parameters"), "the controller of ledge takes no parameters"))
		}
	}
	return errs
}

func validateParameters(p *networkingv1.IngressClassParametersReference, at *field.Path) field.ErrorList {
	errs := validateReference(p.APIGroup, p.Kind, p.Name, at)
	const (
		namespaced = networkingv1.IngressClassParametersReferenceScopeNamespace
		cluster    = networkingv1.IngressClassParametersReferenceScopeCluster
	)
	if p.Scope == nil {
		return append(errs, field.Required(at.Child("scope"), ""))
	}
	switch *p.Scope {
	case namespaced:
		if p.Namespace == nil {
			return append(errs, field.Required(at.Child("namespace"), "`parameters.scope` is set to 'Namespace'"))
		}
		return append(errs, valid.Each(apivalidation.ValidateNamespaceName(*p.Namespace, false), func(msg string) *field.Error {
			return field.Invalid(at.Child("namespace"), *p.Namespace, msg)
		})...)
	case cluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(at.Child("namespace"), "`parameters.scope` is set to 'Cluster'"))
		}
		return errs
	}
	return append(errs, field.NotSupported(at.Child("scope"), *p.Scope, []string{cluster, namespaced}))
}

// validateReference looks at what names another object.
func validateReference(group *string, kind, name string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = append(errs, valid.Name(*group, at.Child("apiGroup"))...)
	}
	for _, x := range []struct{ field, text string }{{"kind", kind}, {"name", name}} {
		if x.text == "" {
			errs = append(errs, field.Required(at.Child(x.field), ""))
			continue
		}
		errs = append(errs, valid.Each(content.IsPathSegmentName(x.text), func(msg string) *field.Error {
			return field.Invalid(at.Child(x.field), x.text, msg)
		})...)
	}
	return errs
}

func classCells(c *networkingv1.IngressClass, l table.Look) []any {
	name, parameters := c.Name, table.None
	if IsDefault(c) {
		name += " (default)"
	}
	if p := c.Spec.Parameters; p != nil {
		if parameters = p.Kind; p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, c.Spec.Controller, parameters, l.AgeOf(c)}
}
