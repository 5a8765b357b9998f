package local

import (
	"context"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// clock is a time that a test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func start() *clock { return &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)} }

func TestGrace(t *testing.T) { // N-7.23, N-7.24
	at := start()
	c := open(t, Config{Now: at.now})
	del := func(name string, grace *int64) *corev1.Pod {
		t.Helper()
		out, err := c.Delete(t.Context(), api.Pods, "default", name, api.DeleteOptions{Grace: grace})
		if err != nil {
			t.Fatal(err)
		}
		return out.(*corev1.Pod)
	}
	check := func(p *corev1.Pod, grace int64, end time.Time) {
		t.Helper()
		if *p.DeletionGracePeriodSeconds != grace || !p.DeletionTimestamp.Time.Equal(end) {
			t.Errorf("%d until %v, want %d until %v", *p.DeletionGracePeriodSeconds, p.DeletionTimestamp, grace, end)
		}
	}
	negative := newPod("negative", "n")
	negative.Spec.TerminationGracePeriodSeconds = ptr(int64(-5))
	create(t, c, negative)
	check(del("negative", nil), 1, at.Add(time.Second))

	create(t, c, newPod("asked", "n"))
	check(del("asked", ptr(int64(-7))), 1, at.Add(time.Second))

	begun := at.Time
	create(t, c, newPod("p", "n"))
	check(del("p", ptr(int64(100))), 100, begun.Add(100*time.Second))
	at.Time = at.Add(20 * time.Second)
	check(del("p", ptr(int64(50))), 50, begun.Add(50*time.Second))
	check(del("p", ptr(int64(5))), 5, at.Time) // its end would be past: now
	check(del("p", ptr(int64(-1))), 1, at.Time)
	del("p", ptr(int64(0)))
	if _, err := c.Get(t.Context(), api.Pods, "default", "p"); !apierrors.IsNotFound(err) {
		t.Errorf("want 404, got %v", err)
	}
}

func TestBinding(t *testing.T) { // N-10.2
	at := start()
	c := open(t, Config{Now: at.now})
	bind := func(b corev1.Binding, name string) error {
		b.Name, b.Namespace = name, "default"
		b.Target.Name = "n"
		_, err := c.Create(t.Context(), api.Pods, &b, api.WriteOptions{Subresource: "binding"})
		return err
	}
	p := newPod("p", "")
	p.Finalizers = []string{"a.b/c"}
	p = create(t, c, p)
	wantCode(t, bind(corev1.Binding{ObjectMeta: metav1.ObjectMeta{UID: "other"}}, "p"), 409, "UID in precondition")
	wantCode(t, bind(corev1.Binding{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}, "p"), 409, "has been modified")
	wantCode(t, bind(corev1.Binding{Target: corev1.ObjectReference{Kind: "Pod"}}, "p"), 422, "target.kind")

	// A condition that was false turns true now; one that was true already keeps its time.
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
		LastTransitionTime: metav1.NewTime(at.Add(-time.Hour))}}
	p.Status.NominatedNodeName = "m"
	if _, err := api.UpdateStatus(t.Context(), c, api.Pods, p); err != nil {
		t.Fatal(err)
	}
	if err := bind(corev1.Binding{ObjectMeta: metav1.ObjectMeta{UID: p.UID, Annotations: map[string]string{"a": "b"}}}, "p"); err != nil {
		t.Fatal(err)
	}
	got, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", "p")
	if err != nil {
		t.Fatal(err)
	}
	cond := got.Status.Conditions[0]
	if got.Annotations["a"] != "b" || got.Generation != p.Generation || cond.Reason != "" || !cond.LastTransitionTime.Time.Equal(at.Time) ||
		got.Status.NominatedNodeName != "" {
		t.Errorf("got %+v", got)
	}
	list := setCondition(got.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		metav1.NewTime(at.Add(time.Hour)))
	if len(list) != 1 || !list[0].LastTransitionTime.Time.Equal(at.Time) {
		t.Errorf("got %+v", list)
	}

	going := newPod("going", "")
	going.Finalizers = []string{"a.b/c"}
	create(t, c, going)
	if _, err := c.Delete(t.Context(), api.Pods, "default", "going", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, bind(corev1.Binding{}, "going"), 409, "is being deleted, cannot be assigned to a host")
}

