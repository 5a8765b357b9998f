package controller

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
)

// loaded says that every running pod uses so much.
type loaded struct {
	mu   sync.Mutex
	r    *rig
	used string // "": nothing is measured
	err  error
}

func (l *loaded) use(used string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used, l.err = used, err
}

func (l *loaded) PodMetrics(context.Context) ([]*api.PodMetrics, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used == "" || l.err != nil {
		return nil, l.err
	}
	var out []*api.PodMetrics
	for _, p := range l.r.pods() {
		if p.Status.Phase == corev1.PodRunning {
			out = append(out, &api.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Timestamp: metav1.Now(),
				Window:     metav1.Duration{Duration: 15 * time.Second},
				Containers: []api.ContainerMetrics{{Name: "c", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(l.used)}}}})
		}
	}
	return out, nil
}

// scalingRig runs the loops over a board with a Deployment of pods that ask for 100m.
func scalingRig(t *testing.T, pods int32, fn func(r *rig, l *loaded)) {
	t.Helper()
	l := &loaded{}
	plane(t, Config{Usage: l}, func(r *rig) {
		l.mu.Lock()
		l.r = r
		l.mu.Unlock()
		r.node("n")
		defer r.alive("n")()
		r.deployment(pods, imaged("one"), func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		})
		r.live(3)
		fn(r, l)
	})
}

// live is serve, with pods that have started long ago.
func (r *rig) live(rounds int) {
	r.Helper()
	r.serve(rounds)
	for _, p := range r.pods() {
		if p.Status.StartTime == nil && p.Status.Phase == corev1.PodRunning {
			long := metav1.NewTime(time.Now().Add(-time.Hour))
			r.report(p.Name, corev1.PodRunning, func(p *corev1.Pod) { p.Status.StartTime = &long })
		}
	}
}

func (r *rig) autoscaler(name string, edit ...func(*autoscalingv2.HorizontalPodAutoscaler)) {
	r.Helper()
	least, part := int32(1), int32(50)
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MinReplicas: &least,
			MaxReplicas: 6,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &part}}}}}}
	for _, f := range edit {
		f(h)
	}
	h, err := api.Create(r.ctx, r.Client, autoscaling.HorizontalPodAutoscalers, h)
	must(r, h, err)
	synctest.Wait()
}

// scaled is what an autoscaler says of its conditions.
func (r *rig) scaled(name string) (h *autoscalingv2.HorizontalPodAutoscaler, says string) {
	r.Helper()
	h, err := api.Get[*autoscalingv2.HorizontalPodAutoscaler](r.ctx, r.Client, autoscaling.HorizontalPodAutoscalers, "default", name)
	must(r, h, err)
	for _, c := range h.Status.Conditions {
		says += string(c.Type) + " " + string(c.Status) + " " + c.Reason + "; "
	}
	return h, says
}

func (r *rig) wantScale(when string, want int32) {
	r.Helper()
	if got := *r.getDeployment().Spec.Replicas; got != want {
		_, says := r.scaled("web")
		r.Errorf("%s: %d pods are wanted, should be %d: %s", when, got, want, says)
	}
}

// TestAutoscaler follows an autoscaler through a day: nothing is measured yet, a load comes, stays, and goes.
func TestAutoscaler(t *testing.T) {
	scalingRig(t, 2, func(r *rig, l *loaded) {
		r.autoscaler("web")
		r.pass(10 * time.Minute)
		r.wantScale("nothing is measured", 2)
		h, says := r.scaled("web")
		if says != "AbleToScale True SucceededGetScale; ScalingActive False FailedGetResourceMetric; " || h.Status.CurrentReplicas != 2 {
			t.Errorf("%s%+v", says, h.Status)
		}
		if told := r.events("FailedGetResourceMetric"); len(told) != 1 ||
			!strings.Contains(told[0], "no metrics returned from resource metrics API") {
			t.Errorf("%q", told)
		}
		l.use("", errors.New("boards do not answer"))
		r.pass(time.Minute)
		r.wantScale("boards do not answer", 2)
		l.use("90m", nil)
		r.pass(16 * time.Second)
		r.wantScale("a load comes", 4)
		r.want("events", r.events("SuccessfulRescale"),
			"horizontal-pod-autoscaler Normal SuccessfulRescale web: New size: 4; reason: cpu resource utilization (percentage of request) above target")
		r.live(3)
		r.pass(16 * time.Second)
		r.wantScale("it is as high for four", 6)
		if _, says := r.scaled("web"); !strings.Contains(says, "ScalingLimited True TooManyReplicas") {
			t.Error(says)
		}
		r.live(3)
		l.use("10m", nil)
		r.pass(4 * time.Minute)
		r.wantScale("the load has just gone", 6)
		r.pass(2 * time.Minute)
		r.wantScale("five minutes later", 2)
		r.live(3)
		h, _ = r.scaled("web")
		if c := h.Status.CurrentMetrics; h.Status.LastScaleTime == nil || len(c) != 1 || *c[0].Resource.Current.AverageUtilization != 10 {
			t.Errorf("%+v", h.Status)
		}
		r.pass(6 * time.Minute)
		before := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - before; n > 0 {
			t.Errorf("%d writes in an hour in which nothing changed", n)
		}
	})
}

