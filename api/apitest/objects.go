package apitest

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/coordination"
)

var objectCases = []Case{
	{"Create", testCreate},
	{"CreateRefused", testCreateRefused},
	{"GenerateName", testGenerateName},
	{"Get", testGet},
	{"Update", testUpdate},
	{"UpdateChangesNothing", testUpdateChangesNothing},
	{"CompareAndSwap", testCompareAndSwap},
	{"ConcurrentWriters", testConcurrentWriters},
	{"Delete", testDelete},
	{"Finalizers", testFinalizers},
	{"DryRun", testDryRun},
	{"OwnCopies", testOwnCopies},
	{"MicroTime", testMicroTime},
	{"SecretStringData", testSecretStringData},
}

func testCreate(t *testing.T, c api.Client) {
	e := begin(t, c)
	in := e.configMap("a", "k", "v")
	in.Labels = map[string]string{"app": "x"}
	in.UID, in.Generation = "not-mine-to-say", 7
	before := in.DeepCopy()
	out := e.create(in).(*corev1.ConfigMap)
	if !apiequality.Semantic.DeepEqual(in, before) {
		t.Errorf("the caller's object was changed: %+v", in)
	}
	if out.UID == "" || out.UID == in.UID || out.CreationTimestamp.IsZero() || out.ResourceVersion == "" {
		t.Errorf("metadata: %+v", out.ObjectMeta)
	}
	if out.Kind != "ConfigMap" || out.APIVersion != "v1" {
		t.Errorf("got kind %q of %q", out.Kind, out.APIVersion)
	}
	if out.Data["k"] != "v" || out.Labels["app"] != "x" {
		t.Errorf("content: %+v", out)
	}
	if got := e.get(in); !apiequality.Semantic.DeepEqual(strip(got), strip(out)) {
		t.Errorf("create answered %+v, get %+v", out, got)
	}
}

// strip removes what a real API server adds that ledge does not keep.
func strip(o api.Object) api.Object {
	o.SetManagedFields(nil)
	return o
}

func testCreateRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.configMap("a"))
	create := func(o api.Object) error {
		_, err := c.Create(e.ctx, kindOf(o), o, api.WriteOptions{})
		return err
	}
	s := e.fails(create(e.configMap("a")), metav1.StatusReasonAlreadyExists, 409)
	if s.Details == nil || s.Details.Name != "a" || s.Details.Kind != "configmaps" {
		t.Errorf("details: %+v", s.Details)
	}
	e.hasCause(e.fails(create(e.configMap("A_b")), metav1.StatusReasonInvalid, 422), "metadata.name")
	e.fails(create(e.configMap("")), metav1.StatusReasonInvalid, 422)
	old := e.configMap("b")
	old.ResourceVersion = "12345"
	if err := create(old); err == nil {
		t.Error("an object with a resourceVersion was created")
	}
	homeless := e.configMap("c")
	homeless.Namespace = "apitest-no-such-namespace"
	s = e.fails(create(homeless), metav1.StatusReasonNotFound, 404)
	if s.Details == nil || s.Details.Kind != "namespaces" {
		t.Errorf("details: %+v", s.Details)
	}
	_, err := c.Create(e.ctx, api.ConfigMaps, e.configMap("d"), api.WriteOptions{Subresource: "status"})
	if err == nil {
		t.Error("a subresource that does not exist was created")
	}
}

func testGenerateName(t *testing.T, c api.Client) {
	e := begin(t, c)
	seen := map[string]bool{}
	for range 20 {
		cm := e.configMap("")
		cm.GenerateName = "prefix-"
		name := e.create(cm).GetName()
		if !strings.HasPrefix(name, "prefix-") || len(name) != len("prefix-")+5 || seen[name] {
			t.Fatalf("got %q after %v", name, seen)
		}
		seen[name] = true
	}
	cm := e.configMap("")
	cm.GenerateName = strings.Repeat("a", 100)
	if name := e.create(cm).GetName(); len(name) > 253 || !strings.HasPrefix(name, strings.Repeat("a", 50)) {
		t.Errorf("got %q", name)
	}
}

func testGet(t *testing.T, c api.Client) {
	e := begin(t, c)
	_, err := c.Get(e.ctx, api.ConfigMaps, e.ns, "a")
	s := e.fails(err, metav1.StatusReasonNotFound, 404)
	if s.Details == nil || s.Details.Name != "a" || s.Details.Kind != "configmaps" ||
		!strings.Contains(s.Message, `configmaps "a" not found`) {
		t.Errorf("status: %+v", s)
	}
	_, err = c.Get(e.ctx, coordination.Leases, e.ns, "a")
	if s = e.fails(err, metav1.StatusReasonNotFound, 404); s.Details.Group != "coordination.k8s.io" {
		t.Errorf("details: %+v", s.Details)
	}
}

