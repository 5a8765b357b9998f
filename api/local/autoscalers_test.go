package local

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/autoscaling"
)

// TestAutoscalerInTwoForms: whoever works with an autoscaler in the older form loses nothing of the newer one.
func TestAutoscalerInTwoForms(t *testing.T) {
	c := open(t, Config{})
	old, ctx := autoscaling.HorizontalPodAutoscalersV1, t.Context()
	twos := func() *autoscalingv2.HorizontalPodAutoscaler {
		t.Helper()
		h, err := api.Get[*autoscalingv2.HorizontalPodAutoscaler](ctx, c, autoscaling.HorizontalPodAutoscalers, "default", "web")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	cpu := func(h *autoscalingv2.HorizontalPodAutoscaler, want int32) {
		t.Helper()
		if m := h.Spec.Metrics[len(h.Spec.Metrics)-1].Resource; m.Name != "cpu" || *m.Target.AverageUtilization != want {
			t.Errorf("%+v, want %d %% of cpu", h.Spec.Metrics, want)
		}
	}
	h := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: in("default", "web"),
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}}
	made, err := api.Create(ctx, c, old, h)
	if err != nil || made.Spec.TargetCPUUtilizationPercentage == nil || *made.Spec.TargetCPUUtilizationPercentage != 80 ||
		made.APIVersion != "autoscaling/v1" {
		t.Fatalf("%+v, %v", made, err)
	}
	cpu(twos(), 80)

	two := twos()
	wait := int32(7)
	two.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &wait}}
	if _, err := api.Update(ctx, c, autoscaling.HorizontalPodAutoscalers, two); err != nil {
		t.Fatal(err)
	}
	for _, patch := range []struct {
		kind types.PatchType
		data string
	}{
		{types.MergePatchType, `{"spec":{"targetCPUUtilizationPercentage":60}}`},
		{types.StrategicMergePatchType, `{"spec":{"targetCPUUtilizationPercentage":61}}`},
		{types.JSONPatchType, `[{"op":"replace","path":"/spec/targetCPUUtilizationPercentage","value":62}]`},
	} {
		if _, err := c.Patch(ctx, old, "default", "web", api.Patch{Type: patch.kind, Data: []byte(patch.data)}, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if two = twos(); *two.Spec.Behavior.ScaleDown.StabilizationWindowSeconds != 7 || len(two.Annotations) != 0 {
		t.Errorf("%+v", two)
	}
	cpu(two, 62)

	apply := func(spec string) error {
		_, err := c.Patch(ctx, old, "default", "web",
			api.Patch{Type: types.ApplyYAMLPatchType, Data: []byte(`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler",` +
				`"metadata":{"name":"web"},"spec":` + spec + `}`)}, api.WriteOptions{Manager: "me", Force: true, Strict: true})
		return err
	}
	if err := apply(`{"maxReplicas":5,"targetCPUUtilizationPercentage":40,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}`); err != nil {
		t.Fatal(err)
	}
	cpu(twos(), 40)
	rev := twos().ResourceVersion
	if err := apply(`{"maxReplicas":5,"targetCPUUtilizationPercentage":40,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}`); err != nil || twos().ResourceVersion != rev {
		t.Errorf("applied again: %v, written %v", err, twos().ResourceVersion != rev)
	}
	if err := apply(`{"maxReplicas":5,"colour":"red"}`); err == nil {
		t.Error("an unknown field is taken")
	}
	statusInTwoForms(t, c, twos)
}

// statusInTwoForms: the status can be written in both forms, and what is only measured costs the card nothing.
func statusInTwoForms(t *testing.T, c *Client, twos func() *autoscalingv2.HorizontalPodAutoscaler) {
	t.Helper()
	ctx, old := t.Context(), autoscaling.HorizontalPodAutoscalersV1
	one, err := api.Get[*autoscalingv1.HorizontalPodAutoscaler](ctx, c, old, "default", "web")
	if err != nil || !strings.Contains(one.Annotations["autoscaling.alpha.kubernetes.io/behavior"], `"StabilizationWindowSeconds":7`) {
		t.Fatalf("%+v, %v", one, err)
	}
	part := int32(33)
	one.Status.DesiredReplicas, one.Status.CurrentCPUUtilizationPercentage = 4, &part
	if _, err := api.UpdateStatus(ctx, c, old, one); err != nil {
		t.Fatal(err)
	}
	two := twos()
	if two.Status.DesiredReplicas != 4 || *two.Status.CurrentMetrics[0].Resource.Current.AverageUtilization != 33 {
		t.Errorf("%+v", two.Status)
	}
	before := c.store.Health().Commits
	for n := range int32(20) { // what is measured comes to the card with what else is written
		if two, err = api.UpdateStatus(ctx, c, autoscaling.HorizontalPodAutoscalers, two); err != nil {
			t.Fatal(err)
		}
		two.Status.CurrentMetrics[0].Resource.Current.AverageUtilization = &n
	}
	if n := c.store.Health().Commits - before; n > 0 {
		t.Errorf("%d commits for 20 measurements", n)
	}
	one.ResourceVersion = ""
	one.Annotations["autoscaling.alpha.kubernetes.io/metrics"] = `[{"type":"Pods","pods":{"metricName":"x","targetAverageValue":"1"}}]`
	if _, err := api.Update(ctx, c, old, one); err == nil ||
		!strings.Contains(err.Error(), "spec.metrics[0].pods: Forbidden: not supported by ledge") {
		t.Errorf("%v", err)
	}
}
