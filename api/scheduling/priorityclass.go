// Package scheduling has the kind of the group scheduling.k8s.io.
package scheduling

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// PriorityClasses give pods their priority by name.
var PriorityClasses = api.Define(api.Kind{Group: "scheduling.k8s.io", Version: "v1", Name: "PriorityClass", Resource: "priorityclasses",
	Singular: "priorityclass", Short: []string{"pc"}, Generation: true},
	api.Rules[*schedulingv1.PriorityClass]{
		New:      func() *schedulingv1.PriorityClass { return &schedulingv1.PriorityClass{} },
		NewList:  func() api.ListObject { return &schedulingv1.PriorityClassList{} },
		Default:  defaultPriorityClass,
		Validate: validatePriorityClass,
		ValidateUpdate: func(pc, old *schedulingv1.PriorityClass, _ string) field.ErrorList {
			return append(validatePriorityClass(pc), validatePriorityClassUpdate(pc, old)...)
		},
		Columns: table.Columns{
			table.Name,
			table.Column("Value", "integer", "The priority that pods of this class get."),
			table.Column("Global-Default", "boolean", "Whether pods that name no class get this one."),
			table.Age,
			table.Column("PreemptionPolicy", "string", "Whether pods of this class may push out others."),
		},
		Cells: func(pc *schedulingv1.PriorityClass, l table.Look) []any {
			policy := ""
			if pc.PreemptionPolicy != nil {
				policy = string(*pc.PreemptionPolicy)
			}
			return []any{pc.Name, int64(pc.Value), pc.GlobalDefault, l.AgeOf(pc), policy}
		},
	})

// The priorities of N-10.14 and N-10.15.
const (
	HighestUserPriority    = int32(1000000000)
	SystemCriticalPriority = 2 * HighestUserPriority

	SystemNodeCritical    = "system-node-critical"
	SystemClusterCritical = "system-cluster-critical"
)

func defaultPriorityClass(pc *schedulingv1.PriorityClass) {
	if pc.PreemptionPolicy == nil {
		lower := corev1.PreemptLowerPriority
		pc.PreemptionPolicy = &lower
	}
}

// SystemPriorityClasses makes the two classes that always exist.
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, text string) *schedulingv1.PriorityClass {
		pc := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: text}
		defaultPriorityClass(pc)
		return pc
	}
	return []*schedulingv1.PriorityClass{
		class(SystemNodeCritical, SystemCriticalPriority+1000,
			"For the pods a node cannot do without. Last to be evicted, last to be stopped at shutdown."),
		class(SystemClusterCritical, SystemCriticalPriority,
			"For the pods the cluster cannot do without."),
	}
}

func validatePriorityClass(pc *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(pc.Name, "system-") {
		known := slices.ContainsFunc(SystemPriorityClasses(), func(s *schedulingv1.PriorityClass) bool {
			return s.Name == pc.Name && s.Value == pc.Value && !pc.GlobalDefault
		})
		if !known {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with 'system-' prefix are reserved for system use only"))
		}
	} else if pc.Value > HighestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %d", HighestUserPriority)))
	}
	if pc.PreemptionPolicy != nil {
		errs = append(errs, valid.OneOf(*pc.PreemptionPolicy, field.NewPath("preemptionPolicy"),
			corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

func validatePriorityClassUpdate(pc, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if pc.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, apivalidation.ValidateImmutableField(pc.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}