func testUpdate(t *testing.T, c api.Client) {
	e := begin(t, c)
	was := e.create(e.configMap("a", "k", "1")).(*corev1.ConfigMap)
	in := was.DeepCopy()
	in.Data["k"] = "2"
	in.Labels = map[string]string{"app": "x"}
	in.CreationTimestamp = metav1.Time{}
	out := e.update(in).(*corev1.ConfigMap)
	if out.Data["k"] != "2" || out.Labels["app"] != "x" || out.ResourceVersion == was.ResourceVersion {
		t.Errorf("got %+v", out)
	}
	if out.UID != was.UID || !out.CreationTimestamp.Equal(&was.CreationTimestamp) {
		t.Errorf("the server's fields moved: %+v", out.ObjectMeta)
	}
	if rv(t, out) <= rv(t, was) {
		t.Errorf("resourceVersion went from %s to %s", was.ResourceVersion, out.ResourceVersion)
	}
	_, err := c.Update(e.ctx, api.ConfigMaps, e.configMap("b"), api.WriteOptions{})
	e.fails(err, metav1.StatusReasonNotFound, 404) // no create on update (N-1.9)
	bad := out.DeepCopy()
	bad.Labels = map[string]string{"app": "not a value"}
	_, err = c.Update(e.ctx, api.ConfigMaps, bad, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.labels")
}

// rv reads a revision. Kubernetes calls it opaque, and promises since 1.35 that it can be compared.
func rv(t *testing.T, o api.Object) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatalf("resourceVersion %q: %v", o.GetResourceVersion(), err)
	}
	return n
}

// An update that changes nothing is no change: nothing is written and no watcher is told.
func testUpdateChangesNothing(t *testing.T, c api.Client) {
	e := begin(t, c)
	was := e.create(e.configMap("a", "k", "1"))
	out := e.update(e.get(was))
	if out.GetResourceVersion() != was.GetResourceVersion() {
		t.Errorf("resourceVersion went from %s to %s", was.GetResourceVersion(), out.GetResourceVersion())
	}
}

func testCompareAndSwap(t *testing.T, c api.Client) { // N-11.32
	e := begin(t, c)
	first := e.create(e.configMap("a", "k", "1")).(*corev1.ConfigMap)
	second := first.DeepCopy()
	second.Data["k"] = "2"
	e.update(second)

	stale := first.DeepCopy()
	stale.Data["k"] = "3"
	_, err := c.Update(e.ctx, api.ConfigMaps, stale, api.WriteOptions{})
	s := e.fails(err, metav1.StatusReasonConflict, 409)
	if !strings.Contains(s.Message, "the object has been modified; please apply your changes to the latest version and try again") {
		t.Errorf("message: %s", s.Message)
	}
	stale.ResourceVersion = "" // unconditional (N-1.9)
	if got := e.update(stale).(*corev1.ConfigMap); got.Data["k"] != "3" {
		t.Errorf("got %+v", got)
	}
	other := e.get(first)
	other.SetUID("00000000-0000-0000-0000-000000000000")
	_, err = c.Update(e.ctx, api.ConfigMaps, other, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonConflict, 409)
}

// Many writers that retry on conflict lose no update.
func testConcurrentWriters(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.configMap("a", "n", "0"))
	const writers, each = 5, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				cm, err := api.Get[*corev1.ConfigMap](e.ctx, c, api.ConfigMaps, e.ns, "a")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(cm.Data["n"])
				cm.Data["n"] = strconv.Itoa(n + 1)
				_, err = api.Update(e.ctx, c, api.ConfigMaps, cm)
				switch {
				case err == nil:
					done++
				case !apierrors.IsConflict(err):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := e.get(e.configMap("a")).(*corev1.ConfigMap).Data["n"]; got != strconv.Itoa(writers*each) {
		t.Errorf("got %s of %d", got, writers*each)
	}
}

func testDelete(t *testing.T, c api.Client) {
	e := begin(t, c)
	_, err := c.Delete(e.ctx, api.ConfigMaps, e.ns, "a", api.DeleteOptions{})
	e.fails(err, metav1.StatusReasonNotFound, 404)
	cm := e.create(e.configMap("a"))
	other, stale := types.UID("other"), "1"
	_, err = c.Delete(e.ctx, api.ConfigMaps, e.ns, "a", api.DeleteOptions{UID: &other})
	e.fails(err, metav1.StatusReasonConflict, 409) // N-7.25
	_, err = c.Delete(e.ctx, api.ConfigMaps, e.ns, "a", api.DeleteOptions{Revision: &stale})
	e.fails(err, metav1.StatusReasonConflict, 409)
	uid, now := cm.GetUID(), cm.GetResourceVersion()
	e.delete(cm, api.DeleteOptions{UID: &uid, Revision: &now})
	e.gone(cm)
	again := e.create(e.configMap("a"))
	if again.GetUID() == cm.GetUID() {
		t.Error("a new object has the uid of the old one")
	}
}

