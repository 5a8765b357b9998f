package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
)

// HorizontalPodAutoscalersV1 are the older form, which has one number for all that an autoscaler may go by: a part of the CPU in per
// cent. The rest stands in annotations, by Kubernetes' names, so that who changes an object in this form loses nothing of it.
var HorizontalPodAutoscalersV1 = api.Define(api.Kind{Group: "autoscaling", Version: "v1", Name: "HorizontalPodAutoscaler",
	Resource: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", Short: []string{"hpa"}, Categories: []string{"all"},
	Namespaced: true,
	View:       &api.Form{Of: HorizontalPodAutoscalers, Show: showV1, Read: readV1, Configure: configureV1}},
	api.Rules[*autoscalingv1.HorizontalPodAutoscaler]{
		New:     func() *autoscalingv1.HorizontalPodAutoscaler { return &autoscalingv1.HorizontalPodAutoscaler{} },
		NewList: func() api.ListObject { return &autoscalingv1.HorizontalPodAutoscalerList{} },
		Spec:    func(h *autoscalingv1.HorizontalPodAutoscaler) any { return &h.Spec },
		Status:  func(h *autoscalingv1.HorizontalPodAutoscaler) any { return &h.Status },
	})

const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
)

// withoutForm are annotations without those that are of the older form.
func withoutForm(of map[string]string) map[string]string {
	out := maps.Clone(of)
	maps.DeleteFunc(out, func(name, _ string) bool {
		switch name {
		case metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation,
			"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance":
			return true
		}
		return false
	})
	return out
}

func showV1(obj api.Object) api.Object {
	h := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: h.ObjectMeta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(h.Spec.ScaleTargetRef), MinReplicas: h.Spec.MinReplicas,
		MaxReplicas: h.Spec.MaxReplicas},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{ObservedGeneration: h.Status.ObservedGeneration,
			LastScaleTime:   h.Status.LastScaleTime,
			CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas}}
	out.Annotations = withoutForm(h.Annotations)
	note := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			return // cannot be: all of it came as JSON
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[name] = string(data)
	}
	var others []autoscalingv1.MetricSpec
	for _, m := range h.Spec.Metrics {
		if !isCPUPart(m) {
			others = append(others, metricV1(m))
		} else if out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	if len(others) > 0 {
		note(metricsAnnotation, others)
	}
	var current []autoscalingv1.MetricStatus
	for _, m := range h.Status.CurrentMetrics {
		current = append(current, measuredV1(m))
		if m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	if len(current) > 0 {
		note(currentAnnotation, current)
	}
	if h.Spec.Behavior != nil {
		note(behaviorAnnotation, behaviorV1{rulesV1(h.Spec.Behavior.ScaleUp), rulesV1(h.Spec.Behavior.ScaleDown)})
	}
	if len(h.Status.Conditions) > 0 {
		note(conditionsAnnotation, h.Status.Conditions)
	}
	return out
}

func isCPUPart(m autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
		m.Resource.Target.AverageUtilization != nil
}

func readV1(obj api.Object) api.Object {
	h := obj.(*autoscalingv1.HorizontalPodAutoscaler)
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: h.ObjectMeta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(h.Spec.ScaleTargetRef), MinReplicas: h.Spec.MinReplicas,
		MaxReplicas: h.Spec.MaxReplicas},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{ObservedGeneration: h.Status.ObservedGeneration,
			LastScaleTime:   h.Status.LastScaleTime,
			CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas}}
	out.Annotations = withoutForm(h.Annotations)
	var others []autoscalingv1.MetricSpec
	if noted(h, metricsAnnotation, &others) {
		for _, m := range others {
			out.Spec.Metrics = append(out.Spec.Metrics, metricOfV1(m))
		}
	}
	if n := h.Spec.TargetCPUUtilizationPercentage; n != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, ofCPU(*n))
	}
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if noted(h, behaviorAnnotation, &behavior) && behavior != (autoscalingv2.HorizontalPodAutoscalerBehavior{}) {
		out.Spec.Behavior = &behavior
	}
	var current []autoscalingv1.MetricStatus
	if noted(h, currentAnnotation, &current) {
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, measuredOfV1(m))
		}
	} else if n := h.Status.CurrentCPUUtilizationPercentage; n != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: n}}}}
	}
	_ = noted(h, conditionsAnnotation, &out.Status.Conditions)
	HorizontalPodAutoscalers.Stamp(out)
	return out
}

