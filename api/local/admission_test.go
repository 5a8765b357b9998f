package local

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/kinds"
	"ledge/api/policy"
	"ledge/api/scheduling"
)

func ptr[T any](v T) *T { return &v }

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default"}
}

func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: node,
		Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}}}}
}

func create[T api.Object](t *testing.T, c *Client, obj T) T {
	t.Helper()
	kind, err := kinds.All.Of(obj)
	if err != nil {
		t.Fatal(err)
	}
	out, err := api.Create(t.Context(), c, kind, obj)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantCode(t *testing.T, err error, code int32, text string) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("want %d, got %v", code, err)
	}
	if s := status.Status(); s.Code != code || !strings.Contains(s.Message, text) {
		t.Errorf("want %d with %q, got %d: %s", code, text, s.Code, s.Message)
	}
}

func TestSystemObjects(t *testing.T) { // N-2.10, N-10.15
	c := open(t, Config{})
	rev := c.store.Revision()
	if err := c.EnsureSystem(); err != nil || c.store.Revision() != rev {
		t.Fatalf("a second look wrote something: %v", err)
	}
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "kube-node-lease", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), api.Namespaces, "", "kube-node-lease"); !apierrors.IsNotFound(err) {
		t.Fatalf("want 404, got %v", err)
	}
	// A lease does not wait for the next look.
	create(t, c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "kube-node-lease"}})
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "kube-node-lease", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), api.Namespaces, "", "kube-node-lease"); err != nil {
		t.Error(err)
	}
}

func TestServerTime(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)
	c := open(t, Config{Now: func() time.Time { return at }})
	got := create(t, c, newPod("p", "n"))
	if !got.CreationTimestamp.Time.Equal(at.Truncate(time.Second)) {
		t.Errorf("created at %v", got.CreationTimestamp)
	}
	out, err := c.Delete(t.Context(), api.Pods, "default", "p", api.DeleteOptions{})
	if err != nil || out.GetDeletionTimestamp().Sub(got.CreationTimestamp.Time) != 30*time.Second {
		t.Errorf("deleted at %v: %v", out.GetDeletionTimestamp(), err)
	}
}

func TestTolerations(t *testing.T) { // N-3.29
	c := open(t, Config{NotReadySeconds: ptr(int64(7)), UnreachableSeconds: ptr(int64(0))})
	p := newPod("p", "")
	p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: "Exists", Effect: "NoSchedule"}}
	got := create(t, c, p).Spec.Tolerations
	if len(got) != 3 || *got[1].TolerationSeconds != 7 || *got[2].TolerationSeconds != 0 || got[2].Key != corev1.TaintNodeUnreachable {
		t.Errorf("got %+v", got)
	}
	q := newPod("q", "")
	q.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: "Exists"},
		{Key: corev1.TaintNodeUnreachable, Operator: "Exists", Effect: "NoExecute"}}
	if got := create(t, c, q).Spec.Tolerations; len(got) != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestGlobalDefaultClass(t *testing.T) { // N-10.16, N-10.17
	c := open(t, Config{})
	class := func(name string, value int32) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: true,
			PreemptionPolicy: ptr(corev1.PreemptNever)}
	}
	create(t, c, class("a", 100))
	_, err := c.Create(t.Context(), scheduling.PriorityClasses, class("b", 50), api.WriteOptions{})
	wantCode(t, err, 403, "PriorityClass a is already marked as default. Only one default can exist")
	p := create(t, c, newPod("p", ""))
	if p.Spec.PriorityClassName != "a" || *p.Spec.Priority != 100 || *p.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("got %+v", p.Spec)
	}
	bad := newPod("q", "")
	bad.Spec.PreemptionPolicy = ptr(corev1.PreemptLowerPriority)
	_, err = c.Create(t.Context(), api.Pods, bad, api.WriteOptions{})
	wantCode(t, err, 403, "PreemptionPolicy")
	b := class("b", 50)
	b.GlobalDefault = false
	b = create(t, c, b)
	b.GlobalDefault = true
	_, err = api.Update(t.Context(), c, scheduling.PriorityClasses, b)
	wantCode(t, err, 403, "already marked as default")
}

