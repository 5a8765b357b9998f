package apitest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/policy"
)

var budgetCases = []Case{
	{"Budget", testBudget},
	{"BudgetRefused", testBudgetRefused},
	{"BudgetStatus", testBudgetStatus},
	{"BudgetPatch", testBudgetPatch},
	{"EvictByBudget", testEvictByBudget},
	{"EvictUnready", testEvictUnready},
}

// budget is one about pods labelled app=web, of which at least one must go on.
func (e *env) budget(name string) *policyv1.PodDisruptionBudget {
	least := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
}

// counted is the word of the controller on a budget: there is none in this suite, or it comes to the same.
func (e *env) counted(name string, allowed, healthy, desired int32) *policyv1.PodDisruptionBudget {
	e.Helper()
	b := e.get(e.budget(name)).(*policyv1.PodDisruptionBudget)
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: healthy,
		DesiredHealthy: desired, ExpectedPods: healthy, Conditions: b.Status.Conditions}
	b, err := api.UpdateStatus(e.ctx, e.c, policy.PodDisruptionBudgets, b)
	e.must(err)
	return b
}

// webPod runs, ready or not.
func (e *env) webPod(name string, ready corev1.ConditionStatus) *corev1.Pod {
	e.Helper()
	p := e.boundPod(name)
	p.Labels = map[string]string{"app": "web"}
	p = e.update(p).(*corev1.Pod)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = append(p.Status.Conditions,
		corev1.PodCondition{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()})
	p, err := api.UpdateStatus(e.ctx, e.c, api.Pods, p)
	e.must(err)
	return p
}

func testBudget(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.budget("b")
	in.Status.DisruptionsAllowed = 7
	b := e.create(in).(*policyv1.PodDisruptionBudget)
	if b.Kind != "PodDisruptionBudget" || b.APIVersion != "policy/v1" || b.Generation != 1 || b.Status.DisruptionsAllowed != 0 {
		t.Errorf("made %+v", b)
	}
	w, err := c.Watch(e.ctx, policy.PodDisruptionBudgets,
		api.WatchOptions{Selection: api.Selection{Namespace: e.ns}, Revision: b.ResourceVersion})
	e.must(err)
	defer w.Close()
	always := policyv1.AlwaysAllow
	b.Spec.UnhealthyPodEvictionPolicy = &always
	b.Status.CurrentHealthy = 5
	b = e.update(b).(*policyv1.PodDisruptionBudget)
	if b.Generation != 2 || b.Status.CurrentHealthy != 0 || *b.Spec.UnhealthyPodEvictionPolicy != always {
		t.Errorf("changed to %+v", b)
	}
	if b = e.update(b).(*policyv1.PodDisruptionBudget); b.Generation != 2 {
		t.Errorf("nothing changed, and the generation is %d", b.Generation)
	}
	e.delete(b, api.DeleteOptions{})
	for _, want := range []api.EventType{api.Modified, api.Deleted} {
		got, err := w.Next()
		e.must(err)
		if got.Type != want {
			t.Errorf("%s, want %s", got.Type, want)
		}
	}
	list, err := c.List(e.ctx, policy.PodDisruptionBudgets, api.ListOptions{Selection: api.Selection{Namespace: e.ns}})
	e.must(err)
	if len(list.Items) != 0 {
		t.Errorf("left: %v", list.Items)
	}
}

func testBudgetRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	amount := func(v intstr.IntOrString) *intstr.IntOrString { return &v }
	for name, tt := range map[string]struct {
		field string
		edit  func(s *policyv1.PodDisruptionBudgetSpec)
	}{
		"both":     {"spec", func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = amount(intstr.FromInt32(1)) }},
		"negative": {"spec.minAvailable", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = amount(intstr.FromInt32(-1)) }},
		"words":    {"spec.minAvailable", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = amount(intstr.FromString("two")) }},
		"too many": {"spec.maxUnavailable", func(s *policyv1.PodDisruptionBudgetSpec) {
			s.MinAvailable, s.MaxUnavailable = nil, amount(intstr.FromString("101%"))
		}},
		"policy": {"spec.unhealthyPodEvictionPolicy", func(s *policyv1.PodDisruptionBudgetSpec) {
			p := policyv1.UnhealthyPodEvictionPolicyType("Never")
			s.UnhealthyPodEvictionPolicy = &p
		}},
		"selector": {"spec.selector.matchExpressions[0].values", func(s *policyv1.PodDisruptionBudgetSpec) {
			s.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}
		}},
	} {
		b := e.budget("b")
		tt.edit(&b.Spec)
		_, err := c.Create(e.ctx, policy.PodDisruptionBudgets, b, api.WriteOptions{})
		t.Log(name)
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), tt.field)
	}
	e.create(e.budget("b"))
	_, err := c.Update(e.ctx, policy.PodDisruptionBudgets, e.budget("b"), api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.resourceVersion")
}