func testFinalizers(t *testing.T, c api.Client) { // N-11.40
	e := begin(t, c)
	in := e.configMap("a")
	in.Finalizers = []string{"apitest.dev/hold"}
	e.create(in)
	e.delete(in, api.DeleteOptions{})
	held := e.get(in).(*corev1.ConfigMap)
	if held.DeletionTimestamp == nil {
		t.Fatalf("not marked: %+v", held.ObjectMeta)
	}
	e.delete(in, api.DeleteOptions{}) // again: changes nothing
	more := held.DeepCopy()
	more.Finalizers = append(more.Finalizers, "apitest.dev/more")
	_, err := c.Update(e.ctx, api.ConfigMaps, more, api.WriteOptions{})
	e.hasCause(e.fails(err, metav1.StatusReasonInvalid, 422), "metadata.finalizers")
	alive := held.DeepCopy()
	alive.DeletionTimestamp = nil
	alive.Data = map[string]string{"still": "writable"}
	if got := e.update(alive); got.GetDeletionTimestamp() == nil {
		t.Error("an update took the mark away")
	}
	last := e.get(in)
	last.SetFinalizers(nil)
	e.update(last)
	e.gone(in)
}

func testDryRun(t *testing.T, c api.Client) { // N-11.45
	e := begin(t, c)
	dry := api.WriteOptions{DryRun: true}
	out, err := c.Create(e.ctx, api.ConfigMaps, e.configMap("a", "k", "1"), dry)
	e.must(err)
	if out.GetUID() == "" {
		t.Errorf("a dry run answers what would be: %+v", out)
	}
	_, err = c.Get(e.ctx, api.ConfigMaps, e.ns, "a")
	e.fails(err, metav1.StatusReasonNotFound, 404)
	_, err = c.Create(e.ctx, api.ConfigMaps, e.configMap("A_b"), dry)
	e.fails(err, metav1.StatusReasonInvalid, 422)

	was := e.create(e.configMap("a", "k", "1")).(*corev1.ConfigMap)
	edit := was.DeepCopy()
	edit.Data["k"] = "2"
	out, err = c.Update(e.ctx, api.ConfigMaps, edit, dry)
	e.must(err)
	if out.(*corev1.ConfigMap).Data["k"] != "2" {
		t.Errorf("got %+v", out)
	}
	_, err = c.Patch(e.ctx, api.ConfigMaps, e.ns, "a", api.Patch{Type: types.MergePatchType, Data: []byte(`{"data":{"k":"3"}}`)}, dry)
	e.must(err)
	_, err = c.Delete(e.ctx, api.ConfigMaps, e.ns, "a", api.DeleteOptions{DryRun: true})
	e.must(err)
	if got := e.get(was).(*corev1.ConfigMap); got.Data["k"] != "1" || got.ResourceVersion != was.ResourceVersion {
		t.Errorf("a dry run changed %+v", got)
	}
}

// What a client hands out is the caller's: changing it changes nobody else's.
func testOwnCopies(t *testing.T, c api.Client) {
	e := begin(t, c)
	out := e.create(e.configMap("a", "k", "1")).(*corev1.ConfigMap)
	out.Data["k"] = "spoiled"
	got := e.get(out).(*corev1.ConfigMap)
	got.Data["k"] = "spoiled"
	list, err := c.List(e.ctx, api.ConfigMaps, api.ListOptions{Selection: api.Selection{Namespace: e.ns}})
	e.must(err)
	for _, o := range list.Items {
		o.SetLabels(map[string]string{"spoiled": "yes"})
	}
	if got := e.get(out).(*corev1.ConfigMap); got.Data["k"] != "1" || got.Labels["spoiled"] != "" {
		t.Errorf("got %+v", got)
	}
}

func testMicroTime(t *testing.T, c api.Client) { // N-2.1
	e := begin(t, c)
	at := metav1.MicroTime{Time: metav1.Unix(1700000000, 123456000).UTC()}
	seconds := int32(40)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: e.ns},
		Spec: coordinationv1.LeaseSpec{RenewTime: &at, LeaseDurationSeconds: &seconds}}
	e.create(lease)
	got := e.get(lease).(*coordinationv1.Lease)
	if !got.Spec.RenewTime.Equal(&at) {
		t.Errorf("got %v, want %v", got.Spec.RenewTime, at)
	}
	later := metav1.MicroTime{Time: at.Add(1000)}
	got.Spec.RenewTime = &later
	if again := e.update(got).(*coordinationv1.Lease); !again.Spec.RenewTime.Equal(&later) || again.ResourceVersion == lease.ResourceVersion {
		t.Errorf("got %+v", again)
	}
}

func testSecretStringData(t *testing.T, c api.Client) {
	e := begin(t, c)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: e.ns},
		Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")}, StringData: map[string]string{"b": "3"}}
	e.create(s)
	got := e.get(s).(*corev1.Secret)
	if string(got.Data["a"]) != "1" || string(got.Data["b"]) != "3" || got.StringData != nil || got.Type != corev1.SecretTypeOpaque {
		t.Errorf("got %+v", got)
	}
}