func TestRefusedUnderAnotherName(t *testing.T) {
	c := open(t, Config{})
	_, err := c.Create(t.Context(), api.Secrets, &corev1.ConfigMap{ObjectMeta: meta("a")}, api.WriteOptions{})
	wantCode(t, err, 400, "ConfigMap")
	wrong := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}, ObjectMeta: meta("a")}
	_, err = c.Create(t.Context(), api.ConfigMaps, wrong, api.WriteOptions{})
	wantCode(t, err, 400, "does not match")
	_, err = c.Create(t.Context(), api.Pods, newPod("p", ""), api.WriteOptions{Subresource: "binding"})
	wantCode(t, err, 400, "Binding")
	_, err = c.Create(t.Context(), api.Pods, newPod("p", ""), api.WriteOptions{Subresource: "eviction"})
	wantCode(t, err, 400, "Eviction")
	for _, sub := range []string{"scale", "status"} {
		_, err = c.Update(t.Context(), api.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta("a")}, api.WriteOptions{Subresource: sub})
		wantCode(t, err, 404, "could not find the requested resource")
	}
}

func TestUnsupportedPodIsRefusedInWords(t *testing.T) {
	c := open(t, Config{})
	p := newPod("p", "")
	p.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	_, err := c.Create(t.Context(), api.Pods, p, api.WriteOptions{})
	wantCode(t, err, 422, `spec.os.name: Forbidden: "windows" is not supported by ledge yet`)
}

func TestPatchSaysWhatItDropped(t *testing.T) { // N-11.15
	c := open(t, Config{})
	create(t, c, &corev1.ConfigMap{ObjectMeta: meta("a")})
	var heard []string
	ctx := api.WithWarnings(t.Context(), once(&heard))
	patch := api.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":1}`)}
	if _, err := c.Patch(ctx, api.ConfigMaps, "default", "a", patch, api.WriteOptions{}); err != nil || len(heard) != 1 {
		t.Errorf("heard %q, %v", heard, err)
	}
	_, err := c.Patch(ctx, api.ConfigMaps, "default", "a", patch, api.WriteOptions{Strict: true})
	wantCode(t, err, 400, `strict decoding error: unknown field "spec"`)
	p := newPod("p", "")
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("100m")}
	heard = nil
	if _, err := c.Create(ctx, api.Pods, p, api.WriteOptions{}); err != nil || len(heard) != 1 {
		t.Errorf("heard %q, %v", heard, err)
	}
}

// asNode is a context of the agent of a node.
func asNode(t *testing.T, name string) context.Context {
	return api.WithUser(t.Context(), api.User{Name: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}})
}

