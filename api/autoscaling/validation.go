package autoscaling

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

const (
	longestPeriod = 1800 // seconds
	longestWindow = 3600
	unsupported   = "not supported by ledge"
)

// validateAutoscaler looks at a new autoscaler, or with old at a change: one may name a target by a version that is not valid if it did
// so before.
func validateAutoscaler(s, old *autoscalingv2.HorizontalPodAutoscalerSpec) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	least := int32(1)
	if s.MinReplicas != nil {
		least = *s.MinReplicas
		switch {
		case least < 0:
			errs = append(errs, field.Invalid(at.Child("minReplicas"), least, "must be greater than or equal to 0"))
		case least == 0:
			errs = append(errs, field.Forbidden(at.Child("metrics"),
				"must specify at least one Object or External metric to support scaling to zero replicas; these are "+unsupported))
		}
	}
	most := at.Child("maxReplicas")
	switch n := s.MaxReplicas; {
	case n == 0:
		errs = append(errs, field.Required(most, "must be set and greater than 0"))
	case n < 0:
		errs = append(errs, field.Invalid(most, n, "must be greater than or equal to 1"))
	}
	if s.MaxReplicas < least {
		errs = append(errs, field.Invalid(most, s.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateTargetRef(&s.ScaleTargetRef, old, at.Child("scaleTargetRef"))...)
	for i := range s.Metrics {
		errs = append(errs, validateMetric(&s.Metrics[i], at.Child("metrics").Index(i))...)
	}
	if b := s.Behavior; b != nil {
		errs = append(errs, validateRules(b.ScaleUp, at.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateRules(b.ScaleDown, at.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateTargetRef(ref *autoscalingv2.CrossVersionObjectReference, old *autoscalingv2.HorizontalPodAutoscalerSpec,
	at *field.Path) field.ErrorList {
	errs := valid.Segment(ref.Kind, at.Child("kind"))
	errs = append(errs, valid.Segment(ref.Name, at.Child("name"))...)
	if old != nil && old.ScaleTargetRef.APIVersion == ref.APIVersion && old.ScaleTargetRef.Kind == ref.Kind {
		return errs
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, err.Error()))
	case gv.Group == "" && ref.Kind != "ReplicationController": // nothing else of the core group has a scale
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, "apiVersion must specify API group"))
	}
	return errs
}

// validateMetric: of the five sources that Kubernetes knows a board measures two.
func validateMetric(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, other := range []struct {
		name string
		set  bool
		is   autoscalingv2.MetricSourceType
	}{
		{"object", m.Object != nil, autoscalingv2.ObjectMetricSourceType},
		{"pods", m.Pods != nil, autoscalingv2.PodsMetricSourceType},
		{"external", m.External != nil, autoscalingv2.ExternalMetricSourceType},
	} {
		if other.set || m.Type == other.is {
			errs = append(errs, field.Forbidden(at.Child(other.name), unsupported))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	source := at.Child("resource")
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		if m.ContainerResource != nil {
			errs = append(errs, field.Forbidden(at.Child("containerResource"), "must populate the given metric source only"))
		}
	case autoscalingv2.ContainerResourceMetricSourceType:
		source = at.Child("containerResource")
		if m.Resource != nil {
			errs = append(errs, field.Forbidden(at.Child("resource"), "must populate the given metric source only"))
		}
		if c := m.ContainerResource; c != nil {
			name := source.Child("container")
			errs = append(errs, valid.Required(c.Container, name)...)
			if c.Container != "" {
				errs = append(errs, valid.Each(validation.IsDNS1123Label(c.Container),
					func(msg string) *field.Error { return field.Invalid(name, c.Container, msg) })...)
			}
		}
	default:
		return valid.OneOf(m.Type, at.Child("type"), autoscalingv2.ResourceMetricSourceType, autoscalingv2.ContainerResourceMetricSourceType)
	}
	if m.Resource == nil && m.ContainerResource == nil {
		return append(errs, field.Required(source, "must populate information for the given metric source"))
	}
	name, _, target := Source(*m)
	return append(errs, validateSource(name, &target, source)...)
}

func validateSource(name corev1.ResourceName, t *autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory:
	case "":
		errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
	default:
		errs = append(errs, field.Forbidden(at.Child("name"), fmt.Sprintf("%q is %s: a board measures cpu and memory", name, unsupported)))
	}
	at = at.Child("target")
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	case "":
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric target type"))
	default:
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil {
		errs = append(errs, field.Forbidden(at.Child("value"), "is for Object and External metrics, which are "+unsupported))
	}
	if v := t.AverageValue; v != nil && v.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("averageValue"), v.String(), "must be positive"))
	}
	if n := t.AverageUtilization; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), *n, "must be greater than 0"))
	}
	switch {
	case t.AverageUtilization == nil && t.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case t.AverageUtilization != nil && t.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateRules(r *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if n, at := r.StabilizationWindowSeconds, at.Child("stabilizationWindowSeconds"); n != nil {
		errs = append(errs, within(*n, 0, longestWindow, at)...)
	}
	if p := r.SelectPolicy; p != nil {
		errs = append(errs, valid.OneOf(*p, at.Child("selectPolicy"), autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect,
			autoscalingv2.MinChangePolicySelect)...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(at.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := at.Child("policies").Index(i)
		errs = append(errs, valid.OneOf(p.Type, at.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)...)
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		errs = append(errs, within(p.PeriodSeconds, 1, longestPeriod, at.Child("periodSeconds"))...)
	}
	if t := r.Tolerance; t != nil && t.Cmp(resource.Quantity{}) < 0 {
		errs = append(errs, field.Invalid(at.Child("tolerance"), t.String(), "must be greater than or equal to 0"))
	}
	return errs
}

func within(n, least, most int32, at *field.Path) field.ErrorList {
	switch {
	case n < least:
		return field.ErrorList{field.Invalid(at, n, fmt.Sprintf("must be greater than or equal to %d", least))}
	case n > most:
		return field.ErrorList{field.Invalid(at, n, fmt.Sprintf("must be less than or equal to %d", most))}
	}
	return nil
}