// Through the status one changes labels and annotations, and nothing else of the metadata (N-1.8).
func TestStatusKeepsMetadata(t *testing.T) {
	c := open(t, Config{})
	p := newPod("p", "n")
	p.Finalizers = []string{"a.b/c"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
	create(t, c, p)
	out, err := c.Patch(t.Context(), api.Pods, "default", "p", api.Patch{Type: types.MergePatchType,
		Data: []byte(`{"metadata":{"finalizers":[],"ownerReferences":[],"annotations":{"a":"b"}}}`)}, api.WriteOptions{Subresource: "status"})
	if err != nil || len(out.GetFinalizers()) != 1 || len(out.GetOwnerReferences()) != 1 || out.GetAnnotations()["a"] != "b" {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestServerFields(t *testing.T) {
	c := open(t, Config{})
	cm := &corev1.ConfigMap{ObjectMeta: meta("a")}
	cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "me", Operation: "Apply", FieldsType: "FieldsV1"}}
	cm.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	cm.SetSelfLink("/x")
	got := create(t, c, cm)
	if len(got.ManagedFields) > 0 || got.DeletionTimestamp != nil || got.GetSelfLink() != "" {
		t.Errorf("got %+v", got.ObjectMeta)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(string(got.UID)) {
		t.Errorf("uid %s", got.UID)
	}
}

// Who has hung up changes nothing any more.
func TestCancelledRequestsWriteNothing(t *testing.T) {
	c := open(t, Config{})
	create(t, c, &corev1.ConfigMap{ObjectMeta: meta("a")})
	rev := c.store.Revision()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Create(over, api.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta("b")}, api.WriteOptions{})
	wantCode(t, err, 504, "canceled")
	_, err = c.Delete(over, api.ConfigMaps, "default", "a", api.DeleteOptions{})
	wantCode(t, err, 504, "canceled")
	_, err = c.Watch(over, api.ConfigMaps, api.WatchOptions{})
	wantCode(t, err, 504, "canceled")
	_, err = c.List(over, api.ConfigMaps, api.ListOptions{})
	wantCode(t, err, 504, "canceled")
	if c.store.Revision() != rev {
		t.Error("something was written")
	}
}

// TestGatedPod: a pod behind scheduling gates says so from the beginning and cannot be given a node (N-10.4).
func TestGatedPod(t *testing.T) {
	c := open(t, Config{})
	p := newPod("p", "")
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	got, err := api.Create(t.Context(), c, api.Pods, p)
	if err != nil {
		t.Fatal(err)
	}
	if cond := got.Status.Conditions; len(cond) != 1 || cond[0].Type != corev1.PodScheduled ||
		cond[0].Reason != corev1.PodReasonSchedulingGated {
		t.Errorf("conditions %+v", cond)
	}
	bind := func() error {
		_, err := c.Create(t.Context(), api.Pods, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Target: corev1.ObjectReference{Name: "n"}}, api.WriteOptions{Subresource: "binding"})
		return err
	}
	wantCode(t, bind(), 409, "has non-empty .spec.schedulingGates")
	got.Spec.SchedulingGates = nil
	if got, err = api.Update(t.Context(), c, api.Pods, got); err != nil || got.Generation != 2 {
		t.Fatalf("generation %d, %v", got.Generation, err)
	}
	if err := bind(); err != nil {
		t.Error(err)
	}
}

// Kubernetes leaves out without a word what a resize changes beside the resources; here it is refused, as any field is that
// has no effect.
func TestResizeOfSomethingElse(t *testing.T) {
	c := open(t, Config{})
	create(t, c, newPod("p", "n"))
	for _, data := range []string{`{"spec":{"containers":[{"name":"c","image":"other"}]}}`, `{"spec":{"activeDeadlineSeconds":5}}`} {
		_, err := c.Patch(t.Context(), api.Pods, "default", "p", api.Patch{Type: types.StrategicMergePatchType, Data: []byte(data)},
			api.WriteOptions{Subresource: api.Resize})
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", data, err)
		}
	}
}

// Kubernetes answers 500 to these, when it finds them late; who asks should hear that it is a mistake.
func TestMistakesAreTheCallers(t *testing.T) {
	c := open(t, Config{})
	create(t, c, newPod("p", ""))
	_, err := c.Create(t.Context(), api.Pods, &corev1.Binding{ObjectMeta: meta("p")}, api.WriteOptions{Subresource: "binding"})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a binding to no node: %v", err)
	}
	_, err = c.Patch(t.Context(), api.ConfigMaps, "default", "a", api.Patch{Type: types.ApplyYAMLPatchType,
		Data: []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"dota":{}}`)}, api.WriteOptions{Manager: "one"})
	if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		t.Errorf("an apply of an unknown field: %v", err)
	}
}
