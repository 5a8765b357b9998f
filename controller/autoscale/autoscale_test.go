package autoscale

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// scaler goes by 50 % of the CPU that pods ask for, between 1 and 20 pods.
func scaler(edit ...func(*autoscalingv2.HorizontalPodAutoscaler)) *autoscalingv2.HorizontalPodAutoscaler {
	least, part := int32(1), int32(50)
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &least, MaxReplicas: 20, Metrics: []autoscalingv2.MetricSpec{
			{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &part}}}}}}
	for _, f := range edit {
		f(h)
	}
	return h
}

func average(name corev1.ResourceName, value string) func(*autoscalingv2.HorizontalPodAutoscaler) {
	q := resource.MustParse(value)
	return func(h *autoscalingv2.HorizontalPodAutoscaler) {
		h.Spec.Metrics = append(h.Spec.Metrics,
			autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &q}}})
	}
}

// only leaves the last metric.
func only(h *autoscalingv2.HorizontalPodAutoscaler) {
	h.Spec.Metrics = h.Spec.Metrics[len(h.Spec.Metrics)-1:]
}

func behaving(up, down *autoscalingv2.HPAScalingRules) func(*autoscalingv2.HorizontalPodAutoscaler) {
	return func(h *autoscalingv2.HorizontalPodAutoscaler) {
		h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: up, ScaleDown: down}
	}
}

func rulesOf(seconds int32, pick autoscalingv2.ScalingPolicySelect,
	policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &seconds, SelectPolicy: &pick, Policies: policies}
}

// strict takes every difference from the target for one.
func strict() *autoscalingv2.HPAScalingRules {
	r := rulesOf(0, autoscalingv2.MaxChangePolicySelect, policy(autoscalingv2.PodsScalingPolicy, 9, 15))
	r.Tolerance = new(resource.Quantity)
	return r
}

func policy(kind autoscalingv2.HPAScalingPolicyType, n, seconds int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: kind, Value: n, PeriodSeconds: seconds}
}

// world are pods that ask for 1 CPU each; each letter is one: a digit uses so many tenths of it, "u" starts, "p" is pending, "m" is not
// measured, "d" goes, "f" has failed.
func world(pods string, now time.Time) Target {
	t := Target{Replicas: int32(len(pods)), Selector: "app=web"}
	for i, c := range pods {
		start := metav1.NewTime(now.Add(-time.Hour))
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i)},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &start,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: start}}}}
		p.Spec.Containers = []corev1.Container{{Name: "c",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1"),
				"memory": resource.MustParse("100Mi")}}}}
		used := "0"
		switch c {
		case 'u':
			p.Status.Conditions[0].Status, used = corev1.ConditionFalse, "10"
		case 'p':
			p.Status.Phase = corev1.PodPending
		case 'd':
			p.DeletionTimestamp = &start
		case 'f':
			p.Status.Phase = corev1.PodFailed
		case 'm':
		default:
			used = fmt.Sprintf("%d00m", c-'0')
		}
		t.Pods = append(t.Pods, p)
		if c != 'm' && c != 'p' {
			t.Usage = append(t.Usage, &api.PodMetrics{ObjectMeta: p.ObjectMeta, Timestamp: metav1.NewTime(now),
				Window: metav1.Duration{Duration: 15 * time.Second},
				Containers: []api.ContainerMetrics{{Name: "c",
					Usage: corev1.ResourceList{"cpu": resource.MustParse(used), "memory": resource.MustParse(used[:1] + "0Mi")}}}})
		}
	}
	return t
}

func says(p Plan) string {
	var out []string
	for _, c := range p.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(out, ", ")
}

