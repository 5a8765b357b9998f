package api

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

func validateAffinity(a *corev1.Affinity, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := at.Child("nodeAffinity")
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			errs = append(errs, validateNodeSelector(r, at.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			p, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			errs = append(errs, validateWeight(p.Weight, at.Child("weight"))...)
			errs = append(errs, validateNodeTerm(&p.Preference, at.Child("preference"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, validatePodTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))...)
	}
	return errs
}

func validateNodeSelector(s *corev1.NodeSelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	at = at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		errs = append(errs, field.Required(at, "must have at least one node selector term"))
	}
	for i := range s.NodeSelectorTerms {
		errs = append(errs, validateNodeTerm(&s.NodeSelectorTerms[i], at.Index(i))...)
	}
	return errs
}

func validateWeight(w int32, at *field.Path) field.ErrorList {
	if w >= 1 && w <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, w, "must be in the range 1-100")}
}

func validateNodeTerm(t *corev1.NodeSelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range t.MatchExpressions {
		r, at := &t.MatchExpressions[i], at.Child("matchExpressions").Index(i)
		errs = append(errs, validateRequirement(r, at)...)
		errs = append(errs, metav1validation.ValidateLabelName(r.Key, at.Child("key"))...)
		if r.Operator == corev1.NodeSelectorOpIn || r.Operator == corev1.NodeSelectorOpNotIn {
			for j, v := range r.Values {
				errs = append(errs, isLabelValue(v, at.Child("values").Index(j))...)
			}
		}
	}
	for i := range t.MatchFields { // N-10.6: only metadata.name, one value
		r, at := &t.MatchFields[i], at.Child("matchFields").Index(i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) != 1 {
				errs = append(errs, field.Required(at.Child("values"),
					"must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		if r.Key != "metadata.name" {
			errs = append(errs, field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
			continue
		}
		for j, v := range r.Values {
			errs = append(errs, valid.Name(v, at.Child("values").Index(j))...)
		}
	}
	return errs
}

func validateRequirement(r *corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	values := at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			return field.ErrorList{field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'")}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return field.ErrorList{field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return field.ErrorList{field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'")}
		}
		if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			return field.ErrorList{field.Invalid(values.Index(0), r.Values[0], "must be an integer when `operator` is 'Lt' or 'Gt'")}
		}
	default:
		return field.ErrorList{field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator")}
	}
	return nil
}

func validatePodTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range required {
		errs = append(errs, validatePodTerm(&required[i], at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))...)
	}
	for i := range preferred {
		at := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validateWeight(preferred[i].Weight, at.Child("weight"))...)
		errs = append(errs, validatePodTerm(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func validatePodTerm(t *corev1.PodAffinityTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
	}
	opts := metav1validation.LabelSelectorValidationOptions{}
	errs = append(errs, metav1validation.ValidateLabelSelector(t.LabelSelector, opts, at.Child("labelSelector"))...)
	return append(errs, metav1validation.ValidateLabelSelector(t.NamespaceSelector, opts, at.Child("namespaceSelector"))...)
}

func validateSpread(list []corev1.TopologySpreadConstraint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		c, at := &list[i], at.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, valid.OneOf(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		errs = append(errs, isInclusion(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"))...)
		errs = append(errs, isInclusion(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"))...)
		errs = append(errs, metav1validation.ValidateLabelSelector(c.LabelSelector,
			metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
	return errs
}

func isInclusion(p *corev1.NodeInclusionPolicy, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	return valid.OneOf(*p, at, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
}

// ValidateTolerations looks at the tolerations of pods, or of what gives them some.
func ValidateTolerations(list []corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := at.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, isLabelValue(t.Value, at.Child("operator"))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(errs, isEffect(t.Effect, at.Child("effect"))...)
		}
	}
	return errs
}

func isLabelValue(v string, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsValidLabelValue(v), func(msg string) *field.Error { return field.Invalid(at, v, msg) })
}

func isEffect(e corev1.TaintEffect, at *field.Path) field.ErrorList {
	return valid.OneOf(e, at, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}
