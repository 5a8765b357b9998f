package sim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/runtime"
)

// Some of the fleet's pods are as many as a load needs: an autoscaler says how many, whatever happens meanwhile.

const (
	scaledName = "scaled"
	wantScaled = "scaled" // is there as often as an autoscaler says

	leastScaled, mostScaled = 2, 8
	podLoad                 = 100 // thousandths of a processor that a pod is to have

	upPods, downPods = 2, 2 // a minute, at most
	downSteady       = 3 * time.Minute

	followTime = 10 * time.Minute // for the longest way: the window, and three steps
	lookSlack  = 20 * time.Second // an autoscaler looks every 15 s
)

// scaled is the load and what the autoscaler has made of it. It implements controller.Usage.
type scaled struct {
	boards []*member

	mu         sync.Mutex
	turn       int
	loads      []demand // in pods, the newest last
	replicas   int32
	changes    []rescale // since the control plane began: it remembers no others
	ups, downs int
}

type demand struct {
	at   time.Time
	pods int32
}

type rescale struct {
	at       time.Time
	from, to int32
}

// loadTurns are the loads one after the other, in pods; some are outside of the bounds.
var loadTurns = []int32{3, 9, 1, 6, 2, 8, 5, 12, 4}

// next has another load begin.
func (s *scaled) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads = append(s.loads[max(0, len(s.loads)-20):], demand{time.Now(), loadTurns[s.turn%len(loadTurns)]})
	s.turn++
}

func (s *scaled) load() int32 {
	if len(s.loads) == 0 {
		return leastScaled
	}
	return s.loads[len(s.loads)-1].pods
}

// within is what the load wanted at some moment since then: the least and the most.
func (s *scaled) within(since time.Time) (least, most int32) {
	least, most = s.load(), s.load()
	for i, d := range s.loads {
		if i+1 < len(s.loads) && s.loads[i+1].at.Before(since) {
			continue
		}
		least, most = min(least, d.pods), max(most, d.pods)
	}
	if len(s.loads) == 0 || s.loads[0].at.After(since) {
		least, most = min(least, leastScaled), max(most, leastScaled)
	}
	return bounded(least), bounded(most)
}

func bounded(n int32) int32 { return min(max(n, leastScaled), mostScaled) }

// PodMetrics implements controller.Usage: the pods whose boards can be reached share the load out among them.
func (s *scaled) PodMetrics(ctx context.Context) ([]*api.PodMetrics, error) {
	s.mu.Lock()
	milli := int64(s.load()) * podLoad
	s.mu.Unlock()
	var out []*api.PodMetrics
	for _, m := range s.boards {
		st, err := m.engine.List(ctx)
		if err != nil || m.up.isCut() {
			continue
		}
		names := map[string]string{}
		for _, p := range st.Pods {
			if strings.HasPrefix(p.Pod.Name, scaledName+"-") {
				names[p.Pod.UID] = p.Pod.Name
			}
		}
		for _, c := range st.Containers {
			if name := names[c.PodUID]; name != "" && c.Phase == runtime.Running {
				out = append(out, &api.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
					Timestamp: metav1.Now(), Window: metav1.Duration{Duration: 15 * time.Second},
					Containers: []api.ContainerMetrics{{Name: c.Name}}})
			}
		}
	}
	for _, m := range out {
		m.Containers[0].Usage = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli/int64(len(out)), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(restingMemory, resource.BinarySI)}
	}
	return out, nil
}

// forget is what a control plane does that ends: what it changed before counts no more.
func (s *scaled) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes = nil
}

func (s *scaled) total() (ups, downs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ups, s.downs
}

