package local

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/kinds"
)

// ownedMap is a ConfigMap that belongs to others.
func ownedMap(t *testing.T, c *Client, name string, block bool, owners ...api.Object) *corev1.ConfigMap {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: in("default", name)}
	for _, o := range owners {
		kind, err := kinds.All.Of(o)
		if err != nil {
			t.Fatal(err)
		}
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: kind.APIVersion(), Kind: kind.Name,
			Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: &block})
	}
	out, err := api.Create(t.Context(), c, api.ConfigMaps, m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *Client) has(t *testing.T, name string) bool {
	t.Helper()
	_, err := c.Get(t.Context(), api.ConfigMaps, "default", name)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func (c *Client) remove(t *testing.T, name string, how metav1.DeletionPropagation) {
	t.Helper()
	if _, err := c.Delete(t.Context(), api.ConfigMaps, "default", name, api.DeleteOptions{Propagation: how}); err != nil {
		t.Fatal(err)
	}
	c.settle(t)
}

// settle collects as long as something asks for it, as Run does.
func (c *Client) settle(t *testing.T) {
	t.Helper()
	for {
		select {
		case <-c.collector.asked:
			if err := c.collector.collect(t.Context()); err != nil {
				t.Fatal(err)
			}
		default:
			return
		}
	}
}

// What belongs to an object goes with it, and what belongs to that too; an object with another owner left stays.
func TestCollectInTheBackground(t *testing.T) {
	c := open(t, Config{})
	one, two := ownedMap(t, c, "one", false), ownedMap(t, c, "two", false)
	child := ownedMap(t, c, "child", false, one)
	ownedMap(t, c, "grandchild", false, child)
	ownedMap(t, c, "shared", false, one, two)
	stranger := &corev1.ConfigMap{ObjectMeta: in("default", "stranger")}
	stranger.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "elsewhere"}}
	create(t, c, stranger)
	c.remove(t, "one", "")
	for name, want := range map[string]bool{"child": false, "grandchild": false, "shared": true, "two": true, "stranger": true} {
		if c.has(t, name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
	if n := c.belongsTo(t, "shared"); n != 1 {
		t.Errorf("an object with one owner left names %d", n)
	}
	c.remove(t, "two", metav1.DeletePropagationBackground)
	if c.has(t, "shared") {
		t.Error("an object without any owner left stays")
	}
}

// An owner of the same name made anew is another owner.
func TestCollectByUID(t *testing.T) {
	c := open(t, Config{})
	one := ownedMap(t, c, "one", false)
	ownedMap(t, c, "child", false, one)
	if _, err := c.Delete(t.Context(), api.ConfigMaps, "default", "one", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ownedMap(t, c, "one", false)
	if err := c.collector.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.has(t, "child") || !c.has(t, "one") {
		t.Error("the child of the first became the second's")
	}
}

// Orphans lose the reference and stay.
func TestCollectOrphans(t *testing.T) {
	c := open(t, Config{})
	one := ownedMap(t, c, "one", false)
	ownedMap(t, c, "child", false, one)
	c.remove(t, "one", metav1.DeletePropagationOrphan)
	if c.belongsTo(t, "child") != 0 || c.has(t, "one") {
		t.Error("the child is no orphan, or the owner is there")
	}
}

func (c *Client) belongsTo(t *testing.T, name string) int {
	t.Helper()
	m, err := api.Get[*corev1.ConfigMap](t.Context(), c, api.ConfigMaps, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return len(m.OwnerReferences)
}

// Who says nothing of what belongs to a replication controller leaves it, as on Kubernetes.
func TestCollectByKind(t *testing.T) {
	c := open(t, Config{})
	for how, left := range map[metav1.DeletionPropagation]bool{"": true, metav1.DeletePropagationOrphan: true,
		metav1.DeletePropagationBackground: false} {
		rc := create(t, c, rcOf("rc"))
		child := "child" + strings.ToLower(string(how))
		ownedMap(t, c, child, false, rc)
		if _, err := c.Delete(t.Context(), api.ReplicationControllers, "default", "rc", api.DeleteOptions{Propagation: how}); err != nil {
			t.Fatal(err)
		}
		if err := c.collector.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.has(t, child) != left || left && c.belongsTo(t, child) != 0 {
			t.Errorf("deleted with %q: the child is left: %v, want %v", how, c.has(t, child), left)
		}
	}
}

// One that is collected itself takes its own with it, whatever the kind says to people.
func TestCollectByKindOfTheCollected(t *testing.T) {
	for _, how := range []metav1.DeletionPropagation{"", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		c := open(t, Config{})
		yes := true
		top := ownedMap(t, c, "top", false)
		rc := rcOf("rc")
		rc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "top", UID: top.UID, BlockOwnerDeletion: &yes}}
		ownedMap(t, c, "child", true, create(t, c, rc))
		c.remove(t, "top", how)
		if _, err := c.Get(t.Context(), api.ReplicationControllers, "default", "rc"); !apierrors.IsNotFound(err) || c.has(t, "child") ||
			c.has(t, "top") {
			t.Errorf("deleted with %q: left: controller %v, child %v, owner %v", how, err, c.has(t, "child"), c.has(t, "top"))
		}
	}
}

func rcOf(name string) *corev1.ReplicationController {
	return &corev1.ReplicationController{ObjectMeta: in("default", name),
		Spec: corev1.ReplicationControllerSpec{Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}

// What is given an owner that is gone already goes too, at once and after a restart.
func TestCollectLatecomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		run := func() { done <- c.Run(ctx) }
		one := ownedMap(t, c, "one", false)
		ownedMap(t, c, "keeps", false, one)
		early := ownedMap(t, c, "early", false, one)
		gone := one.DeepCopy()
		gone.UID = "another"
		ownedMap(t, c, "before", false, gone) // as after a power cut between a deletion and its consequences
		go run()
		time.Sleep(2 * collectWait)
		if c.has(t, "before") || !c.has(t, "keeps") {
			t.Error("what lost its owner before the start is there, or what has one went")
		}
		ownedMap(t, c, "late", false, gone)
		early.OwnerReferences[0].UID = gone.UID
		if _, err := api.Update(t.Context(), c, api.ConfigMaps, early); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * collectWait)
		if c.has(t, "late") || c.has(t, "early") || !c.has(t, "keeps") {
			t.Error("a latecomer is there, or what has an owner went")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// In the foreground the owner stays until those that block it are gone.
func TestCollectInTheForeground(t *testing.T) {
	c := open(t, Config{})
	one := ownedMap(t, c, "one", false)
	child := ownedMap(t, c, "child", true, one)
	child.Finalizers = []string{"a.b/c"}
	if _, err := api.Update(t.Context(), c, api.ConfigMaps, child); err != nil {
		t.Fatal(err)
	}
	ownedMap(t, c, "other", false, one)
	c.remove(t, "one", metav1.DeletePropagationForeground)
	m, err := api.Get[*corev1.ConfigMap](t.Context(), c, api.ConfigMaps, "default", "one")
	if err != nil || m.DeletionTimestamp == nil || len(m.Finalizers) != 1 || m.Finalizers[0] != metav1.FinalizerDeleteDependents {
		t.Fatalf("%+v, %v", m, err)
	}
	if c.has(t, "other") || !c.has(t, "child") {
		t.Error("what does not wait stays, or what waits went")
	}
	child, err = api.Get[*corev1.ConfigMap](t.Context(), c, api.ConfigMaps, "default", "child")
	if err != nil || child.DeletionTimestamp == nil {
		t.Fatalf("%+v, %v", child, err)
	}
	child.Finalizers = nil
	if _, err := api.Update(t.Context(), c, api.ConfigMaps, child); err != nil {
		t.Fatal(err)
	}
	c.settle(t)
	if c.has(t, "child") || c.has(t, "one") {
		t.Error("the owner did not go with the last that blocked it")
	}
	// Without dependents there is nothing to wait for.
	ownedMap(t, c, "alone", false)
	c.remove(t, "alone", metav1.DeletePropagationForeground)
	if c.has(t, "alone") {
		t.Error("waits for nobody")
	}
}

// What the store has lost and still runs comes back, with the owners that are there.
func TestRestoreOwners(t *testing.T) {
	c := open(t, Config{})
	there := ownedMap(t, c, "there", false)
	ref := func(name string, uid types.UID, apiVersion string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: "ConfigMap", Name: name, UID: uid}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", OwnerReferences: []metav1.OwnerReference{
		ref("there", there.UID, "v1"), ref("there", "made anew", "v1"), ref("gone", "x", "v1"), ref("gone", "x", "example.com/v1")}}}
	if taken, err := c.Restore(t.Context(), pod); err != nil || !taken {
		t.Fatal(taken, err)
	}
	got, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", "p")
	if err != nil || len(got.OwnerReferences) != 2 || got.OwnerReferences[0].UID != there.UID ||
		got.OwnerReferences[1].APIVersion != "example.com/v1" {
		t.Errorf("%+v, %v", got, err)
	}
}
