package apitest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/scheduling"
)

var namespaceCases = []Case{
	{"Namespace", testNamespace},
	{"NamespaceDelete", testNamespaceDelete},
	{"NamespaceTerminating", testNamespaceTerminating},
	{"NamespaceProtected", testNamespaceProtected},
}

var adminCases = []Case{
	{"Node", testNode},
	{"NodeStatus", testNodeStatus},
	{"NodeRefused", testNodeRefused},
	{"PriorityClass", testPriorityClass},
	{"PriorityClassBuiltIn", testPriorityClassBuiltIn},
}

func testNamespace(t *testing.T, c api.Client) {
	e := begin(t, c)
	ns := e.get(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}).(*corev1.Namespace)
	if ns.Labels["kubernetes.io/metadata.name"] != e.ns || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("got %+v", ns)
	}
	if len(ns.Spec.Finalizers) != 1 || ns.Spec.Finalizers[0] != corev1.FinalizerKubernetes {
		t.Errorf("finalizers: %v", ns.Spec.Finalizers)
	}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} { // N-2.10
		if _, err := c.Get(e.ctx, api.Namespaces, "", name); err != nil {
			t.Error(err)
		}
	}
	_, err := c.Create(e.ctx, api.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}}, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.name")
}

func testNamespaceDelete(t *testing.T, c api.Client) { // N-11.41
	e := begin(t, c)
	cm := e.create(e.configMap("a"))
	p := e.create(e.pod("p"))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}
	e.delete(ns, api.DeleteOptions{})
	e.gone(ns)
	for _, o := range []api.Object{cm, p} {
		_, err := c.Get(e.ctx, kindOf(o), e.ns, o.GetName())
		e.fails(err, metav1.StatusReasonNotFound, 404)
	}
	_, err := c.Create(e.ctx, api.ConfigMaps, e.configMap("a"), api.WriteOptions{})
	e.fails(err, metav1.StatusReasonNotFound, 404)
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}) // the name is free again
	if _, err := c.Get(e.ctx, api.ConfigMaps, e.ns, "a"); err == nil {
		t.Error("the content came back")
	}
}

func testNamespaceTerminating(t *testing.T, c api.Client) {
	e := begin(t, c)
	held := e.configMap("held")
	held.Finalizers = []string{"apitest.dev/hold"}
	e.create(held)
	e.create(e.configMap("free"))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}
	e.delete(ns, api.DeleteOptions{})
	e.eventually("the namespace has been emptied", func() bool {
		_, err := c.Get(e.ctx, api.ConfigMaps, e.ns, "free")
		return err != nil && e.get(held).GetDeletionTimestamp() != nil
	})
	if got := e.get(ns).(*corev1.Namespace); got.Status.Phase != corev1.NamespaceTerminating || got.DeletionTimestamp == nil {
		t.Errorf("got %+v", got)
	}
	_, err := c.Create(e.ctx, api.ConfigMaps, e.configMap("late"), api.WriteOptions{})
	s := e.fails(err, metav1.StatusReasonForbidden, 403)
	found := false
	for _, cause := range s.Details.Causes {
		found = found || cause.Type == corev1.NamespaceTerminatingCause
	}
	if !found || !strings.Contains(s.Message, "because it is being terminated") {
		t.Errorf("status: %+v", s)
	}
	last := e.get(held)
	last.SetFinalizers(nil)
	e.update(last)
	e.gone(ns)
}

func testNamespaceProtected(t *testing.T, c api.Client) { // N-11.41
	e := begin(t, c)
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		_, err := c.Delete(e.ctx, api.Namespaces, "", name, api.DeleteOptions{})
		if s := e.fails(err, metav1.StatusReasonForbidden, 403); !strings.Contains(s.Message, "this namespace may not be deleted") {
			t.Errorf("message: %s", s.Message)
		}
	}
}

// node makes a Node that no agent backs and removes it at the end.
func (e *env) node(change func(*corev1.Node)) *corev1.Node {
	e.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "apitest-"}}
	if change != nil {
		change(n)
	}
	out := e.create(n).(*corev1.Node)
	e.Cleanup(func() { _, _ = e.c.Delete(e.ctx, api.Nodes, "", out.Name, api.DeleteOptions{}) })
	return out
}

func testNode(t *testing.T, c api.Client) {
	e := begin(t, c)
	n := e.node(func(n *corev1.Node) {
		n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("110")}
	})
	tainted := false
	for _, taint := range n.Spec.Taints {
		tainted = tainted || taint.Key == corev1.TaintNodeNotReady && taint.Effect == corev1.TaintEffectNoSchedule
	}
	if !tainted {
		t.Errorf("taints: %+v", n.Spec.Taints) // N-1.6
	}
	if n.Status.Allocatable.Cpu().Value() != 4 { // N-1.10
		t.Errorf("allocatable: %+v", n.Status.Allocatable)
	}
	for _, want := range []bool{true, false} { // N-11.6, N-11.11
		data := `{"spec":{"unschedulable":null}}`
		if want {
			data = `{"spec":{"unschedulable":true}}`
		}
		out, err := e.patch(api.Nodes, "", n.Name, "application/strategic-merge-patch+json", data, api.WriteOptions{})
		e.must(err)
		if out.(*corev1.Node).Spec.Unschedulable != want {
			t.Errorf("unschedulable: %v", !want)
		}
	}
	list, err := c.List(e.ctx, api.Nodes, api.ListOptions{Selection: fieldSel("metadata.name=" + n.Name + ",spec.unschedulable=false")})
	e.must(err)
	if names(list.Items) != n.Name {
		t.Errorf("got %s", names(list.Items))
	}
}

