package local

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/scheduling"
	"ledge/storage"
)

func in(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

// A namespace goes in the same transaction as the last thing in it: no moment and no crash can leave an empty
// one behind (N-11.41).
func TestNamespaceGoesWithItsLastPod(t *testing.T) {
	c := open(t, Config{})
	create(t, c, &corev1.Namespace{ObjectMeta: metav1Name("x")})
	for _, name := range []string{"p", "q"} {
		p := newPod(name, "n")
		p.Namespace = "x"
		create(t, c, p)
	}
	create(t, c, &corev1.ConfigMap{ObjectMeta: in("x", "c")})
	out, err := c.Delete(t.Context(), api.Namespaces, "", "x", api.DeleteOptions{})
	if err != nil || out.(*corev1.Namespace).Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("got %+v, %v", out, err)
	}
	left := func(kind *api.Kind) int {
		l, err := c.List(t.Context(), kind, api.ListOptions{Selection: api.Selection{Namespace: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		return len(l.Items)
	}
	// Pods go first: what they use is there until they have ended.
	if left(api.ConfigMaps) == 0 || left(api.Pods) != 2 {
		t.Errorf("%d config maps, %d pods", left(api.ConfigMaps), left(api.Pods))
	}
	waits := map[corev1.NamespaceConditionType]string{}
	for _, cond := range out.(*corev1.Namespace).Status.Conditions {
		waits[cond.Type] = string(cond.Status) + " " + cond.Message
	}
	if got := waits[corev1.NamespaceContentRemaining]; !strings.HasPrefix(got, "True ") ||
		!strings.Contains(got, "pods has 2 resource instances") ||
		!strings.HasPrefix(waits[corev1.NamespaceDeletionContentFailure], "False ") {
		t.Errorf("conditions %v", waits)
	}
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "x", api.DeleteOptions{}); err != nil {
		t.Errorf("a second delete: %v", err)
	}
	for _, name := range []string{"p", "q"} {
		if _, err := c.Get(t.Context(), api.Namespaces, "", "x"); err != nil {
			t.Fatalf("gone before %s: %v", name, err)
		}
		if _, err := c.Delete(t.Context(), api.Pods, "x", name, api.DeleteOptions{Grace: ptr(int64(0))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(t.Context(), api.Namespaces, "", "x"); !apierrors.IsNotFound(err) {
		t.Errorf("want 404, got %v", err)
	}
}

// TestNamespaceOfMany: what a pod of a namespace costs that is going does not grow with their number, and what is left is told.
func TestNamespaceOfMany(t *testing.T) {
	end := func(pods int) uint64 {
		c := open(t, Config{})
		create(t, c, &corev1.Namespace{ObjectMeta: metav1Name("x")})
		for i := range pods {
			p := newPod(fmt.Sprint("p", i), "n")
			p.Namespace = "x"
			create(t, c, p)
		}
		remove(t, c, api.Namespaces, "", "x")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range pods - few - 1 {
			if _, err := c.Delete(t.Context(), api.Pods, "x", fmt.Sprint("p", i), api.DeleteOptions{Grace: ptr(int64(0))}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		remaining := func() string {
			ns, err := api.Get[*corev1.Namespace](t.Context(), c, api.Namespaces, "", "x")
			if err != nil {
				t.Fatal(err)
			}
			for _, cond := range ns.Status.Conditions {
				if cond.Type == corev1.NamespaceContentRemaining {
					return cond.Message
				}
			}
			return ""
		}
		err := endNamespaces(t.Context(), c)
		if want := fmt.Sprintf("pods has %d resource instances", few+1); err != nil || !strings.Contains(remaining(), want) {
			t.Errorf("left: %s, %v", remaining(), err)
		}
		for i := pods - few - 1; i < pods; i++ {
			if want := fmt.Sprintf("pods has %d resource instances", pods-i); !strings.Contains(remaining(), want) {
				t.Errorf("%s, want %s", remaining(), want)
			}
			if _, err := c.Delete(t.Context(), api.Pods, "x", fmt.Sprint("p", i), api.DeleteOptions{Grace: ptr(int64(0))}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Get(t.Context(), api.Namespaces, "", "x"); !apierrors.IsNotFound(err) {
			t.Errorf("want 404, got %v", err)
		}
		return (after.Mallocs - before.Mallocs) / uint64(pods-few-1)
	}
	if less, more := end(40), end(160); more > 2*less {
		t.Errorf("the end of a pod takes %d allocations among 160, and %d among 40", more, less)
	}
}

// TestNamespaceOfHeavyPods: whoever writes beside the end of a namespace waits for one step of it, and no step looks at more than
// lookAtOnce. All steps together look at each pod a number of times that does not grow with the namespace.
func TestNamespaceOfHeavyPods(t *testing.T) {
	const heavy = 32 << 10
	full := func(pods int) *Client {
		c := open(t, Config{})
		create(t, c, &corev1.Namespace{ObjectMeta: metav1Name("x")})
		for i := range pods {
			p := newPod(fmt.Sprintf("p%03d", i), "n")
			p.Namespace, p.Annotations = "x", map[string]string{"a": strings.Repeat("x", heavy)}
			create(t, c, p)
		}
		create(t, c, &corev1.ConfigMap{ObjectMeta: in("x", "c")})
		remove(t, c, api.Namespaces, "", "x")
		return c
	}
	end := func(pods int) uint64 {
		c := full(pods)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := endNamespaces(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		l, err := c.List(t.Context(), api.Pods, api.ListOptions{Selection: api.Selection{Namespace: "x"}})
		if err != nil || len(l.Items) != pods {
			t.Fatalf("%d pods, %v", len(l.Items), err)
		}
		for _, p := range l.Items {
			if p.GetDeletionTimestamp() == nil {
				t.Errorf("%s is not going", p.GetName())
			}
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if less, more := end(64), end(256); more > 5*less {
		t.Errorf("the end takes %d bytes for 256 pods, and %d for 64", more, less)
	}

	c, at, steps := full(128), walk{}, 0
	for end := false; !end; steps++ {
		next := at.clone()
		err := c.store.Update(func(tx *storage.Tx) error {
			ns, err := tx.Get(api.Namespaces, "", "x")
			if err != nil {
				return err
			}
			next = at.clone()
			end, err = c.walkOn(tx, ns.(*corev1.Namespace), &next)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if looked := pods(next) - pods(at); looked > lookAtOnce/heavy {
			t.Errorf("step %d looked at %d pods", steps, looked)
		}
		at = next
	}
	if pods(at) != 128 || steps > 2*128*heavy/lookAtOnce {
		t.Errorf("%d pods in %d steps", pods(at), steps)
	}
}

// pods is how many a walk has left.
func pods(w walk) int {
	for _, r := range w.left {
		if r.kind == api.Pods {
			return r.count
		}
	}
	return 0
}

// TestNamespaceOfManyMaps: what takes several transactions to delete is all gone before its namespace is.
func TestNamespaceOfManyMaps(t *testing.T) {
	c := open(t, Config{})
	create(t, c, &corev1.Namespace{ObjectMeta: metav1Name("x")})
	for i := range 6 {
		create(t, c, &corev1.ConfigMap{ObjectMeta: in("x", fmt.Sprint("c", i)), Data: map[string]string{"a": strings.Repeat("x", lookAtOnce/3)}})
	}
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "x", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	left := func() int {
		l, err := c.List(t.Context(), api.ConfigMaps, api.ListOptions{Selection: api.Selection{Namespace: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		return len(l.Items)
	}
	if n := left(); n != 3 {
		t.Errorf("the first step left %d maps", n)
	}
	if _, err := c.Get(t.Context(), api.Namespaces, "", "x"); err != nil {
		t.Errorf("it went before them: %v", err)
	}
	if err := endNamespaces(t.Context(), c); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), api.Namespaces, "", "x"); !apierrors.IsNotFound(err) || left() != 0 {
		t.Errorf("want 404, got %v, and %d maps", err, left())
	}
}

func TestNamespaceFinalizers(t *testing.T) {
	c := open(t, Config{})
	ns := &corev1.Namespace{ObjectMeta: metav1Name("x")}
	ns.Finalizers = []string{"a.b/c"}
	create(t, c, ns)
	create(t, c, &corev1.ConfigMap{ObjectMeta: in("x", "c")})
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "x", api.DeleteOptions{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), api.ConfigMaps, "x", "c"); err != nil {
		t.Errorf("a dry run emptied the namespace: %v", err)
	}
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "x", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := api.Get[*corev1.Namespace](t.Context(), c, api.Namespaces, "", "x")
	if err != nil || got.DeletionTimestamp == nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	got.Finalizers, got.Spec.Finalizers = nil, nil
	if out, err := api.Update(t.Context(), c, api.Namespaces, got); err != nil || len(out.Spec.Finalizers) != 1 {
		t.Errorf("got %+v, %v", out, err)
	}
	if _, err := c.Get(t.Context(), api.Namespaces, "", "x"); !apierrors.IsNotFound(err) {
		t.Errorf("want 404, got %v", err)
	}
}

// Should two defaults exist, from an older store or by hand, the smallest value counts (N-10.16).
func TestTwoGlobalDefaults(t *testing.T) {
	c := open(t, Config{})
	err := c.store.Update(func(tx *storage.Tx) error {
		for name, value := range map[string]int32{"high": 100, "low": -5, "mid": 50} {
			pc := &schedulingv1.PriorityClass{ObjectMeta: metav1Name(name), Value: value, GlobalDefault: true}
			if err := tx.Put(scheduling.PriorityClasses, pc); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := create(t, c, newPod("p", "")); p.Spec.PriorityClassName != "low" || *p.Spec.Priority != -5 {
		t.Errorf("got %+v", p.Spec)
	}
}

// Replacing a pod by a manifest that says nothing of its priority changes nothing of it.
func TestUpdateKeepsPriority(t *testing.T) {
	c := open(t, Config{})
	p := newPod("p", "")
	p.Spec.PriorityClassName = scheduling.SystemNodeCritical
	p = create(t, c, p)
	p.Spec.Priority, p.Spec.PreemptionPolicy, p.Spec.Tolerations = nil, nil, nil
	got, err := api.Update(t.Context(), c, api.Pods, p)
	if err != nil || *got.Spec.Priority != 2000001000 || len(got.Spec.Tolerations) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = c.Patch(t.Context(), api.Pods, "default", "p", api.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"priority":5}}`)},
		api.WriteOptions{})
	wantCode(t, err, 422, "pod updates may not change fields")
}

// The finalizers of a namespace's spec are changed through their own subresource, and hold the namespace when it is empty.
func TestNamespaceFinalize(t *testing.T) {
	c := open(t, Config{})
	create(t, c, &corev1.Namespace{ObjectMeta: metav1Name("x")})
	finalize := func(names ...corev1.FinalizerName) *corev1.Namespace {
		t.Helper()
		ns, err := api.Get[*corev1.Namespace](t.Context(), c, api.Namespaces, "", "x")
		if err != nil {
			t.Fatal(err)
		}
		ns.Spec.Finalizers = names
		ns.Labels["not"] = "taken"
		out, err := c.Update(t.Context(), api.Namespaces, ns, api.WriteOptions{Subresource: "finalize"})
		if err != nil {
			t.Fatal(err)
		}
		return out.(*corev1.Namespace)
	}
	if ns := finalize(corev1.FinalizerKubernetes, "a.b/c"); len(ns.Spec.Finalizers) != 2 || ns.Labels["not"] != "" {
		t.Errorf("%+v", ns)
	}
	ns, err := api.Get[*corev1.Namespace](t.Context(), c, api.Namespaces, "", "x")
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil // an update of the object does not change them
	if out, err := c.Update(t.Context(), api.Namespaces, ns, api.WriteOptions{}); err != nil ||
		len(out.(*corev1.Namespace).Spec.Finalizers) != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "x", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if ns, err := api.Get[*corev1.Namespace](t.Context(), c, api.Namespaces, "", "x"); err != nil || ns.DeletionTimestamp == nil {
		t.Fatalf("gone in spite of a finalizer: %+v, %v", ns, err)
	}
	finalize(corev1.FinalizerKubernetes)
	if _, err := c.Get(t.Context(), api.Namespaces, "", "x"); !apierrors.IsNotFound(err) {
		t.Errorf("want 404, got %v", err)
	}
	if _, err := c.Update(t.Context(), api.Nodes, &corev1.Node{ObjectMeta: metav1Name("x")},
		api.WriteOptions{Subresource: "finalize"}); err == nil {
		t.Error("a node can be finalized")
	}
}