func TestNodeRestrictionOfNodes(t *testing.T) { // N-1.36, N-1.37, N-1.38
	c := open(t, Config{})
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	ctx := asNode(t, "a")
	_, err := c.Create(ctx, api.Nodes, node("b", nil), api.WriteOptions{})
	wantCode(t, err, 403, `node "a" is not allowed to modify node "b"`)
	for _, key := range []string{"node-restriction.kubernetes.io/x", "a.node-restriction.kubernetes.io/x", "kubernetes.io/x",
		"node-role.kubernetes.io/control-plane", "x.k8s.io/y"} {
		_, err := c.Create(ctx, api.Nodes, node("a", map[string]string{key: "x"}), api.WriteOptions{})
		wantCode(t, err, 403, key)
	}
	fine := map[string]string{"kubernetes.io/hostname": "a", "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "pi",
		"x.node.kubernetes.io/y": "z", "kubelet.kubernetes.io/x": "y", "topology.kubernetes.io/zone": "z", "tier": "edge", "example.com/x": "y"}
	if _, err := c.Create(ctx, api.Nodes, node("a", fine), api.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, c, node("b", map[string]string{"kubernetes.io/x": "y"}))
	for _, spec := range []corev1.NodeSpec{{PodCIDR: "10.0.0.0/24"}, {PodCIDRs: []string{"10.0.0.0/24"}}} { // nor where its pods are
		_, err := c.Create(asNode(t, "d"), api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: spec}, api.WriteOptions{})
		wantCode(t, err, 403, "not allowed to set its pod network")
		for _, name := range []string{"a", "d"} {
			apply := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"spec":{"podCIDRs":["10.0.0.0/24"]}}`, name)
			_, err = c.Patch(asNode(t, name), api.Nodes, "", name, api.Patch{Type: types.ApplyYAMLPatchType, Data: []byte(apply)},
				api.WriteOptions{Manager: "x"})
			wantCode(t, err, 403, "not allowed to set its pod network")
		}
	}
	patch := func(ctx context.Context, name, sub, data string) error {
		_, err := c.Patch(ctx, api.Nodes, "", name, api.Patch{Type: types.MergePatchType, Data: []byte(data)}, api.WriteOptions{Subresource: sub})
		return err
	}
	for data, text := range map[string]string{
		`{"spec":{"taints":[]}}`:                          "not allowed to modify taints",
		`{"spec":{"podCIDR":"10.0.0.0/24"}}`:              "not allowed to set its pod network",
		`{"metadata":{"labels":{"kubernetes.io/x":"y"}}}`: "kubernetes.io/x",
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"y"}]}}`: "ownerReferences",
	} {
		wantCode(t, patch(ctx, "a", "", data), 403, text)
		if err := patch(t.Context(), "a", "", data); err != nil {
			t.Errorf("an operator may: %v", err)
		}
	}
	wantCode(t, patch(ctx, "a", "", `{"metadata":{"labels":{"kubernetes.io/x":null}}}`), 403, "kubernetes.io/x")
	wantCode(t, patch(ctx, "a", "status", `{"metadata":{"labels":{"kubernetes.io/x":"z"}}}`), 403, "kubernetes.io/x")
	wantCode(t, patch(ctx, "b", "status", `{"status":{"addresses":[]}}`), 403, `node "b"`)
	for _, data := range []string{`{"spec":{"unschedulable":true}}`, `{"metadata":{"labels":{"tier":"x","kubernetes.io/os":"other"}}}`} {
		if err := patch(ctx, "a", "", data); err != nil {
			t.Errorf("%s: %v", data, err)
		}
	}
	// A board takes itself out of traffic, and not back.
	in, out := `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null}}}`,
		`{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"x"}}}`
	if err := patch(ctx, "a", "", out); err != nil {
		t.Error(err)
	}
	for _, sub := range []string{"", "status"} {
		wantCode(t, patch(ctx, "a", sub, in), 403, "exclude-from-external-load-balancers")
	}
	if err := patch(t.Context(), "a", "", in); err != nil {
		t.Errorf("an operator may: %v", err)
	}
	_, err = c.Delete(ctx, api.Nodes, "", "b", api.DeleteOptions{})
	wantCode(t, err, 403, `node "b"`)
	nameless := api.WithUser(t.Context(), api.User{Name: "b", Groups: []string{"system:nodes"}})
	wantCode(t, patch(nameless, "b", "status", `{"status":{"addresses":[]}}`), 403, `node ""`)
}