// An autoscaler that was stopped by hand, one of nothing, two of the same.
func TestAutoscalersThatDoNothing(t *testing.T) {
	scalingRig(t, 2, func(r *rig, l *loaded) {
		l.use("90m", nil)
		r.autoscaler("web", func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.ScaleTargetRef.Name = "none" })
		r.autoscaler("kind", func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.ScaleTargetRef.Kind = "Poodle" })
		r.autoscaler("scaleless", func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "policy/v1", Kind: "PodDisruptionBudget", Name: "b"}
		})
		r.pass(time.Minute)
		for _, name := range []string{"web", "kind", "scaleless"} {
			if h, says := r.scaled(name); says != "AbleToScale False FailedGetScale; " {
				t.Errorf("%s: %s%+v", name, says, h.Status)
			}
		}
		for _, name := range []string{"one", "two"} {
			r.autoscaler(name)
		}
		r.pass(time.Minute)
		if _, says := r.scaled("one"); !strings.Contains(says, "ScalingActive False AmbiguousSelector") {
			t.Error(says)
		}
		// The first to be looked at was alone, and may have scaled; from then on nobody does.
		n := *r.getDeployment().Spec.Replicas
		l.use("1m", nil)
		r.pass(20 * time.Minute)
		r.wantScale("two autoscalers of the same", n)
		if _, err := r.Client.Delete(r.ctx, autoscaling.HorizontalPodAutoscalers, "default", "two", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.redeploy(func(d *appsv1.Deployment) { n := int32(0); d.Spec.Replicas = &n })
		l.use("90m", nil)
		r.pass(time.Minute)
		r.wantScale("stopped by hand", 0)
		if _, says := r.scaled("one"); !strings.Contains(says, "ScalingActive False ScalingDisabled") {
			t.Error(says)
		}
	})
}

// A write that fails is tried again, and nothing is told that did not happen.
func TestAutoscalerOfAFullStore(t *testing.T) {
	scalingRig(t, 2, func(r *rig, l *loaded) {
		l.use("90m", nil)
		r.fail("update scale deployments")
		r.autoscaler("web")
		r.pass(time.Minute)
		r.wantScale("writes fail", 2)
		if h, says := r.scaled("web"); !strings.HasPrefix(says, "AbleToScale False FailedUpdateScale") || h.Status.LastScaleTime != nil {
			t.Errorf("%s%+v", says, h.Status)
		}
		r.fail("update status horizontalpodautoscalers")
		r.pass(16 * time.Second)
		r.wantScale("only the status cannot be written", 4)
		r.fail("")
		r.live(3)
		r.pass(time.Minute)
		r.wantScale("all is well", 6)
		if _, err := r.Get(r.ctx, apps.Deployments, "default", "web"); err != nil {
			t.Error(err)
		}
	})
}

// A control plane without autoscalers follows none.
func TestNoAutoscalersCostNothing(t *testing.T) {
	plane(t, Config{Usage: &loaded{err: errors.New("asked for nothing")}}, func(r *rig) {
		r.node("n")
		r.pass(time.Hour)
		if _, ok := r.watched.Load(autoscaling.HorizontalPodAutoscalers); ok {
			t.Error("a kind without objects is watched")
		}
	})
}
