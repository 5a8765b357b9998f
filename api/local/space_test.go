package local

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/testrun"
	"ledge/storage"
)

// small is a client over a store of so many megabytes.
func small(t *testing.T, size int) *Client {
	t.Helper()
	s, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true, MaxSize: size << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fill makes objects until one is refused, and says how many there are and why there are no more.
func fill(t *testing.T, c *Client, ctx context.Context, make func(i int) api.Object) (n int, err error) {
	t.Helper()
	for n = 0; err == nil && n < 20_000; n++ {
		obj := make(n)
		kind, kerr := c.store.Kinds().Of(obj)
		if kerr != nil {
			t.Fatal(kerr)
		}
		_, err = c.Create(ctx, kind, obj, api.WriteOptions{})
	}
	return n - 1, err
}

// as is a client's context.
func as(t *testing.T, name string) context.Context {
	return api.WithUser(t.Context(), api.User{Name: name, Groups: []string{"system:authenticated"}})
}

func blob(namespace, prefix string, size int) func(int) api.Object {
	return func(i int) api.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(prefix, i)},
			Data: map[string]string{"a": strings.Repeat("x", size)}}
	}
}

// mirrors are pods that a board shows as its own.
func mirrors(t *testing.T, c *Client, node, namespace string, size int) func(int) api.Object {
	t.Helper()
	n, err := api.Get[*corev1.Node](t.Context(), c, api.Nodes, "", node)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	return func(i int) api.Object {
		p := newPod(fmt.Sprint("m", i), node)
		p.Namespace = namespace
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x", "big": strings.Repeat("x", size)}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID, Controller: &yes}}
		return p
	}
}

