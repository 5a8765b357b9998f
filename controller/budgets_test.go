package controller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/policy"
)

func minimum(n int) policyv1.PodDisruptionBudgetSpec {
	v := intstr.FromInt32(int32(n))
	return policyv1.PodDisruptionBudgetSpec{MinAvailable: &v}
}

func minimumPart(part string) policyv1.PodDisruptionBudgetSpec {
	v := intstr.FromString(part)
	return policyv1.PodDisruptionBudgetSpec{MinAvailable: &v}
}

func missing(v intstr.IntOrString) policyv1.PodDisruptionBudgetSpec {
	return policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &v}
}

// TestJudge: what budgets of all sorts come to, in Kubernetes' numbers.
func TestJudge(t *testing.T) {
	now := time.Unix(1000, 0)
	web := func(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		for _, f := range edit {
			f(p)
		}
		return p
	}
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	owned := func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", Controller: &yes}}
	}
	scaled := func(p *corev1.Pod) {
		owned(p)
		p.OwnerReferences[0].Name = "four"
	}
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	two := []*corev1.Pod{web("a", ready), web("b", ready)}
	for _, tt := range []struct {
		name      string
		spec      policyv1.PodDisruptionBudgetSpec
		disrupted map[string]metav1.Time
		pods      []*corev1.Pod
		want      string // healthy/desired of expected, allowed, condition
		event     string
		left      int // of the evicted
	}{
		{name: "one may go", spec: minimum(1), pods: two, want: "2/1 of 2, 1 SufficientPods"},
		{name: "all are needed", spec: minimum(2), pods: two, want: "2/2 of 2, 0 InsufficientPods"},
		{name: "more than there are", spec: minimum(3), pods: two, want: "2/3 of 2, 0 InsufficientPods"},
		{name: "not ready", spec: minimum(1), pods: []*corev1.Pod{web("a", ready), web("b")}, want: "1/1 of 2, 0 InsufficientPods"},
		{name: "on its way out", spec: minimum(1), pods: []*corev1.Pod{web("a", ready), web("b", ready, going)},
			want: "1/1 of 2, 0 InsufficientPods"},
		{name: "no pods yet", spec: minimum(0), want: "0/0 of 0, 0 InsufficientPods", event: "NoPods"},
		{name: "nothing asked for", pods: two, want: "2/0 of 0, 0 InsufficientPods"},
		{name: "evicted and not seen so", spec: minimum(1), pods: two, disrupted: map[string]metav1.Time{"a": ago(time.Minute)},
			want: "1/1 of 2, 0 InsufficientPods", left: 1},
		{name: "evicted and still there", spec: minimum(1), pods: two, disrupted: map[string]metav1.Time{"a": ago(2 * time.Minute)},
			want: "2/1 of 2, 1 SufficientPods"},
		{name: "evicted and seen so", spec: minimum(1), pods: []*corev1.Pod{web("a", ready, going), web("b", ready)},
			disrupted: map[string]metav1.Time{"a": ago(time.Second), "gone": ago(0)}, want: "1/1 of 2, 0 InsufficientPods"},
		{name: "a part of bare pods", spec: minimumPart("50%"), pods: two, want: "2/0 of 0, 0 InsufficientPods", event: "UnmanagedPods"},
		{name: "but for one of bare pods", spec: missing(intstr.FromInt32(1)), pods: two, want: "2/0 of 0, 0 InsufficientPods",
			event: "UnmanagedPods"},
		{name: "of a controller nobody knows", spec: missing(intstr.FromString("50%")), pods: []*corev1.Pod{web("a", ready, owned)},
			want: "0/0 of 0, 0 SyncFailed", event: "CalculateExpectedPodCountFailed"},
		{name: "a part of what a controller wants", spec: missing(intstr.FromString("50%")),
			pods: []*corev1.Pod{web("a", ready, scaled), web("b", ready, scaled), web("c", ready)},
			want: "3/2 of 4, 1 SufficientPods", event: "UnmanagedPods"},
		{name: "at least so many of what a controller wants", spec: minimumPart("30%"),
			pods: []*corev1.Pod{web("a", ready, scaled), web("b", scaled)},
			want: "1/2 of 4, 0 InsufficientPods"},
		{name: "a number does not ask for controllers", spec: minimum(0), pods: []*corev1.Pod{web("a", ready, owned)},
			want: "1/0 of 1, 1 SufficientPods"},
	} {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b", Generation: 3}, Spec: tt.spec}
		b.Status.DisruptedPods = tt.disrupted
		scale := func(p *corev1.Pod) (types.UID, int32, bool) { return "", 4, metav1.GetControllerOf(p).Name == "four" }
		v := judge(b, tt.pods, scale, now)
		s := v.status
		c := s.Conditions[0]
		got := fmt.Sprintf("%d/%d of %d, %d %s", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods, s.DisruptionsAllowed, c.Reason)
		if got != tt.want || v.reason != tt.event || len(s.DisruptedPods) != tt.left {
			t.Errorf("%s: %s, event %q, evicted %v; want %s, %q, %d", tt.name, got, v.reason, s.DisruptedPods, tt.want, tt.event, tt.left)
		}
		if (c.Status == metav1.ConditionTrue) != (s.DisruptionsAllowed > 0) {
			t.Errorf("%s: condition %+v", tt.name, c)
		}
		if failed := c.Reason == policyv1.SyncFailedReason; failed == (s.ObservedGeneration == 3) ||
			failed != strings.Contains(c.Message, `"a"`) {
			t.Errorf("%s: observed %d, %+v", tt.name, s.ObservedGeneration, c)
		}
		if stayed := tt.name == "evicted and still there"; stayed != (len(v.stayed) == 1) || (v.again < idle) != (tt.left > 0) {
			t.Errorf("%s: stayed %v, again in %v", tt.name, v.stayed, v.again)
		}
		b.Status = s
		if again := judge(b, tt.pods, scale, now.Add(time.Second)); fmt.Sprint(again.status) != fmt.Sprint(s) {
			t.Errorf("%s: a second look says %v, first %v", tt.name, again.status, s)
		}
	}
}