func TestNodeRestrictionOfLeases(t *testing.T) { // N-1.39
	c := open(t, Config{})
	ctx := asNode(t, "a")
	lease := func(ns, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	}
	for _, l := range []*coordinationv1.Lease{lease("kube-node-lease", "b"), lease("default", "a")} {
		_, err := c.Create(ctx, coordination.Leases, l, api.WriteOptions{})
		wantCode(t, err, 403, "")
		create(t, c, l)
		_, err = c.Update(ctx, coordination.Leases, l, api.WriteOptions{})
		wantCode(t, err, 403, "")
		_, err = c.Delete(ctx, coordination.Leases, l.Namespace, l.Name, api.DeleteOptions{})
		wantCode(t, err, 403, "")
	}
	own := lease("kube-node-lease", "a")
	if _, err := c.Create(ctx, coordination.Leases, own, api.WriteOptions{}); err != nil {
		t.Error(err)
	}
	own.Spec.HolderIdentity = ptr("a")
	if _, err := c.Update(ctx, coordination.Leases, own, api.WriteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestNodeRestrictionOfPods(t *testing.T) { // N-1.40
	c := open(t, Config{})
	ctx := asNode(t, "a")
	n := create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	mirror := func() *corev1.Pod {
		p := newPod("m", "a")
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: n.UID, Controller: ptr(true)}}
		return p
	}
	for text, change := range map[string]func(*corev1.Pod){
		"can only create mirror pods": func(p *corev1.Pod) { p.Annotations = nil },
		"set to itself":               func(p *corev1.Pod) { p.Spec.NodeName = "b" },
		"single owner reference":      func(p *corev1.Pod) { p.OwnerReferences = nil },
		"owner reference set":         func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Pod" },
		"controller owner reference":  func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
		"must not set blockOwner":     func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = ptr(true) },
		"not known under the UID":     func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" },
		"reference a service account": func(p *corev1.Pod) { p.Spec.ServiceAccountName = "x" },
		"that reference secrets": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
		},
		// A secret in the environment is as good as one in a volume.
		"pods that reference secrets": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}}}
		},
		"that reference configmaps": func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}
		},
		"that reference a service account": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}}}}}}
		},
	} {
		p := mirror()
		change(p)
		_, err := c.Create(ctx, api.Pods, p, api.WriteOptions{})
		wantCode(t, err, 403, text)
	}
	if _, err := c.Create(ctx, api.Pods, mirror(), api.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	mine, other := create(t, c, newPod("mine", "a")), create(t, c, newPod("other", "b"))
	for _, p := range []*corev1.Pod{mine, other} {
		p.Status.Message = "x"
		_, err := c.Update(ctx, api.Pods, p, api.WriteOptions{Subresource: "status"})
		if p == mine && err != nil {
			t.Error(err)
		}
		if p == other {
			wantCode(t, err, 403, "can only update pod status for pods with spec.nodeName set to itself")
		}
	}
	patch := func(data, sub string) error {
		_, err := c.Patch(ctx, api.Pods, "default", "mine", api.Patch{Type: types.MergePatchType, Data: []byte(data)},
			api.WriteOptions{Subresource: sub})
		return err
	}
	wantCode(t, patch(`{"metadata":{"labels":{"a":"b"}}}`, "status"), 403, "cannot update labels")
	wantCode(t, patch(`{"metadata":{"annotations":{"a":"b"}}}`, ""), 403, "beside their status")
	evict := func(name string) error {
		_, err := c.Create(ctx, api.Pods, &policyv1.Eviction{ObjectMeta: meta(name)}, api.WriteOptions{Subresource: "eviction"})
		return err
	}
	wantCode(t, evict("other"), 403, "can only delete pods")
	if err := evict("mine"); err != nil {
		t.Error(err)
	}
	_, err := c.Delete(ctx, api.Pods, "default", "other", api.DeleteOptions{})
	wantCode(t, err, 403, "can only delete pods")
	if _, err := c.Delete(ctx, api.Pods, "default", "mine", api.DeleteOptions{Grace: ptr(int64(0))}); err != nil {
		t.Error(err)
	}
	create(t, c, newPod("free", ""))
	_, err = c.Create(ctx, api.Pods, &corev1.Binding{ObjectMeta: meta("free"), Target: corev1.ObjectReference{Name: "a"}},
		api.WriteOptions{Subresource: "binding"})
	wantCode(t, err, 403, "bind")
}

