// Package autoscaling has the kinds of the group autoscaling: HorizontalPodAutoscalers, which are kept as v2 and shown as v1 too.
package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// HorizontalPodAutoscalers give what has a scale more pods, or fewer, by what its pods use. What was measured changes all the time:
// a power cut may forget the newest of it.
var HorizontalPodAutoscalers = api.Define(api.Kind{Group: "autoscaling", Version: "v2", Name: "HorizontalPodAutoscaler",
	Resource: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", Short: []string{"hpa"}, Categories: []string{"all"},
	Namespaced: true, Generation: true},
	api.Rules[*autoscalingv2.HorizontalPodAutoscaler]{
		New:     func() *autoscalingv2.HorizontalPodAutoscaler { return &autoscalingv2.HorizontalPodAutoscaler{} },
		NewList: func() api.ListObject { return &autoscalingv2.HorizontalPodAutoscalerList{} },
		Default: defaultAutoscaler,
		Fresh: func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
		},
		Validate: func(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
			return validateAutoscaler(&h.Spec, nil)
		},
		ValidateUpdate: func(h, old *autoscalingv2.HorizontalPodAutoscaler, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateStatus(&h.Status)
			}
			return validateAutoscaler(&h.Spec, &old.Spec)
		},
		Spec:   func(h *autoscalingv2.HorizontalPodAutoscaler) any { return &h.Spec },
		Status: func(h *autoscalingv2.HorizontalPodAutoscaler) any { return &h.Status },
		Beat: func(h, was *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
			out := *h
			out.Status.CurrentMetrics = was.Status.CurrentMetrics
			return &out
		},
		Columns: autoscalerColumns,
		Cells:   autoscalerCells,
	})

const (
	defaultUtilization = 80 // of CPU, where nobody says what to go by
	rulePeriod         = 15 // seconds
)

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	s := &h.Spec
	setDefault(&s.MinReplicas, 1)
	if len(s.Metrics) == 0 {
		s.Metrics = []autoscalingv2.MetricSpec{ofCPU(defaultUtilization)}
	}
	if s.Behavior == nil {
		return
	}
	all := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: rulePeriod}
	setDefault(&s.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
	setDefault(&s.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
	defaultRules(s.Behavior.ScaleUp, autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4,
		PeriodSeconds: rulePeriod}, all)
	setDefault(&s.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{}) // its window is the controller's business
	defaultRules(s.Behavior.ScaleDown, all)
}

func defaultRules(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	setDefault(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// ofCPU asks for a part of the CPU that pods ask for, in per cent.
func ofCPU(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}}
}

func validateStatus(s *autoscalingv2.HorizontalPodAutoscalerStatus) field.ErrorList {
	at := field.NewPath("status")
	errs := valid.NotNegative(s.CurrentReplicas, at.Child("currentReplicas"))
	return append(errs, valid.NotNegative(s.DesiredReplicas, at.Child("desiredReplicas"))...)
}

var autoscalerColumns = table.Columns{
	table.Name,
	table.Column("Reference", "string", "What it scales."),
	table.Column("Targets", "string", "What is used now, and what it goes by."),
	table.Column("MinPods", "string", "How many pods there are at least."),
	table.Column("MaxPods", "string", "How many pods there are at most."),
	table.Column("Replicas", "string", "How many pods there are."),
	table.Age,
}

func autoscalerCells(h *autoscalingv2.HorizontalPodAutoscaler, l table.Look) []any {
	least := "<unset>"
	if n := h.Spec.MinReplicas; n != nil {
		least = fmt.Sprint(*n)
	}
	return []any{h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, targets(h), least, int64(h.Spec.MaxReplicas),
		int64(h.Status.CurrentReplicas), l.AgeOf(h)}
}

// targets are the first two that an autoscaler goes by, and how many more there are.
func targets(h *autoscalingv2.HorizontalPodAutoscaler) string {
	const most = 2
	if len(h.Spec.Metrics) == 0 {
		return "<none>"
	}
	var out []string
	for i, m := range h.Spec.Metrics[:min(len(h.Spec.Metrics), most)] {
		var now autoscalingv2.MetricValueStatus
		if i < len(h.Status.CurrentMetrics) {
			_, _, now = Measured(h.Status.CurrentMetrics[i])
		}
		name, _, target := Source(m)
		is, want := "<unknown>", "<auto>"
		if target.AverageValue != nil {
			want = target.AverageValue.String()
			if now.AverageValue != nil {
				is = now.AverageValue.String()
			}
		} else {
			if target.AverageUtilization != nil {
				want = fmt.Sprintf("%d%%", *target.AverageUtilization)
			}
			if now.AverageUtilization != nil {
				is = fmt.Sprintf("%d%%", *now.AverageUtilization)
			}
		}
		out = append(out, fmt.Sprintf("%s: %s/%s", name, is, want))
	}
	if more := len(h.Spec.Metrics) - most; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(out, ", "), more)
	}
	return strings.Join(out, ", ")
}

// Source is what a metric of a resource goes by: of one container, or with "" of whole pods.
func Source(m autoscalingv2.MetricSpec) (name corev1.ResourceName, container string, target autoscalingv2.MetricTarget) {
	switch {
	case m.Resource != nil:
		return m.Resource.Name, "", m.Resource.Target
	case m.ContainerResource != nil:
		return m.ContainerResource.Name, m.ContainerResource.Container, m.ContainerResource.Target
	}
	return "", "", target
}

// Measured is what Source's counterpart in a status says.
func Measured(m autoscalingv2.MetricStatus) (name corev1.ResourceName, container string, now autoscalingv2.MetricValueStatus) {
	switch {
	case m.Resource != nil:
		return m.Resource.Name, "", m.Resource.Current
	case m.ContainerResource != nil:
		return m.ContainerResource.Name, m.ContainerResource.Container, m.ContainerResource.Current
	}
	return "", "", now
}