// TestBudgets follows a budget through the lives of its pods: evictions spend it, deletions and recoveries change it, and
// a board that nothing happens on writes nothing.
func TestBudgets(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		spec := minimum(1)
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		b, err := api.Create(r.ctx, r.Client, policy.PodDisruptionBudgets,
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, Spec: spec})
		must(r, b, err)
		says := func(want string) {
			t.Helper()
			synctest.Wait()
			b, err := api.Get[*policyv1.PodDisruptionBudget](r.ctx, r.Client, policy.PodDisruptionBudgets, "default", "b")
			must(r, b, err)
			s := b.Status
			if got := fmt.Sprintf("%d/%d of %d, %d, seen %d", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods, s.DisruptionsAllowed,
				s.ObservedGeneration); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		says("0/1 of 0, 0, seen 1")
		r.want("events", r.events("NoPods"), "controllermanager Normal NoPods b: No matching pods found")
		web := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
		ready := func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		}
		for _, name := range []string{"x", "y"} {
			r.pod(name, web)
			r.report(name, corev1.PodRunning, ready)
		}
		r.pod("other")
		says("2/1 of 2, 1, seen 1")
		evict := func(name string) error {
			_, err := r.Create(r.ctx, api.Pods, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}},
				api.WriteOptions{Subresource: "eviction"})
			return err
		}
		if err := evict("x"); err != nil {
			t.Fatal(err)
		}
		says("1/1 of 2, 0, seen 1")
		if err := evict("y"); err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("the last one: %v", err)
		}
		r.confirm("x")
		says("1/1 of 1, 0, seen 1")
		r.pod("x", web)
		r.report("x", corev1.PodRunning, ready)
		says("2/1 of 2, 1, seen 1")

		b, err = api.Get[*policyv1.PodDisruptionBudget](r.ctx, r.Client, policy.PodDisruptionBudgets, "default", "b")
		must(r, b, err)
		if len(b.Status.DisruptedPods) != 0 {
			t.Errorf("still listed: %v", b.Status.DisruptedPods)
		}
		r.fail("update status poddisruptionbudgets")
		two := intstr.FromInt32(2)
		b.Spec.MinAvailable = &two
		_, err = api.Update(r.ctx, r.Client, policy.PodDisruptionBudgets, b)
		must(r, b, err)
		says("2/1 of 2, 1, seen 1")
		if err := evict("x"); err == nil {
			t.Error("evicted by a budget that nobody has looked at")
		}
		r.fail("")
		r.pass(budgetRetry)
		says("2/2 of 2, 0, seen 2")
		b, err = api.Get[*policyv1.PodDisruptionBudget](r.ctx, r.Client, policy.PodDisruptionBudgets, "default", "b")
		must(r, b, err)
		r.pass(time.Hour)
		if now, err := api.Get[*policyv1.PodDisruptionBudget](r.ctx, r.Client, policy.PodDisruptionBudgets, "default", "b"); err != nil ||
			now.ResourceVersion != b.ResourceVersion {
			t.Errorf("written in a quiet hour: %v", err)
		}
	})
}

// TestBudgetsByScale: a budget in per cent counts by what the Deployment wants, also while two ReplicaSets of it have pods, and follows it.
func TestBudgetsByScale(t *testing.T) {
	deploying(t, func(r *rig) {
		spec := missing(intstr.FromString("25%"))
		spec.Selector = &metav1.LabelSelector{MatchLabels: webLabels}
		_, err := api.Create(r.ctx, r.Client, policy.PodDisruptionBudgets,
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, Spec: spec})
		must(r, (*policyv1.PodDisruptionBudget)(nil), err)
		expects := func(when string, expected, desired int32) {
			t.Helper()
			r.pass(time.Second)
			b, err := api.Get[*policyv1.PodDisruptionBudget](r.ctx, r.Client, policy.PodDisruptionBudgets, "default", "b")
			must(r, b, err)
			if s := b.Status; s.ExpectedPods != expected || s.DesiredHealthy != desired {
				t.Errorf("%s: %d of %d are to be healthy, want %d of %d: %+v", when, s.DesiredHealthy, s.ExpectedPods, desired, expected, s.Conditions)
			}
		}
		r.deployment(4, imaged("one"))
		expects("at rest", 4, 3)
		r.redeploy(imaged("two")) // none of the new pods becomes ready: both sets keep some
		r.pass(10 * time.Second)
		if sets, err := r.List(r.ctx, apps.ReplicaSets, api.ListOptions{}); err != nil || len(sets.Items) != 2 {
			t.Fatalf("%d ReplicaSets, %v", len(sets.Items), err)
		}
		expects("while it rolls out", 4, 3)
		r.redeploy(func(d *appsv1.Deployment) { n := int32(8); d.Spec.Replicas = &n })
		expects("scaled up", 8, 6)
	})
}