// TestDecide: what one look wants, by Kubernetes' numbers.
func TestDecide(t *testing.T) { // N-12.11
	const ok = "AbleToScale=True ReadyForNewScale, ScalingActive=True ValidMetricFound, ScalingLimited=False DesiredWithinRange"
	for _, tt := range []struct {
		name string
		h    *autoscalingv2.HorizontalPodAutoscaler
		pods string
		want int32
		says string // "": not looked at
	}{
		{"at the target", scaler(), "555", 3, ok},
		{"near above the target", scaler(), "556", 3, ok},
		{"above", scaler(), "999", 6, ok},
		{"twice at most", scaler(average("cpu", "100m"), only), "99999", 10,
			"AbleToScale=True ReadyForNewScale, ScalingActive=True ValidMetricFound, ScalingLimited=True ScaleUpLimit"},
		{"or four", scaler(average("cpu", "100m"), only), "9", 4,
			"AbleToScale=True ReadyForNewScale, ScalingActive=True ValidMetricFound, ScalingLimited=True ScaleUpLimit"},
		{"never above the most", scaler(func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 4 }), "999", 4,
			"AbleToScale=True ReadyForNewScale, ScalingActive=True ValidMetricFound, ScalingLimited=True TooManyReplicas"},
		{"more than the most", scaler(func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 2 }), "111", 2,
			"AbleToScale=True SucceededGetScale"},
		{"fewer than the least", scaler(func(h *autoscalingv2.HorizontalPodAutoscaler) { n := int32(5); h.Spec.MinReplicas = &n }), "111", 5,
			"AbleToScale=True SucceededGetScale"},
		{"stopped by hand", scaler(), "", 0, "AbleToScale=True SucceededGetScale, ScalingActive=False ScalingDisabled"},
		{"below, and just looked at", scaler(), "1111", 4,
			"AbleToScale=True ScaleDownStabilized, ScalingActive=True ValidMetricFound, ScalingLimited=False DesiredWithinRange"},
		{"nothing measured", scaler(), "mmm", 3, "AbleToScale=True SucceededGetScale, ScalingActive=False FailedGetResourceMetric"},
		{"nothing running", scaler(), "pp", 2, "AbleToScale=True SucceededGetScale, ScalingActive=False FailedGetResourceMetric"},
		{"the most of two metrics", scaler(average("cpu", "300m")), "666", 6, ok},
		{"memory by value", scaler(average("memory", "30Mi"), only), "666", 6, ok},
		{"memory per cent", scaler(func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.Metrics[0].Resource.Name = "memory" }), "888", 5, ok},
		{"one that starts uses nothing", scaler(), "9uu", 3, ok},
		{"those that start do not stop it all", scaler(), "99u", 4, ok},
		{"one unknown uses nothing where more are wanted", scaler(), "99m", 4, ok},
		{"and does not turn it round", scaler(), "6mm", 3, ok},
		{"those that go do not count", scaler(), "99df", 4, ok},
		{"a container", scaler(func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ContainerResourceMetricSourceType,
				ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
					Name: "cpu", Container: "c", Target: h.Spec.Metrics[0].Resource.Target}}}
		}), "888", 5, ok},
		{"no such container", scaler(func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ContainerResourceMetricSourceType,
				ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
					Name: "cpu", Container: "x", Target: h.Spec.Metrics[0].Resource.Target}}}
		}), "888", 3, "AbleToScale=True SucceededGetScale, ScalingActive=False FailedGetContainerResourceMetric"},
		{"one metric of two fails, the other wants more", scaler(average("ephemeral-storage", "1Mi")), "999", 6, ok},
		{"one metric of two fails, the other wants fewer", scaler(average("ephemeral-storage", "1Mi")), "111", 3,
			"AbleToScale=True SucceededGetScale, ScalingActive=False FailedGetResourceMetric"},
		{"a tolerance of its own", scaler(behaving(strict(), nil)), "556", 4, ok},
	} {
		target := world(tt.pods, began)
		p := Decide(tt.h, target, &Memory{}, began)
		got := target.Replicas
		if p.Rescale {
			got = p.Replicas
		}
		if got != tt.want || tt.says != "" && says(p) != tt.says {
			t.Errorf("%s: %d pods, %s; want %d, %s", tt.name, got, says(p), tt.want, tt.says)
		}
		if p.Status.CurrentReplicas != target.Replicas || *p.Status.ObservedGeneration != 1 {
			t.Errorf("%s: %+v", tt.name, p.Status)
		}
		if warned := slices.ContainsFunc(p.Events,
			func(e Event) bool { return e.Type == corev1.EventTypeWarning }); warned != strings.Contains(tt.says, "Failed") && tt.name[:3] != "one" {
			t.Errorf("%s: events %+v", tt.name, p.Events)
		}
	}
}