// others can write: other namespaces, a board that holds little, and the control plane.
func others(t *testing.T, c *Client, when string) {
	t.Helper()
	for _, w := range []struct {
		ctx context.Context
		obj api.Object
	}{
		{as(t, "somebody"), blob("other", "cm", 20_000)(0)},
		{asNode(t, "good"), mirrors(t, c, "good", "other", 2000)(0)},
		{t.Context(), blob("kube-system", "cm", 2000)(0)},
	} {
		kind, _ := c.store.Kinds().Of(w.obj)
		if _, err := c.Create(w.ctx, kind, w.obj, api.WriteOptions{}); err != nil {
			t.Errorf("%s, %s cannot be made: %v", when, kind, err)
			continue
		}
		if _, err := c.Delete(t.Context(), kind, w.obj.GetNamespace(), w.obj.GetName(), api.DeleteOptions{Grace: new(int64)}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

func furnished(t *testing.T, size int) *Client {
	t.Helper()
	if testing.Short() {
		t.Skip("to fill a store takes some seconds")
	}
	c := small(t, size)
	for _, ns := range []string{"greedy", "greedy2", "other"} {
		create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	for _, n := range []string{"bad", "good"} {
		create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	return c
}

// TestGreedyNamespaces: one namespace gets most of the room, of two each a share, in large objects and small ones, and all others can
// go on. It is told what is full, and has room again when it has deleted something.
func TestGreedyNamespaces(t *testing.T) {
	for _, size := range []int{100_000, 5000} {
		c := furnished(t, 24)
		ctx := as(t, "editor")
		first, err := fill(t, c, ctx, blob("greedy", "cm", size))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `namespace "greedy" holds`) || first*size < 8<<20 {
			t.Fatalf("after %d of %d bytes: %v", first, size, err)
		}
		others(t, c, "one is greedy")
		second, err := fill(t, c, ctx, blob("greedy2", "cm", size))
		if second < first/6 { // large ones may find no whole piece before that: there is one for small ones
			t.Errorf("the second gets %d, the first had %d: %v", second, first, err)
		}
		others(t, c, "two are greedy")
		grown := blob("greedy", "cm", 300_000)(0)
		if _, err := c.Update(ctx, api.ConfigMaps, grown, api.WriteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("one that is there grows: %v", err)
		}
		shrunk := blob("greedy", "cm", 10)(0)
		if _, err := c.Update(ctx, api.ConfigMaps, shrunk, api.WriteOptions{}); err != nil {
			t.Errorf("one shrinks: %v", err)
		}
		for _, ns := range []string{"greedy", "greedy2"} {
			if _, err := c.Delete(ctx, api.Namespaces, "", ns, api.DeleteOptions{}); err != nil {
				t.Errorf("%s cannot be deleted: %v", ns, err)
			}
		}
		if err := endNamespaces(t.Context(), c); err != nil { // as Run does
			t.Error(err)
		}
		again, err := fill(t, c, ctx, blob("other", "cm", size))
		if again < first*7/8 {
			t.Errorf("emptied, there is room for %d, where there was for %d: %v", again, first, err)
		}
	}
}

// TestGreedyBoard: a board shows so many pods, so large, tells so long events, writes so large a Node, and no more; what it has is deleted
// as anything is, by hand and by the collector.
func TestGreedyBoard(t *testing.T) {
	for _, size := range []int{200_000, 10} {
		c := furnished(t, 24)
		ctx := asNode(t, "bad")
		n, err := fill(t, c, ctx, mirrors(t, c, "bad", "default", size))
		if !apierrors.IsForbidden(err) || n < 5 || n > boardPods || n*size > 8<<20 {
			t.Fatalf("%d of %d bytes: %v", n, size, err)
		}
		long := event("e", c.cfg.Now())
		long.Source.Host, long.Message = "bad", strings.Repeat("x", 10_000)
		_, err = c.Create(ctx, api.Events, long, api.WriteOptions{})
		wantCode(t, err, 403, "may not write events of more than 8192 bytes")
		node, err := api.Get[*corev1.Node](t.Context(), c, api.Nodes, "", "bad")
		if err != nil {
			t.Fatal(err)
		}
		node.Status.NodeInfo.KernelVersion = strings.Repeat("x", 300_000)
		_, err = c.Update(ctx, api.Nodes, node, api.WriteOptions{Subresource: api.StatusSub})
		wantCode(t, err, 403, "may not write nodes of more than 262144 bytes")
		p, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", "m0")
		if err != nil {
			t.Fatal(err)
		}
		p.Status.Message = strings.Repeat("x", 7<<20)
		_, err = c.Update(ctx, api.Pods, p, api.WriteOptions{Subresource: api.StatusSub})
		wantCode(t, err, 403, `the pods of node "bad" hold`)
		others(t, c, "one board is greedy")
		if _, err := c.Delete(t.Context(), api.Nodes, "", "bad", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.collector.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range n { // the agent is gone: somebody gives them up
			if _, err := c.Delete(t.Context(), api.Pods, "default", fmt.Sprint("m", i), api.DeleteOptions{Grace: new(int64)}); err != nil &&
				!apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
		if held, bytes, err := c.references.heldOn("bad"); held+bytes != 0 || err != nil {
			t.Errorf("%d pods, %d bytes are left: %v", held, bytes, err)
		}
	}
}

// brim fills the store to the brim with pods of board "bad", as before there were bounds.
func brim(t *testing.T, c *Client, namespace string) (n int) {
	t.Helper()
	mirror := mirrors(t, c, "bad", namespace, 200_000)
	whole := func(i int) error {
		return c.store.Update(func(tx *storage.Tx) error {
			obj := mirror(i)
			prepare(api.Pods, obj, c.now())
			api.Pods.Default(obj)
			if i%4 == 1 {
				obj.SetFinalizers([]string{"example.com/x"})
			}
			return put(tx, api.Pods, obj, false)
		})
	}
	for whole(n) == nil {
		n++
	}
	if n < 20 {
		t.Fatalf("full after %d", n)
	}
	return n
}

// TestFullNamespaceEnds: a namespace whose pods weigh more than a full store has room for is deleted as any is.
func TestFullNamespaceEnds(t *testing.T) {
	testrun.OnHost(t)
	c := furnished(t, 16)
	n := brim(t, c, "other")
	running(t, c)
	if _, err := c.Delete(t.Context(), api.Namespaces, "", "other", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, 3*time.Minute, "all pods are marked", func() bool {
		marked := 0
		err := c.store.View(func(tx *storage.Tx) error {
			pods, err := list(tx, api.Pods, "other")
			for _, p := range pods {
				if p.GetDeletionTimestamp() != nil {
					marked++
				}
			}
			return err
		})
		return err == nil && marked == n
	})
}

// TestFullStoreIsEmptied: a store may be full to the brim with objects from before these bounds. It says so. Four things still empty it:
// a delete with grace, an eviction, the removal of a finalizer, and the collector.
func TestFullStoreIsEmptied(t *testing.T) {
	c := furnished(t, 24)
	n := brim(t, c, "default")
	_, err := c.Create(as(t, "somebody"), api.ConfigMaps, blob("default", "cm", 100_000)(0), api.WriteOptions{})
	wantCode(t, err, 403, `namespace "default" holds`)
	_, err = fill(t, c, t.Context(), func(i int) api.Object {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large", i),
			Annotations: map[string]string{"a": strings.Repeat("x", 50_000)}}}
	})
	wantCode(t, err, 507, "the store of all objects is full; delete some")
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m0"}}
	if _, err := c.Create(t.Context(), api.Pods, e, api.WriteOptions{Subresource: "eviction"}); err != nil {
		t.Errorf("evict: %v", err)
	}
	if _, err := c.Delete(t.Context(), api.Pods, "default", "m1", api.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := c.Delete(t.Context(), api.Nodes, "", "bad", api.DeleteOptions{}); err != nil {
		t.Errorf("delete the node: %v", err)
	}
	if err := c.collector.collect(t.Context()); err != nil {
		t.Errorf("collect: %v", err)
	}
	for i := range n {
		name := fmt.Sprint("m", i)
		p, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		if p.DeletionTimestamp == nil {
			t.Errorf("%s is not marked", name)
		}
		if i > n/4 { // from here on it is not full
			continue
		}
		if len(p.Finalizers) > 0 {
			p.Finalizers = nil
			if _, err := c.Update(as(t, "somebody"), api.Pods, p, api.WriteOptions{Manager: "kubectl"}); err != nil {
				t.Errorf("finalizer: %v", err)
			}
		}
		p.Status.Phase, p.Status.ContainerStatuses = corev1.PodFailed, []corev1.ContainerStatus{{Name: "c", Image: "i"}}
		p.ResourceVersion = ""
		if _, err := c.Update(t.Context(), api.Pods, p, api.WriteOptions{Subresource: api.StatusSub}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("status: %v", err)
		}
		if _, err := c.Delete(t.Context(), api.Pods, "default", name, api.DeleteOptions{Grace: new(int64)}); err != nil &&
			!apierrors.IsNotFound(err) {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	others(t, c, "emptied")
}