// noted reads an annotation; one that cannot be read is none, as on Kubernetes.
func noted[T any](h *autoscalingv1.HorizontalPodAutoscaler, name string, into *T) bool {
	text, ok := h.Annotations[name]
	if !ok {
		return false
	}
	var v T
	if json.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	*into = v
	return true
}

// configureV1 turns a configuration that is to be applied: what it says under the names of this form it says under those of the other.
func configureV1(config map[string]any) error {
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	var h autoscalingv1.HorizontalPodAutoscaler
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	spec, ok := config["spec"].(map[string]any)
	if !ok {
		return nil
	}
	for _, other := range []string{"metrics", "behavior"} {
		if _, there := spec[other]; there {
			return fmt.Errorf(".spec.%s: field not declared in schema", other)
		}
	}
	delete(spec, "targetCPUUtilizationPercentage")
	read := readV1(&h).(*autoscalingv2.HorizontalPodAutoscaler)
	defaultAutoscaler(read) // without a number there is the default one
	data, err = json.Marshal(struct {
		Metrics  []autoscalingv2.MetricSpec                     `json:"metrics"`
		Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
	}{read.Spec.Metrics, read.Spec.Behavior})
	if err != nil {
		return err
	}
	var more map[string]any
	if err := json.Unmarshal(data, &more); err != nil {
		return err
	}
	maps.Copy(spec, more)
	if meta, ok := config["metadata"].(map[string]any); ok {
		if notes, ok := meta["annotations"].(map[string]any); ok {
			kept := withoutForm(h.Annotations)
			maps.DeleteFunc(notes, func(name string, _ any) bool { _, ok := kept[name]; return !ok })
		}
	}
	return nil
}

func metricV1(m autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(m.Type)}
	name, container, t := Source(m)
	switch {
	case m.Resource != nil:
		out.Resource = &autoscalingv1.ResourceMetricSource{Name: name, TargetAverageUtilization: t.AverageUtilization,
			TargetAverageValue: t.AverageValue}
	case m.ContainerResource != nil:
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{Name: name, Container: container,
			TargetAverageUtilization: t.AverageUtilization, TargetAverageValue: t.AverageValue}
	}
	return out
}

// metricOfV1: of what is refused anyway it is enough that it is there.
func metricOfV1(m autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	target := func(part *int32, value *resource.Quantity) autoscalingv2.MetricTarget {
		t := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageUtilization: part, AverageValue: value}
		if part != nil {
			t.Type = autoscalingv2.UtilizationMetricType
		}
		return t
	}
	if r := m.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: r.Name, Target: target(r.TargetAverageUtilization, r.TargetAverageValue)}
	}
	if r := m.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{Name: r.Name, Container: r.Container,
			Target: target(r.TargetAverageUtilization, r.TargetAverageValue)}
	}
	if m.Object != nil {
		out.Object = &autoscalingv2.ObjectMetricSource{}
	}
	if m.Pods != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{}
	}
	if m.External != nil {
		out.External = &autoscalingv2.ExternalMetricSource{}
	}
	return out
}

func measuredV1(m autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(m.Type)}
	name, container, now := Measured(m)
	var average resource.Quantity
	if now.AverageValue != nil {
		average = *now.AverageValue
	}
	switch {
	case m.Resource != nil:
		out.Resource = &autoscalingv1.ResourceMetricStatus{Name: name, CurrentAverageUtilization: now.AverageUtilization,
			CurrentAverageValue: average}
	case m.ContainerResource != nil:
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{Name: name, Container: container,
			CurrentAverageUtilization: now.AverageUtilization, CurrentAverageValue: average}
	}
	return out
}

func measuredOfV1(m autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(m.Type)}
	if r := m.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: r.Name,
			Current: autoscalingv2.MetricValueStatus{AverageUtilization: r.CurrentAverageUtilization, AverageValue: &r.CurrentAverageValue}}
	}
	if r := m.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: r.Name, Container: r.Container,
			Current: autoscalingv2.MetricValueStatus{AverageUtilization: r.CurrentAverageUtilization, AverageValue: &r.CurrentAverageValue}}
	}
	return out
}

// behaviorV1 is written as Kubernetes writes it: by the names of Go. Both ways of writing are read.
type behaviorV1 struct{ ScaleUp, ScaleDown *scalingV1 }

type scalingV1 struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policyV1
	Tolerance                  *resource.Quantity
}

type policyV1 struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func rulesV1(r *autoscalingv2.HPAScalingRules) *scalingV1 {
	if r == nil {
		return nil
	}
	out := &scalingV1{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, policyV1(p))
	}
	return out
}