// rescaled judges one change: within the bounds, no further than the load wanted, for fewer pods all the time of the window, and not
// faster than the policies allow.
func (s *scaled) rescaled(t complainer, name string, to int32, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.replicas
	s.replicas = to
	if to < leastScaled || to > mostScaled {
		t.Errorf("%s is scaled to %d: outside of %d to %d", name, to, leastScaled, mostScaled)
	}
	if to > from {
		s.ups++
		if _, most := s.within(now.Add(-lookSlack)); to > most {
			t.Errorf("%s is scaled from %d to %d, and no more than %d were wanted", name, from, to, most)
		}
	} else {
		s.downs++
		if _, most := s.within(now.Add(lookSlack - downSteady)); to < most {
			t.Errorf("%s is scaled from %d to %d, and %d were wanted less than %s ago", name, from, to, most, downSteady)
		}
	}
	s.changes = slices.DeleteFunc(append(s.changes, rescale{now, from, to}), func(c rescale) bool { return now.Sub(c.at) >= time.Minute })
	if begun := s.changes[0].from; to > begun+upPods || to < begun-downPods {
		t.Errorf("%s is scaled from %d to %d within a minute: %+v", name, begun, to, s.changes)
	}
}

// complainer is what a test is here.
type complainer interface {
	Errorf(format string, args ...any)
}

// autoscale makes the Deployment and its autoscaler.
func (f *fleet) autoscale() {
	f.Helper()
	p, of, n := Pod(scaledName, wantScaled, corev1.RestartPolicyAlways, "run", "stop=500ms"), map[string]string{"kept": scaledName}, int32(leastScaled)
	of[wantLabel] = wantScaled
	_, err := api.Create(f.user(), f.local, apps.Deployments, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace,
		Name: scaledName}, Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: of},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: p.Spec}}})
	f.must(err)
	none, steady := int32(0), int32(downSteady/time.Second)
	rules := func(window *int32, pods int32) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: window, Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: pods, PeriodSeconds: 60}}}
	}
	_, err = api.Create(f.user(), f.local, autoscaling.HorizontalPodAutoscalers, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: scaledName}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: scaledName},
			MinReplicas:    &n, MaxReplicas: mostScaled, Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
					Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewMilliQuantity(podLoad, resource.DecimalSI)}}}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(&none, upPods), ScaleDown: rules(&steady, downPods)}}})
	f.must(err)
}

// judgeScale: a fleet that has been left alone for long enough has as many pods as the load needs, and they are there.
func (f *fleet) judgeScale() {
	f.Helper()
	obj, err := f.local.Get(f.ctx, apps.Deployments, "default", scaledName)
	f.must(err)
	d := obj.(*appsv1.Deployment)
	f.scaled.mu.Lock()
	want := bounded(f.scaled.load())
	f.scaled.mu.Unlock()
	if *d.Spec.Replicas != want || d.Status.AvailableReplicas != want {
		h, err := f.local.Get(f.ctx, autoscaling.HorizontalPodAutoscalers, "default", scaledName)
		f.Errorf("%s has %d pods, %d available, and its load needs %d: %+v %v", scaledName, *d.Spec.Replicas, d.Status.AvailableReplicas, want, h,
			err)
	}
}

// TestRescaled: what is not to be is found.
func TestRescaled(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	type step struct {
		second int
		to     int32
	}
	for _, c := range []struct {
		name  string
		loads []demand
		steps []step
		wrong int
	}{
		{"as it is to be", []demand{{at(0), 8}, {at(600), 1}}, []step{{15, 4}, {75, 6}, {135, 8}, {785, 6}, {845, 4}, {905, 2}}, 0},
		{"too fast", []demand{{at(0), 8}}, []step{{15, 4}, {45, 6}}, 1},
		{"too many", []demand{{at(0), 3}}, []step{{15, 4}}, 1},
		{"too few", []demand{{at(0), 4}, {at(600), 1}}, []step{{15, 4}, {800, 2}, {900, 1}}, 2},
		{"too soon", []demand{{at(0), 4}, {at(600), 1}}, []step{{15, 4}, {700, 2}}, 1},
		{"above all", []demand{{at(0), 12}}, []step{{15, 4}, {75, 6}, {135, 8}, {195, 9}}, 2},
	} {
		s, found := &scaled{replicas: leastScaled}, complaints(0)
		for _, x := range c.steps {
			s.loads = slices.DeleteFunc(slices.Clone(c.loads), func(d demand) bool { return d.at.After(at(x.second)) })
			s.rescaled(&found, "x", x.to, at(x.second))
		}
		if int(found) != c.wrong {
			t.Errorf("%s: %d complaints, want %d", c.name, found, c.wrong)
		}
	}
}

type complaints int

func (c *complaints) Errorf(string, ...any) { *c++ }
