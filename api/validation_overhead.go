package api

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// ValidateOverhead looks at what pods of a RuntimeClass cost beside what they ask for.
func ValidateOverhead(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}

// validateClass looks at the RuntimeClass that a pod names, and what it adds to the pod.
func validateClass(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	errs := ValidateOverhead(s.Overhead, at.Child("overhead"))
	if s.RuntimeClassName != nil {
		errs = append(errs, valid.Name(*s.RuntimeClassName, at.Child("runtimeClassName"))...)
	}
	return errs
}
