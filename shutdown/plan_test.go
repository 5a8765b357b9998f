package shutdown

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(name string, prio int32, graceSeconds int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	p.Spec.Priority = &prio
	p.Spec.TerminationGracePeriodSeconds = &graceSeconds
	return p
}

const sec = time.Second

// show writes a plan down: "0/20s: a=5s b=20s | 2000000000/10s: c=10s".
func show(p Plan) string {
	var stages []string
	for _, s := range p.Stages {
		line := fmt.Sprintf("%d/%s:", s.Priority, s.Period)
		for _, q := range s.Pods {
			line += fmt.Sprintf(" %s=%s", q.Name, q.Grace)
		}
		stages = append(stages, line)
	}
	return strings.Join(stages, " | ")
}

// TestPeriods: N-5.1, N-5.5, N-5.6.
func TestPeriods(t *testing.T) {
	for _, tt := range []struct {
		cfg   Config
		want  string
		total time.Duration
	}{
		{Config{}, "[]", 0},
		{Config{GracePeriod: 30 * sec, GracePeriodCriticalPods: 10 * sec}, "[{0 20s} {2000000000 10s}]", 30 * sec},
		{Config{GracePeriod: 300 * sec, GracePeriodCriticalPods: 120 * sec}, "[{0 3m0s} {2000000000 2m0s}]", 300 * sec},
		{Config{GracePeriod: 100 * sec}, "[{0 1m40s} {2000000000 0s}]", 100 * sec},
		{Config{GracePeriod: 10 * sec, GracePeriodCriticalPods: 10 * sec}, "[{0 0s} {2000000000 10s}]", 10 * sec},
		{Config{GracePeriod: 5 * sec, GracePeriodCriticalPods: 10 * sec}, "[]", 0},
		{Config{ByPodPriority: []Period{{100, 3 * sec}, {-5, 1 * sec}, {0, 2 * sec}}}, "[{-5 1s} {0 2s} {100 3s}]", 6 * sec},
	} {
		if got := fmt.Sprint(tt.cfg.Periods()); got != tt.want || tt.cfg.Total() != tt.total {
			t.Errorf("%+v: %s %s, want %s %s", tt.cfg, got, tt.cfg.Total(), tt.want, tt.total)
		}
	}
}

// TestValidate: N-5.2.
func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		cfg Config
		ok  bool
	}{
		{Config{}, true},
		{Default, true},
		{Config{GracePeriod: 10 * sec, GracePeriodCriticalPods: 10 * sec}, true},
		{Config{GracePeriod: 10 * sec, GracePeriodCriticalPods: 11 * sec}, false},
		{Config{GracePeriod: sec / 2}, false},
		{Config{GracePeriod: 10 * sec, GracePeriodCriticalPods: sec / 2}, false},
		{Config{GracePeriod: -sec}, false},
		{Config{ByPodPriority: []Period{{0, sec}}}, true},
		{Config{ByPodPriority: []Period{{0, sec}}, GracePeriod: sec}, false},
		{Config{ByPodPriority: []Period{{0, sec}, {0, sec}}}, false},
		{Config{ByPodPriority: []Period{{0, -sec}}}, false},
	} {
		if err := tt.cfg.Validate(); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
	}
}

// TestPlan: N-5.8 to N-5.10, N-5.14, N-5.23.
func TestPlan(t *testing.T) {
	// The example list of the documents.
	list := Config{ByPodPriority: []Period{{100000, 10 * sec}, {10000, 180 * sec}, {1000, 120 * sec}, {0, 60 * sec}}}
	shared := Config{ByPodPriority: []Period{{100000, 300 * sec}, {1000, 120 * sec}, {0, 60 * sec}}}
	noPriority := pod("a", 0, 30)
	noPriority.Spec.Priority, noPriority.Spec.TerminationGracePeriodSeconds = nil, nil
	leaving := pod("a", 0, 30)
	left := int64(4)
	leaving.DeletionGracePeriodSeconds = &left
	for _, tt := range []struct {
		name   string
		pods   []*corev1.Pod
		cfg    Config
		budget time.Duration
		want   string
		short  bool
	}{
		{name: "N-5.1 not configured", pods: []*corev1.Pod{pod("a", 0, 5)}, budget: Unlimited},
		{name: "N-5.9 example", cfg: list, budget: Unlimited,
			pods: []*corev1.Pod{pod("a", 100000, 600), pod("b", 99999, 600), pod("c", 10000, 5), pod("d", 1000, 600), pod("e", 999, 600),
				pod("f", -7, 600), pod("g", 2000001000, 600)},
			want: "0/1m0s: e=1m0s f=1m0s | 1000/2m0s: d=2m0s | 10000/3m0s: b=3m0s c=5s | 100000/10s: a=10s g=10s"},
		{name: "N-5.9 shares the group below", cfg: shared, budget: Unlimited, pods: []*corev1.Pod{pod("a", 10000, 600)},
			want: "1000/2m0s: a=2m0s"},
		{name: "N-5.8 below the lowest", cfg: Config{ByPodPriority: []Period{{100, 5 * sec}, {200, 6 * sec}}}, budget: Unlimited,
			pods: []*corev1.Pod{pod("a", 1, 9)}, want: "100/5s: a=5s"},
		{name: "N-5.23 nil is 0 and the period", cfg: Default, budget: Unlimited, pods: []*corev1.Pod{noPriority}, want: "0/20s: a=20s"},
		{name: "N-7.26 already leaving", cfg: Default, budget: Unlimited, pods: []*corev1.Pod{leaving}, want: "0/20s: a=4s"},
		{name: "critical", cfg: Default, budget: Unlimited, pods: []*corev1.Pod{pod("a", 2000000000, 30), pod("b", 1999999999, 30)},
			want: "0/20s: b=20s | 2000000000/10s: a=10s"},
		{name: "N-5.14 exactly enough", cfg: Default, budget: 30 * sec, pods: []*corev1.Pod{pod("a", 2000000000, 30), pod("b", 0, 30)},
			want: "0/20s: b=20s | 2000000000/10s: a=10s"},
		{name: "N-5.14 the lowest is cut", cfg: Default, budget: 14 * sec, pods: []*corev1.Pod{pod("a", 2000000000, 30), pod("b", 0, 30)},
			want: "0/4s: b=4s | 2000000000/10s: a=10s", short: true},
		{name: "N-5.14 then the next", cfg: Default, budget: 5 * sec, pods: []*corev1.Pod{pod("a", 2000000000, 30), pod("b", 0, 30)},
			want: "0/0s: b=0s | 2000000000/5s: a=5s", short: true},
		{name: "N-5.14 time nobody can use", cfg: Default, budget: 14 * sec, pods: []*corev1.Pod{pod("a", 2000000000, 2), pod("b", 0, 30)},
			want: "0/11s: b=11s | 2000000000/3s: a=2s", short: true},
		{name: "N-5.10 an empty group needs nothing", cfg: Default, budget: 20 * sec, pods: []*corev1.Pod{pod("b", 0, 30)}, want: "0/20s: b=20s"},
		{name: "no time at all", cfg: Default, budget: 0, pods: []*corev1.Pod{pod("a", 0, 30)}, want: "0/0s: a=0s", short: true},
	} {
		got := Make(tt.pods, tt.cfg, tt.budget)
		if show(got) != tt.want || got.Short() != tt.short {
			t.Errorf("%s: %s (short %v)\nwant %s", tt.name, show(got), got.Short(), tt.want)
		}
	}
}