func testBudgetStatus(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.budget("b"))
	b := e.counted("b", 0, 1, 1)
	other := intstr.FromInt32(9)
	b.Spec.MinAvailable = &other
	b.Status.CurrentHealthy = 2
	b, err := api.UpdateStatus(e.ctx, c, policy.PodDisruptionBudgets, b)
	e.must(err)
	if b.Status.CurrentHealthy != 2 || b.Spec.MinAvailable.IntVal != 1 || b.Generation != 1 {
		t.Errorf("got %+v", b)
	}
	b.Status.DisruptionsAllowed = -1
	_, err = api.UpdateStatus(e.ctx, c, policy.PodDisruptionBudgets, b)
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "status.disruptionsAllowed")
}

func testBudgetPatch(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.budget("b"))
	// A selector is replaced, not merged: two labels would pick other pods than either.
	patch := api.Patch{Type: types.StrategicMergePatchType,
		Data: []byte(`{"spec":{"minAvailable":"50%","selector":{"matchLabels":{"tier":"edge"}}}}`)}
	out, err := c.Patch(e.ctx, policy.PodDisruptionBudgets, e.ns, "b", patch, api.WriteOptions{})
	e.must(err)
	b := out.(*policyv1.PodDisruptionBudget)
	if b.Spec.MinAvailable.StrVal != "50%" || len(b.Spec.Selector.MatchLabels) != 1 || b.Spec.Selector.MatchLabels["tier"] != "edge" ||
		b.Generation != 2 {
		t.Errorf("got %+v", b.Spec)
	}
}

// tooMany checks Kubernetes' refusal of an eviction, and answers its cause.
func (e *env) tooMany(err error) string {
	e.Helper()
	s := e.fails(err, metav1.StatusReasonTooManyRequests, 429)
	if s.Message != "Cannot evict pod as it would violate the pod's disruption budget." || s.Details == nil || len(s.Details.Causes) != 1 ||
		s.Details.Causes[0].Type != policyv1.DisruptionBudgetCause {
		e.Fatalf("status: %+v", s)
	}
	return s.Details.Causes[0].Message
}

func testEvictByBudget(t *testing.T, c api.Client) { // N-11.2, N-11.3
	e := begin(t, c)
	e.create(e.budget("b"))
	p, q := e.webPod("p", corev1.ConditionTrue), e.webPod("q", corev1.ConditionTrue)
	e.counted("b", 1, 2, 1)
	e.must(e.evict("p", nil, api.WriteOptions{DryRun: true}))
	b := e.get(e.budget("b")).(*policyv1.PodDisruptionBudget)
	if b.Status.DisruptionsAllowed != 1 || len(b.Status.DisruptedPods) != 0 {
		t.Errorf("a dry run cost something: %+v", b.Status)
	}
	e.must(e.evict("p", nil, api.WriteOptions{}))
	if e.get(p).GetDeletionTimestamp() == nil {
		t.Error("not evicted")
	}
	b = e.counted("b", 0, 1, 1)
	if why := e.tooMany(e.evict("q", nil, api.WriteOptions{})); why != "The disruption budget b needs 1 healthy pods and has 1 currently" {
		t.Errorf("cause: %s", why)
	}
	if got := e.get(q).(*corev1.Pod); got.DeletionTimestamp != nil || condition(got, "DisruptionTarget") != nil {
		t.Errorf("changed: %+v", got)
	}
	e.must(e.evict("p", nil, api.WriteOptions{})) // it is on its way already
	waits := e.boundPod("waits")
	waits.Labels = map[string]string{"app": "web"}
	e.update(waits)
	e.must(e.evict("waits", nil, api.WriteOptions{})) // it has not begun
	e.must(e.evict(e.webPodElsewhere(), nil, api.WriteOptions{}))

	e.create(e.budget("b2"))
	err := e.evict("q", nil, api.WriteOptions{})
	if err == nil || !strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		t.Errorf("two budgets: %v", err)
	}
	e.delete(b, api.DeleteOptions{})
	e.delete(e.budget("b2"), api.DeleteOptions{})
	e.must(e.evict("q", nil, api.WriteOptions{}))
}

// webPodElsewhere is a ready pod that the budget is not about.
func (e *env) webPodElsewhere() string {
	e.Helper()
	p := e.webPod("other", corev1.ConditionTrue)
	p.Labels = map[string]string{"app": "db"}
	e.update(p)
	return "other"
}

func testEvictUnready(t *testing.T, c api.Client) { // N-11.3
	e := begin(t, c)
	b := e.create(e.budget("b")).(*policyv1.PodDisruptionBudget)
	e.webPod("p", corev1.ConditionFalse)
	e.webPod("q", corev1.ConditionFalse)
	e.counted("b", 0, 0, 1)
	if why := e.tooMany(e.evict("p", nil, api.WriteOptions{})); why != "The disruption budget b needs 1 healthy pods and has 0 currently" {
		t.Errorf("cause: %s", why)
	}
	e.counted("b", 0, 1, 1)
	e.must(e.evict("p", nil, api.WriteOptions{})) // nobody misses it
	always := policyv1.AlwaysAllow
	b = e.get(b).(*policyv1.PodDisruptionBudget)
	b.Spec.UnhealthyPodEvictionPolicy = &always
	e.update(b)
	e.counted("b", 0, 0, 1)
	e.must(e.evict("q", nil, api.WriteOptions{}))
	if b := e.get(b).(*policyv1.PodDisruptionBudget); len(b.Status.DisruptedPods) != 0 {
		t.Errorf("unready pods were counted: %+v", b.Status)
	}
}
