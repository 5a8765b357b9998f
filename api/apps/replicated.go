package apps

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/valid"
)

// What the kinds of this group have in common: a number of pods, which are found by a selector and made from a template.

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// wanted is how many pods there are to be.
func wanted(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// selectorOf picks the pods of an object; one that cannot be read picks none.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return out
}

// validateSelected: a selector must be there, as must what it picks by, and it must pick the pods of the template.
func validateSelected(s *metav1.LabelSelector, t *corev1.PodTemplateSpec, spec *field.Path, kind string) field.ErrorList {
	at := spec.Child("selector")
	var errs field.ErrorList
	switch {
	case s == nil:
		errs = append(errs, field.Required(at, ""))
	case len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		errs = append(errs, field.Invalid(at, s, "empty selector is invalid for "+kind))
	default:
		errs = metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return append(errs, field.Invalid(at, s, "invalid label selector"))
	}
	return append(errs, api.ValidateReplicated(t, selector, spec.Child("template"))...)
}

// validateCollisions looks at how many names for new templates were taken: it only grows.
func validateCollisions(n, was *int32) field.ErrorList {
	at := field.NewPath("status", "collisionCount")
	var errs field.ErrorList
	if n != nil {
		errs = valid.NotNegative(*n, at)
	}
	if was != nil && (n == nil || *n < *was) {
		errs = append(errs, field.Invalid(at, n, "cannot be decremented"))
	}
	return errs
}

// sameSelector: with another one an object would lose its pods, and those it finds would be somebody else's.
func sameSelector(s, old *metav1.LabelSelector) field.ErrorList {
	return apivalidation.ValidateImmutableField(s, old, field.NewPath("spec", "selector"))
}

// warnings says what the pods of an object will not get as it is written.
func warnings(name string, t *corev1.PodTemplateSpec) []string {
	var out []string
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		out = append(out, fmt.Sprintf("metadata.name: pods and their host names are called by it, and it is no DNS label: %v", msgs))
	}
	return append(out, api.TemplateWarnings(t, field.NewPath("spec", "template"))...)
}