func testNodeStatus(t *testing.T, c api.Client) { // N-1.8
	e := begin(t, c)
	n := e.node(nil)
	out, err := e.patch(api.Nodes, "", n.Name, "application/strategic-merge-patch+json",
		`{"metadata":{"labels":{"a":"b"}},"spec":{"unschedulable":true},"status":{"addresses":[{"type":"InternalIP","address":"10.1.1.1"}]}}`,
		api.WriteOptions{Subresource: "status"})
	e.must(err)
	got := out.(*corev1.Node)
	if got.Spec.Unschedulable || len(got.Status.Addresses) != 1 || got.Labels["a"] != "b" {
		t.Errorf("a status patch: %+v", got)
	}
	out, err = e.patch(api.Nodes, "", n.Name, "application/merge-patch+json",
		`{"metadata":{"labels":{"a":"c"}},"status":{"addresses":null}}`, api.WriteOptions{})
	e.must(err)
	if got := out.(*corev1.Node); len(got.Status.Addresses) != 1 || got.Labels["a"] != "c" {
		t.Errorf("a patch: %+v", got)
	}
}

func testNodeRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	_, err := c.Create(e.ctx, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "Upper"}}, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.name") // N-1.3
	n := e.node(nil)
	_, err = c.Create(e.ctx, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonAlreadyExists, 409)
	_, err = e.patch(api.Nodes, "", n.Name, "application/merge-patch+json",
		`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]}}`, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonInvalid, 422)
	_, err = e.patch(api.Nodes, "", n.Name, "application/merge-patch+json", `{"spec":{"podCIDR":"10.7.0.0/24","podCIDRs":["10.7.0.0/24"]}}`,
		api.WriteOptions{})
	e.must(err)
	for _, change := range []string{`{"spec":{"podCIDR":"10.8.0.0/24","podCIDRs":["10.8.0.0/24"]}}`, `{"spec":{"podCIDR":"10.8.0.0/24"}}`} {
		_, err = e.patch(api.Nodes, "", n.Name, "application/merge-patch+json", change, api.WriteOptions{})
		e.fails(err, metav1.StatusReasonInvalid, 422) // N-1.7
	}
}

func testPriorityClass(t *testing.T, c api.Client) { // N-10.14
	e := begin(t, c)
	pc := e.create(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "apitest-"},
		Value: 1000}).(*schedulingv1.PriorityClass)
	e.Cleanup(func() { _, _ = c.Delete(e.ctx, scheduling.PriorityClasses, "", pc.Name, api.DeleteOptions{}) })
	if pc.PreemptionPolicy == nil || *pc.PreemptionPolicy != corev1.PreemptLowerPriority {
		t.Errorf("preemptionPolicy: %v", pc.PreemptionPolicy)
	}
	p := e.pod("p")
	p.Spec.PriorityClassName = pc.Name
	if got := e.create(p).(*corev1.Pod); *got.Spec.Priority != 1000 {
		t.Errorf("priority %d", *got.Spec.Priority)
	}
	edit := pc.DeepCopy()
	edit.Value = 2000
	_, err := c.Update(e.ctx, scheduling.PriorityClasses, edit, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "value")
	e.delete(pc, api.DeleteOptions{})
	if got := e.get(p).(*corev1.Pod); *got.Spec.Priority != 1000 { // N-10.18
		t.Errorf("priority %d", *got.Spec.Priority)
	}
	for field, bad := range map[string]*schedulingv1.PriorityClass{
		"value":         {ObjectMeta: metav1.ObjectMeta{Name: "apitest-high"}, Value: 1000000001},
		"metadata.name": {ObjectMeta: metav1.ObjectMeta{Name: "system-apitest"}, Value: 1},
	} {
		_, err := c.Create(e.ctx, scheduling.PriorityClasses, bad, api.WriteOptions{})
		e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), field)
	}
}

func testPriorityClassBuiltIn(t *testing.T, c api.Client) { // N-10.15
	e := begin(t, c)
	for name, value := range map[string]int32{"system-cluster-critical": 2000000000, "system-node-critical": 2000001000} {
		pc := e.get(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}).(*schedulingv1.PriorityClass)
		if pc.Value != value {
			t.Errorf("%s is %d", name, pc.Value)
		}
		_, err := c.Delete(e.ctx, scheduling.PriorityClasses, "", name, api.DeleteOptions{})
		e.fails(err, metav1.StatusReasonForbidden, 403)
	}
}