// TestSelectors: nothing is scaled whose pods nobody can tell, or somebody else scales.
func TestSelectors(t *testing.T) {
	for want, edit := range map[string]func(*Target){
		"AbleToScale=True SucceededGetScale, ScalingActive=False InvalidSelector": func(t *Target) { t.Selector = "" },
		"AbleToScale=True SucceededGetScale, ScalingActive=False AmbiguousSelector": func(t *Target) {
			t.Rivals = []string{"default/other",
				"default/web"}
		},
	} {
		target := world("999", began)
		edit(&target)
		if p := Decide(scaler(), target, &Memory{}, began); p.Rescale || says(p) != want || len(p.Events) == 0 {
			t.Errorf("%v, %s, %+v; want %s", p.Rescale, says(p), p.Events, want)
		}
	}
	if p := Lost(scaler(), errors.New("gone"), began); says(p) != "AbleToScale=False FailedGetScale" || p.Events[0].Message != "gone" {
		t.Errorf("%s, %+v", says(p), p.Events)
	}
}

// TestStatus: what was measured stands in the status, and what became of a change.
func TestStatus(t *testing.T) {
	h := scaler(average("memory", "1Gi"))
	p := Decide(h, world("888", began), &Memory{}, began)
	cpu, memory := p.Status.CurrentMetrics[0].Resource.Current, p.Status.CurrentMetrics[1].Resource.Current
	if *cpu.AverageUtilization != 80 || cpu.AverageValue.String() != "800m" || memory.AverageUtilization != nil ||
		memory.AverageValue.String() != "80Mi" {
		t.Errorf("%+v", p.Status.CurrentMetrics)
	}
	if p.Reason != "cpu resource utilization (percentage of request) above target" || p.Status.LastScaleTime != nil ||
		p.Status.DesiredReplicas != 5 {
		t.Errorf("%+v", p)
	}
	refused := p
	refused.Status = *p.Status.DeepCopy()
	refused.Refused(h.Status, errors.New("no"), began)
	if !strings.HasPrefix(says(refused), "AbleToScale=False FailedUpdateScale") || refused.Status.DesiredReplicas != 0 ||
		refused.Status.LastScaleTime != nil {
		t.Errorf("%s, %+v", says(refused), refused.Status)
	}
	p.Scaled(began.Add(time.Second))
	if !strings.HasPrefix(says(p), "AbleToScale=True SucceededRescale") || !p.Status.LastScaleTime.Time.Equal(began.Add(time.Second)) ||
		p.Events[len(p.Events)-1].Message != "New size: 5; reason: cpu resource utilization (percentage of request) above target" {
		t.Errorf("%s, %+v", says(p), p.Events)
	}
	if c := p.Status.Conditions[0]; !c.LastTransitionTime.Time.Equal(began) {
		t.Errorf("a condition that stayed true has a new time: %+v", c)
	}
}

// scenario looks every 15 seconds, with pods that all use the same, and does what is wanted.
func scenario(h *autoscalingv2.HorizontalPodAutoscaler, pods int32, load []int) []int32 {
	m, now := &Memory{}, began
	var out []int32
	for _, use := range load {
		now = now.Add(Every)
		p := Decide(h, world(strings.Repeat(fmt.Sprint(use), int(pods)), now), m, now)
		if p.Rescale {
			m.Scaled(pods, p.Replicas, now)
			pods = p.Replicas
		}
		out = append(out, pods)
	}
	return out
}

