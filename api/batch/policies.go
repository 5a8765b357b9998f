package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// Kubernetes' bounds of policies.
const (
	mostRules      = 20
	mostConditions = 20 // of a rule
	mostExitCodes  = 255
	longestIndexes = 64 << 10
)

func validateFailurePolicy(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	if s.PodFailurePolicy == nil {
		return nil
	}
	var errs field.ErrorList
	rules, at := s.PodFailurePolicy.Rules, spec.Child("podFailurePolicy", "rules")
	if len(rules) > mostRules {
		errs = append(errs, field.TooMany(at, len(rules), mostRules))
	}
	names := map[string]bool{}
	for _, c := range slices.Concat(s.Template.Spec.InitContainers, s.Template.Spec.Containers) {
		names[c.Name] = true
	}
	for i := range rules {
		errs = append(errs, validateFailureRule(s, &rules[i], at.Index(i), names)...)
	}
	return errs
}

func validateFailureRule(s *batchv1.JobSpec, r *batchv1.PodFailurePolicyRule, at *field.Path, names map[string]bool) field.ErrorList {
	errs := valid.OneOf(r.Action, at.Child("action"), batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	if r.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(at.Child("action"), r.Action, "requires the backoffLimitPerIndex to be set"))
	}
	switch {
	case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	if r.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(r.OnExitCodes, at.Child("onExitCodes"), names)...)
	}
	inConditions := at.Child("onPodConditions")
	if n := len(r.OnPodConditions); n > mostConditions {
		errs = append(errs, field.TooMany(inConditions, n, mostConditions))
	}
	for i, c := range r.OnPodConditions {
		errs = append(errs, valid.Each(validation.IsQualifiedName(string(c.Type)), func(msg string) *field.Error {
			return field.Invalid(inConditions.Index(i).Child("type"), c.Type, msg)
		})...)
		errs = append(errs, valid.OneOf(c.Status, inConditions.Index(i).Child("status"), corev1.ConditionFalse, corev1.ConditionTrue,
			corev1.ConditionUnknown)...)
	}
	return errs
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, at *field.Path, names map[string]bool) field.ErrorList {
	errs := valid.OneOf(r.Operator, at.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if r.ContainerName != nil && !names[*r.ContainerName] {
		errs = append(errs, field.Invalid(at.Child("containerName"), *r.ContainerName,
			"must be one of the container or initContainer names in the pod template"))
	}
	values := at.Child("values")
	switch n := len(r.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(values, r.Values, "at least one value is required"))
	case n > mostExitCodes:
		errs = append(errs, field.TooMany(values, n, mostExitCodes))
	}
	seen := map[int32]bool{}
	for i, v := range r.Values {
		if v == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(values.Index(i), v, "must not be 0 for the In operator"))
		}
		if seen[v] {
			errs = append(errs, field.Duplicate(values.Index(i), v))
		}
		seen[v] = true
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(values, r.Values, "must be ordered"))
	}
	return errs
}

// validateSuccessPolicy looks at one of an Indexed Job; validateMode refuses any other.
func validateSuccessPolicy(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	if s.SuccessPolicy == nil || !IsIndexed(s) || s.Completions == nil {
		return nil
	}
	var errs field.ErrorList
	rules, at := s.SuccessPolicy.Rules, at.Child("rules")
	switch {
	case len(rules) == 0:
		errs = append(errs, field.Required(at, "at least one rules must be specified when the successPolicy is specified"))
	case len(rules) > mostRules:
		errs = append(errs, field.TooMany(at, len(rules), mostRules))
	}
	for i := range rules {
		errs = append(errs, validateSuccessRule(&rules[i], *s.Completions, at.Index(i))...)
	}
	return errs
}

func validateSuccessRule(r *batchv1.SuccessPolicyRule, completions int32, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		errs = append(errs, field.Required(at, "at least one of succeededCount or succeededIndexes must be specified"))
	}
	most, of := int(completions), "the number of specified completions"
	if text := r.SucceededIndexes; text != nil {
		in := at.Child("succeededIndexes")
		if len(*text) > longestIndexes {
			return append(errs, field.TooLong(in, "", longestIndexes))
		}
		indexes, err := indexesBelow(*text, completions)
		if err != nil {
			errs = append(errs, field.Invalid(in, *text, "error parsing succeededIndexes: "+err.Error()))
		}
		most, of = indexes.Len(), "the number of indexes in the specified succeededIndexes field"
	}
	if n := r.SucceededCount; n != nil {
		in := at.Child("succeededCount")
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n), in)...)
		if int(*n) > most {
			errs = append(errs, field.Invalid(in, *n, fmt.Sprintf("must be less than or equal to %d (%s)", most, of)))
		}
	}
	return errs
}

// indexesBelow reads indexes of which none may be too large.
func indexesBelow(text string, completions int32) (Indexes, error) {
	out, err := ParseIndexes(text)
	if n := len(out); err == nil && n > 0 && out[n-1].Last >= int(completions) {
		return nil, fmt.Errorf("too large index: %q", fmt.Sprint(out[n-1].Last))
	}
	return out, err
}
