package apitest

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/autoscaling"
)

var autoscalerCases = []Case{
	{"Autoscaler", testAutoscaler},
	{"AutoscalerRefused", testAutoscalerRefused},
}

// autoscaler is one of what does not exist.
func (e *env) autoscaler(name string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "none"}}}
}

// byPart goes by a part of what pods ask for.
func byPart(name corev1.ResourceName, percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: name,
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}}
}

// testAutoscaler: its defaults, and that it is the same object in the older form, which says the rest in annotations.
func testAutoscaler(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.autoscaler("h")
	in.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: pointer(int32(7))}}
	in.Status.DesiredReplicas = 7
	h := e.create(in).(*autoscalingv2.HorizontalPodAutoscaler)
	cpu := byPart(corev1.ResourceCPU, 80)
	if s := &h.Spec; *s.MinReplicas != 1 || len(s.Metrics) != 1 || s.Metrics[0].Type != cpu.Type ||
		s.Metrics[0].Resource.Name != cpu.Resource.Name || *s.Metrics[0].Resource.Target.AverageUtilization != 80 ||
		h.Status.DesiredReplicas != 0 {
		t.Errorf("defaults: %+v", h)
	}
	up, down := h.Spec.Behavior.ScaleUp, h.Spec.Behavior.ScaleDown
	if *up.StabilizationWindowSeconds != 0 || *up.SelectPolicy != autoscalingv2.MaxChangePolicySelect || len(up.Policies) != 2 ||
		up.Policies[0] != (autoscalingv2.HPAScalingPolicy{Type: "Pods", Value: 4, PeriodSeconds: 15}) ||
		up.Policies[1] != (autoscalingv2.HPAScalingPolicy{Type: "Percent", Value: 100, PeriodSeconds: 15}) || len(down.Policies) != 1 ||
		down.Policies[0] != up.Policies[1] || *down.StabilizationWindowSeconds != 7 {
		t.Errorf("behavior: %+v", h.Spec.Behavior)
	}
	h.Spec.Metrics = append(h.Spec.Metrics, byPart(corev1.ResourceMemory, 50))
	h = e.update(h).(*autoscalingv2.HorizontalPodAutoscaler)

	older := autoscaling.HorizontalPodAutoscalersV1
	one, err := api.Get[*autoscalingv1.HorizontalPodAutoscaler](e.ctx, c, older, e.ns, "h")
	e.must(err)
	if one.APIVersion != "autoscaling/v1" || *one.Spec.TargetCPUUtilizationPercentage != 80 || one.ResourceVersion != h.ResourceVersion ||
		!strings.Contains(one.Annotations["autoscaling.alpha.kubernetes.io/metrics"], `"targetAverageUtilization":50`) ||
		!strings.Contains(one.Annotations["autoscaling.alpha.kubernetes.io/behavior"], `"StabilizationWindowSeconds":7`) {
		t.Errorf("in the older form: %+v", one)
	}
	_, err = c.Patch(e.ctx, older, e.ns, "h", api.Patch{Type: types.MergePatchType,
		Data: []byte(`{"spec":{"targetCPUUtilizationPercentage":60}}`)}, api.WriteOptions{})
	e.must(err)
	h = e.get(h).(*autoscalingv2.HorizontalPodAutoscaler)
	parts := map[corev1.ResourceName]int32{}
	for _, m := range h.Spec.Metrics {
		parts[m.Resource.Name] = *m.Resource.Target.AverageUtilization
	}
	if len(h.Annotations) != 0 || parts["cpu"] != 60 || parts["memory"] != 50 || *h.Spec.Behavior.ScaleDown.StabilizationWindowSeconds != 7 {
		t.Errorf("after a change of the older form: %+v", h)
	}
	h.Spec.MaxReplicas, h.Status.DesiredReplicas, h.Status.CurrentReplicas = 9, 2, 1
	h, err = api.UpdateStatus(e.ctx, c, autoscaling.HorizontalPodAutoscalers, h)
	e.must(err)
	if h.Spec.MaxReplicas != 3 || h.Status.DesiredReplicas != 2 || h.Status.CurrentReplicas != 1 {
		t.Errorf("after the status: %+v", h)
	}
	h.Status.DesiredReplicas = -1
	_, err = api.UpdateStatus(e.ctx, c, autoscaling.HorizontalPodAutoscalers, h)
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "status.desiredReplicas")
}

func testAutoscalerRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	type (
		spec         = autoscalingv2.HorizontalPodAutoscalerSpec
		metricTarget = autoscalingv2.MetricTarget
		rules        = autoscalingv2.HPAScalingRules
	)
	const ofTarget, ofRules = "spec.metrics[0].resource.target.", "spec.behavior.scaleDown."
	target := func(edit func(*metricTarget)) func(*spec) {
		return func(s *spec) {
			s.Metrics = []autoscalingv2.MetricSpec{byPart(corev1.ResourceCPU, 50)}
			edit(&s.Metrics[0].Resource.Target)
		}
	}
	down := func(edit func(*rules)) func(*spec) {
		return func(s *spec) {
			r := &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{{Type: "Pods", Value: 1, PeriodSeconds: 15}}}
			edit(r)
			s.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: r}
		}
	}
	for name, tc := range map[string]struct {
		field string
		edit  func(s *spec)
	}{
		"none at all":         {"spec.maxReplicas", func(s *spec) { s.MaxReplicas = 0 }},
		"more than the most":  {"spec.maxReplicas", func(s *spec) { s.MinReplicas = pointer(int32(4)) }},
		"down to none":        {"spec.metrics", func(s *spec) { s.MinReplicas = new(int32) }},
		"fewer than none":     {"spec.minReplicas", func(s *spec) { s.MinReplicas = pointer(int32(-1)) }},
		"of no kind":          {"spec.scaleTargetRef.kind", func(s *spec) { s.ScaleTargetRef.Kind = "" }},
		"of no name":          {"spec.scaleTargetRef.name", func(s *spec) { s.ScaleTargetRef.Name = "" }},
		"a path for a name":   {"spec.scaleTargetRef.name", func(s *spec) { s.ScaleTargetRef.Name = "a/b" }},
		"of no group":         {"spec.scaleTargetRef.apiVersion", func(s *spec) { s.ScaleTargetRef.APIVersion = "" }},
		"a source of nothing": {"spec.metrics[0].resource", func(s *spec) { s.Metrics = []autoscalingv2.MetricSpec{{Type: "Resource"}} }},
		"an unknown source":   {"spec.metrics[0].type", func(s *spec) { s.Metrics = []autoscalingv2.MetricSpec{{Type: "Magic"}} }},
		"no part":             {ofTarget + "averageUtilization", target(func(t *metricTarget) { *t.AverageUtilization = 0 })},
		"nothing to go by":    {ofTarget + "averageUtilization", target(func(t *metricTarget) { t.AverageUtilization = nil })},
		"two things to go by": {ofTarget + "averageValue",
			target(func(t *metricTarget) { t.AverageValue = resource.NewQuantity(1, "DecimalSI") })},
		"another target": {ofTarget + "type", target(func(t *metricTarget) { t.Type = "Sum" })},
		"a window without end": {ofRules + "stabilizationWindowSeconds",
			down(func(r *rules) { r.StabilizationWindowSeconds = pointer(int32(3601)) })},
		"an unknown choice": {ofRules + "selectPolicy", down(func(r *rules) {
			r.SelectPolicy = pointer(autoscalingv2.ScalingPolicySelect("Any"))
		})},
		"a policy of nothing":       {ofRules + "policies[0].value", down(func(r *rules) { r.Policies[0].Value = 0 })},
		"a period that is too long": {ofRules + "policies[0].periodSeconds", down(func(r *rules) { r.Policies[0].PeriodSeconds = 1801 })},
		"another policy":            {ofRules + "policies[0].type", down(func(r *rules) { r.Policies[0].Type = "Nodes" })},
		"a tolerance below none":    {ofRules + "tolerance", down(func(r *rules) { r.Tolerance = resource.NewQuantity(-1, "DecimalSI") })},
	} {
		h := e.autoscaler("h")
		tc.edit(&h.Spec)
		_, err := c.Create(e.ctx, autoscaling.HorizontalPodAutoscalers, h, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tc.field)
	}
}