// TestSteady: windows and policies, over time.
func TestSteady(t *testing.T) {
	times := func(use, n int) []int { return slices.Repeat([]int{use}, n) }
	pod, part := autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy
	most, least, off := autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect
	free := rulesOf(0, most, policy(part, 1000, 15))
	for _, tt := range []struct {
		name string
		h    *autoscalingv2.HorizontalPodAutoscaler
		pods int32
		load []int
		want []int32
	}{
		{"down after five minutes", scaler(), 4, times(1, 22), append(slices.Repeat([]int32{4}, 20), 1, 1)},
		{"a peak in between holds it", scaler(), 4, append(append(times(1, 10), 5), times(1, 12)...), slices.Repeat([]int32{4}, 23)},
		{"up by a pod a minute", scaler(behaving(rulesOf(0, most, policy(pod, 1, 60)), free)), 2, times(9, 9),
			[]int32{3, 3, 3, 3, 4, 4, 4, 4, 5}},
		{"the slower of two policies", scaler(behaving(rulesOf(0, least, policy(pod, 1, 15), policy(part, 100, 15)), free)), 4, times(9, 3),
			[]int32{5, 6, 7}},
		{"the faster of two policies", scaler(behaving(rulesOf(0, most, policy(pod, 1, 15), policy(part, 100, 15)), free)), 4, times(9, 2),
			[]int32{8, 15}},
		{"never up", scaler(behaving(rulesOf(0, off, policy(pod, 1, 15)), free)), 4, times(9, 3), []int32{4, 4, 4}},
		{"never down", scaler(behaving(free, rulesOf(0, off, policy(pod, 1, 15)))), 4, times(1, 3), []int32{4, 4, 4}},
		{"down at once", scaler(behaving(free, rulesOf(0, most, policy(part, 100, 15)))), 4, times(1, 2), []int32{1, 1}},
		{"down by half in a minute", scaler(behaving(free, rulesOf(0, most, policy(part, 50, 60)))), 8, times(0, 9),
			[]int32{4, 4, 4, 4, 2, 2, 2, 2, 1}},
		{"down by one in 30 s, a policy that takes less", scaler(behaving(free, rulesOf(0, least, policy(pod, 1, 30), policy(part, 50, 30)))), 8,
			times(1, 5), []int32{7, 7, 6, 6, 5}},
		{"up only when it was wanted for half a minute", scaler(behaving(rulesOf(30, most, policy(part, 1000, 15)), free)), 2,
			[]int{9, 5, 9, 9, 9}, []int32{2, 2, 2, 4, 4}},
	} {
		if got := scenario(tt.h, tt.pods, tt.load); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestStarting: a pod's CPU while it starts is not what it needs.
func TestStarting(t *testing.T) {
	now := began
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for _, tt := range []struct {
		name           string
		started, ready time.Duration
		is             corev1.ConditionStatus
		measured       time.Duration
		want           bool
	}{
		{"starts", time.Minute, time.Minute, corev1.ConditionFalse, 0, true},
		{"just became ready", time.Minute, 5 * time.Second, corev1.ConditionTrue, 0, true},
		{"ready for a window", time.Minute, 20 * time.Second, corev1.ConditionTrue, 0, false},
		{"measured before", time.Minute, 20 * time.Second, corev1.ConditionTrue, 10 * time.Second, true},
		{"long since", time.Hour, 5 * time.Second, corev1.ConditionTrue, 0, false},
		{"became unready later", time.Hour, time.Minute, corev1.ConditionFalse, 0, false},
		{"never became ready", time.Hour, time.Hour - 10*time.Second, corev1.ConditionFalse, 0, true},
		{"by a clock a little ahead", -time.Minute, -time.Minute, corev1.ConditionTrue, 0, true},
		{"by a clock years ahead", -20000 * time.Hour, -20000 * time.Hour, corev1.ConditionTrue, 0, false},
		{"by that clock, and is not ready", -20000 * time.Hour, -20000 * time.Hour, corev1.ConditionFalse, 0, true},
	} {
		at := ago(tt.started)
		p := &corev1.Pod{Status: corev1.PodStatus{StartTime: &at,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: tt.is, LastTransitionTime: ago(tt.ready)}}}}
		if got := starts(p, sample{at: now.Add(-tt.measured), window: 15 * time.Second}, now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if !starts(&corev1.Pod{}, sample{}, now) {
		t.Error("a pod that says nothing does not start")
	}
}

// TestHostileNumbers: whatever a board says its pods use, the number stays within bounds.
func TestHostileNumbers(t *testing.T) {
	for _, used := range []string{"-1", "-9223372036854775808", "9223372036854775807", "9e30", "1n", "0"} {
		for _, h := range []*autoscalingv2.HorizontalPodAutoscaler{scaler(), scaler(average("cpu", "1n"), only),
			scaler(average("memory", "1"), only)} {
			target := world("555", began)
			for _, m := range target.Usage {
				m.Containers = append(m.Containers, api.ContainerMetrics{Name: "d"})
				for i := range m.Containers {
					m.Containers[i].Usage = corev1.ResourceList{"cpu": resource.MustParse(used), "memory": resource.MustParse(used)}
				}
			}
			p := Decide(h, target, &Memory{}, began)
			if n := p.Status.DesiredReplicas; p.Rescale && (p.Replicas < 1 || p.Replicas > 20) || n < 0 || n > 20 {
				t.Errorf("%s: %+v", used, p)
			}
			for _, m := range p.Status.CurrentMetrics {
				if m.Resource != nil && m.Resource.Current.AverageValue.Sign() < 0 {
					t.Errorf("%s: %+v", used, m.Resource.Current)
				}
			}
		}
	}
	if sum(math.MaxInt64, 1) != math.MaxInt64 || clamp(1e30) != math.MaxInt32 {
		t.Error("a sum turns over")
	}
}

// TestHostileTargets: no target that is taken, however large, ends the look or leads beyond the bounds.
func TestHostileTargets(t *testing.T) {
	for _, aim := range []string{"9e15", "9e18", "1E", "9223372036854775807", "1e30", "1n"} {
		for _, pods := range []string{"555", "000", "5m0"} {
			for _, name := range []corev1.ResourceName{"cpu", "memory"} {
				p := Decide(scaler(average(name, aim), only), world(pods, began), &Memory{}, began)
				if p.Rescale && (p.Replicas < 1 || p.Replicas > 20) || aim != "1n" && p.Replicas > 3 {
					t.Errorf("%s of %s, pods %s: %+v", aim, name, pods, p)
				}
			}
		}
	}
}

// TestRandom: whatever pods use and whatever the rules are: the number is within its bounds; no policy is broken within its period; no pod
// goes as long as it was wanted within the window; memory stays small.
func TestRandom(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 7))
		pod := autoscalingv2.PodsScalingPolicy
		upBy, upIn := 1+r.Int32N(4), 15*(1+r.Int32N(8))
		downBy, downIn, win := 1+r.Int32N(4), 15*(1+r.Int32N(8)), 15*r.Int32N(10)
		h := scaler(behaving(rulesOf(0, autoscalingv2.MaxChangePolicySelect, policy(pod, upBy, upIn)),
			rulesOf(win, autoscalingv2.MaxChangePolicySelect, policy(pod, downBy, downIn))))
		m, now, pods := &Memory{}, began, 1+r.Int32N(20)
		past := []moment{{at: now, n: pods}}
		for range 80 {
			now = now.Add(Every)
			use := string("0123456789mupdf"[r.IntN(15)])
			p := Decide(h, world(strings.Repeat(use, int(pods)), now), m, now)
			n := pods
			if p.Rescale {
				n = p.Replicas
				m.Scaled(pods, n, now)
			}
			if n < 1 || n > 20 {
				t.Fatalf("seed %d: %d pods", seed, n)
			}
			if was := at(past, now.Add(-time.Duration(upIn)*time.Second)); n > pods && n > was+upBy {
				t.Fatalf("seed %d: %d pods, and %d of them %d s ago: %d more at most", seed, n, was, upIn, upBy)
			}
			if was := at(past, now.Add(-time.Duration(downIn)*time.Second)); n < pods && n < was-downBy {
				t.Fatalf("seed %d: %d pods, and %d of them %d s ago: %d fewer at most", seed, n, was, downIn, downBy)
			}
			for _, was := range past {
				if since := now.Sub(was.at); since < time.Duration(win)*time.Second && n < pods && n < was.wanted {
					t.Fatalf("seed %d: %d pods, and %v ago %d were wanted (window %d s)", seed, n, since, was.wanted, win)
				}
			}
			next := moment{at: now, n: n}
			if last := m.wanted[len(m.wanted)-1]; last.at.Equal(now) {
				next.wanted = min(last.n, 20)
			}
			past, pods = append(past, next), n
		}
		if len(m.wanted) > 241 {
			t.Errorf("seed %d: %d wishes are remembered", seed, len(m.wanted))
		}
	}
}

type moment struct {
	at        time.Time
	n, wanted int32
}

// at is how many pods there were at a time, or at the beginning.
func at(past []moment, when time.Time) int32 {
	n := past[0].n
	for _, m := range past {
		if !m.at.After(when) {
			n = m.n
		}
	}
	return n
}

// A loop that is woken for nothing fills no memory.
func TestMemoryHasABound(t *testing.T) {
	m, h := &Memory{}, scaler()
	for i := range 3 * entries {
		Decide(h, world("5", began), m, began.Add(time.Duration(i)*time.Millisecond))
	}
	if len(m.wanted) > entries+1 {
		t.Errorf("%d wishes", len(m.wanted))
	}
}