// Beside its Node, Lease, pods and events an agent writes nothing.
func TestNodeRestrictionOfTheRest(t *testing.T) {
	c := open(t, Config{})
	ctx := asNode(t, "a")
	event := &corev1.Event{ObjectMeta: meta("e"), InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "a", UID: "a"}}
	_, err := c.Create(ctx, api.Events, event, api.WriteOptions{})
	wantCode(t, err, 403, "can only write events with source.host or reportingInstance set to itself")
	event.Source.Host = "a"
	if _, err := c.Create(ctx, api.Events, event, api.WriteOptions{}); err != nil {
		t.Error(err)
	}
	event.Count = 2
	if _, err := c.Update(ctx, api.Events, event, api.WriteOptions{}); err != nil {
		t.Error(err)
	}
	_, err = c.Update(asNode(t, "b"), api.Events, event, api.WriteOptions{})
	wantCode(t, err, 403, "can only write events")
	for _, o := range []api.Object{
		&corev1.ConfigMap{ObjectMeta: meta("x")}, &corev1.Secret{ObjectMeta: meta("x")},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
	} {
		kind, _ := kinds.All.Of(o)
		_, err := c.Create(ctx, kind, o, api.WriteOptions{})
		wantCode(t, err, 403, "is not allowed to modify")
		create(t, c, o)
		o.SetLabels(map[string]string{"a": "b"})
		_, err = c.Update(ctx, kind, o, api.WriteOptions{})
		wantCode(t, err, 403, "is not allowed to modify")
		_, err = c.Delete(ctx, kind, o.GetNamespace(), o.GetName(), api.DeleteOptions{})
		wantCode(t, err, 403, "is not allowed to delete")
	}
}

func metav1Name(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// TestBudgetSpent: an eviction is taken off the budget in the same step, and one that its controller has not looked at
// yet lets nobody go (N-11.3).
func TestBudgetSpent(t *testing.T) {
	c := open(t, Config{})
	least := intstr.FromInt32(1)
	var warned []string
	ctx := api.WithWarnings(t.Context(), once(&warned))
	b := &policyv1.PodDisruptionBudget{ObjectMeta: meta("b"),
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{}}}
	b, err := api.Create(ctx, c, policy.PodDisruptionBudgets, b)
	if err != nil || len(warned) != 0 {
		t.Fatal(err, warned)
	}
	p := create(t, c, newPod("p", "n"))
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p, err = api.UpdateStatus(ctx, c, api.Pods, p)
	if err != nil {
		t.Fatal(err)
	}
	evict := func(uid types.UID) error {
		_, err := c.Create(ctx, api.Pods, &policyv1.Eviction{ObjectMeta: meta("p"), DeleteOptions: &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid}}}, api.WriteOptions{Subresource: "eviction"})
		return err
	}
	err = evict(p.UID)
	wantCode(t, err, 429, "Cannot evict pod")
	if s := err.(apierrors.APIStatus).Status(); s.Details.RetryAfterSeconds != 10 ||
		!strings.Contains(s.Details.Causes[0].Message, "still being processed") {
		t.Errorf("details: %+v", s.Details)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1,
		ExpectedPods: 2}
	if _, err := api.UpdateStatus(ctx, c, policy.PodDisruptionBudgets, b); err != nil {
		t.Fatal(err)
	}
	spent := func() policyv1.PodDisruptionBudgetStatus {
		b, err := api.Get[*policyv1.PodDisruptionBudget](ctx, c, policy.PodDisruptionBudgets, "default", "b")
		if err != nil {
			t.Fatal(err)
		}
		return b.Status
	}
	wantCode(t, evict("other"), 409, "")
	if s := spent(); s.DisruptionsAllowed != 1 {
		t.Errorf("an eviction that failed cost something: %+v", s)
	}
	if err := evict(p.UID); err != nil {
		t.Fatal(err)
	}
	s := spent()
	if _, listed := s.DisruptedPods["p"]; s.DisruptionsAllowed != 0 || !listed || len(s.Conditions) != 1 ||
		s.Conditions[0].Reason != policyv1.InsufficientPodsReason || s.Conditions[0].Status != metav1.ConditionFalse {
		t.Errorf("status: %+v", s)
	}
	half := intstr.FromString("50%")
	_, err = api.Create(ctx, c, policy.PodDisruptionBudgets,
		&policyv1.PodDisruptionBudget{ObjectMeta: meta("half"), Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &half}})
	if err != nil || len(warned) != 1 || !strings.Contains(warned[0], "set an integer minAvailable") {
		t.Errorf("%v, warnings %q", err, warned)
	}
}
