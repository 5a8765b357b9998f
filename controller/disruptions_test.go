package controller

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/policy"
)

// TestStale: when the mark of a disruption is taken back, as Kubernetes' controller decides it.
func TestStale(t *testing.T) {
	now := time.Unix(10_000, 0)
	marked := func(ago time.Duration, edit ...func(*corev1.Pod, *corev1.PodCondition)) *corev1.Pod {
		p := &corev1.Pod{}
		c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
			LastTransitionTime: metav1.NewTime(now.Add(-ago))}
		for _, f := range edit {
			f(p, &c)
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, c}
		return p
	}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		in     time.Duration
		marked bool
	}{
		"not marked":   {pod: &corev1.Pod{}},
		"just now":     {pod: marked(0), in: 2 * time.Minute, marked: true},
		"a while ago":  {pod: marked(90 * time.Second), in: 30 * time.Second, marked: true},
		"long ago":     {pod: marked(time.Hour), marked: true},
		"taken back":   {pod: marked(time.Hour, func(_ *corev1.Pod, c *corev1.PodCondition) { c.Status = corev1.ConditionFalse })},
		"by its agent": {pod: marked(time.Hour, func(_ *corev1.Pod, c *corev1.PodCondition) { c.Reason = "TerminationByKubelet" })},
		"being deleted": {pod: marked(time.Hour,
			func(p *corev1.Pod, _ *corev1.PodCondition) { p.DeletionTimestamp = &metav1.Time{Time: now} })},
		"over":            {pod: marked(time.Hour, func(p *corev1.Pod, _ *corev1.PodCondition) { p.Status.Phase = corev1.PodFailed })},
		"over and well":   {pod: marked(time.Hour, func(p *corev1.Pod, _ *corev1.PodCondition) { p.Status.Phase = corev1.PodSucceeded })},
		"from the future": {pod: marked(-time.Minute), in: 3 * time.Minute, marked: true},
	} {
		if in, marked := stale(c.pod, now); marked != c.marked || marked && in != c.in {
			t.Errorf("%s: %v %v, want %v %v", name, in, marked, c.in, c.marked)
		}
	}
}

// TestStaleMarks are taken back after two minutes, without a budget anywhere, and also when a write has failed.
func TestStaleMarks(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		for _, name := range []string{"p", "q"} {
			r.pod(name)
			reason := map[string]string{"p": "PreemptionByScheduler", "q": "TerminationByKubelet"}[name]
			r.report(name, corev1.PodRunning, func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					Reason: reason, Message: "m", LastTransitionTime: metav1.Now()})
			})
		}
		r.pass(2*time.Minute - time.Second)
		if c := condition(r.getPod("p"), corev1.DisruptionTarget); c.Status != corev1.ConditionTrue {
			t.Errorf("too early: %+v", c)
		}
		r.fail("update status pods")
		r.pass(2 * time.Second)
		r.fail("")
		r.pass(budgetRetry)
		if c := condition(r.getPod("p"), corev1.DisruptionTarget); c.Status != corev1.ConditionFalse || c.Reason != "" || c.Message != "" {
			t.Errorf("it stays: %+v", c)
		}
		if c := condition(r.getPod("q"), corev1.DisruptionTarget); c.Status != corev1.ConditionTrue {
			t.Errorf("its agent's word is taken back: %+v", c)
		}
	})
}

// TestDoubleBudgets: a pod that two budgets are about is told of once, again when it is another budget, and after a while in which
// there was one.
func TestDoubleBudgets(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		budget := func(name string) {
			t.Helper()
			spec := minimum(1)
			spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			b, err := api.Create(r.ctx, r.Client, policy.PodDisruptionBudgets, &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec})
			must(r, b, err)
			synctest.Wait()
		}
		r.pod("x", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} })
		r.pod("other")
		budget("b")
		r.want("one budget", r.events("MultiplePodDisruptionBudgets"))
		budget("c")
		r.report("x", corev1.PodRunning)
		r.pass(time.Minute)
		const b = `controllermanager Warning MultiplePodDisruptionBudgets x: Pod "default"/"x" matches multiple PodDisruptionBudgets.  Chose "b" arbitrarily.`
		const a = `controllermanager Warning MultiplePodDisruptionBudgets x: Pod "default"/"x" matches multiple PodDisruptionBudgets.  Chose "a" arbitrarily.`
		r.want("two budgets", r.events("MultiplePodDisruptionBudgets"), b)
		budget("a")
		r.want("another comes first", r.events("MultiplePodDisruptionBudgets"), a, b)
	})
}