func randomConfig(r *rand.Rand) Config {
	if r.IntN(3) == 0 {
		total := 1 + r.IntN(60)
		return Config{GracePeriod: time.Duration(total) * sec, GracePeriodCriticalPods: time.Duration(r.IntN(total+1)) * sec}
	}
	var out Config
	for i := range 1 + r.IntN(5) {
		out.ByPodPriority = append(out.ByPodPriority, Period{int32(i*100 - 200), time.Duration(r.IntN(30)) * sec})
	}
	r.Shuffle(len(out.ByPodPriority), func(i, j int) {
		out.ByPodPriority[i], out.ByPodPriority[j] = out.ByPodPriority[j], out.ByPodPriority[i]
	})
	return out
}

func randomPods(r *rand.Rand) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range r.IntN(15) {
		prio := int32(r.IntN(700) - 300)
		if r.IntN(5) == 0 {
			prio += 2000000000
		}
		pods = append(pods, pod(fmt.Sprint(i), prio, int64(r.IntN(40))))
	}
	return pods
}

// TestPlanProperties: every pod in exactly one stage, stages in order of priority, never over budget, no pod longer
// than its own grace or its stage, and the highest priority is the last to lose time.
func TestPlanProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 5000 {
		cfg, pods := randomConfig(r), randomPods(r)
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		budget := time.Duration(r.IntN(100)) * sec
		full, plan := Make(pods, cfg, Unlimited), Make(pods, cfg, budget)
		where := map[string]int{}
		for i, s := range plan.Stages {
			for _, p := range s.Pods {
				if _, twice := where[p.Name]; twice {
					t.Fatalf("%s is in two stages: %s", p.Name, show(plan))
				}
				where[p.Name] = i
				if p.Grace > s.Period || p.Grace < 0 {
					t.Fatalf("%s gets %s of %s", p.Name, p.Grace, s.Period)
				}
			}
			if len(s.Pods) == 0 || (i > 0 && s.Priority <= plan.Stages[i-1].Priority) {
				t.Fatalf("stages %s", show(plan))
			}
			if s.Period > full.Stages[i].Period {
				t.Fatalf("a smaller budget made a stage longer: %s\n%s", show(full), show(plan))
			}
		}
		for _, p := range pods {
			i, ok := where[p.Name]
			if !ok {
				t.Fatalf("%s is in no stage", p.Name)
			}
			for _, q := range pods {
				if *q.Spec.Priority > *p.Spec.Priority && where[q.Name] < i {
					t.Fatalf("%s outlives %s: %s", p.Name, q.Name, show(plan))
				}
			}
			own := time.Duration(*p.Spec.TerminationGracePeriodSeconds) * sec
			for _, s := range plan.Stages[i].Pods {
				if s.Name == p.Name && s.Grace > own {
					t.Fatalf("%s gets %s, its own is %s", p.Name, s.Grace, own)
				}
			}
		}
		if plan.Total() > budget {
			t.Fatalf("%s takes %s of %s", show(plan), plan.Total(), budget)
		}
		if !plan.Short() && show(plan) != show(full) {
			t.Fatalf("cut without need: %s\n%s", show(full), show(plan))
		}
		for i, s := range plan.Stages {
			// A pod that lost time leaves nothing to the stages below it.
			lost := slices.ContainsFunc(s.Pods, func(p PodStop) bool {
				j := slices.IndexFunc(full.Stages[i].Pods, func(q PodStop) bool { return q.Name == p.Name })
				return p.Grace < full.Stages[i].Pods[j].Grace
			})
			for _, below := range plan.Stages[:i] {
				if lost && below.Period > 0 {
					t.Fatalf("cut above, time left below: %s", show(plan))
				}
			}
		}
		r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		if again := Make(pods, cfg, budget); show(again) != show(plan) {
			t.Fatalf("order of pods mattered")
		}
	}
}
