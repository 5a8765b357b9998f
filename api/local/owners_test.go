package local

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/kinds"
)

// What Kubernetes' suite of conformance says of the collector, by replication controllers and pods.

func ownerOf(kind *api.Kind, o api.Object, block bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: kind.APIVersion(), Kind: kind.Name, Name: o.GetName(), UID: o.GetUID(),
		BlockOwnerDeletion: &block}
}

func (c *Client) podOf(t *testing.T, name string, owners ...metav1.OwnerReference) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: in("default", name),
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	p.OwnerReferences = owners
	create(t, c, p)
}

// pods are those that are there; "name going" marks one that is being deleted.
func (c *Client) pods(t *testing.T) []string {
	t.Helper()
	list, err := c.List(t.Context(), api.Pods, api.ListOptions{Selection: api.Selection{Namespace: "default"}})
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, p := range list.Items {
		name := p.GetName()
		if p.GetDeletionTimestamp() != nil {
			name += " going"
		}
		out = append(out, name)
	}
	return out
}

func (c *Client) wantPods(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := c.pods(t); !slices.Equal(got, want) {
		t.Errorf("%s: pods %q, want %q", what, got, want)
	}
}

// ended is the agent's last word on pods.
func (c *Client) ended(t *testing.T, names ...string) {
	t.Helper()
	now := int64(0)
	for _, name := range names {
		if _, err := c.Delete(t.Context(), api.Pods, "default", name, api.DeleteOptions{Grace: &now}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	c.settle(t)
}

func (c *Client) removeController(t *testing.T, name string, how metav1.DeletionPropagation) {
	t.Helper()
	if _, err := c.Delete(t.Context(), api.ReplicationControllers, "default", name, api.DeleteOptions{Propagation: how}); err != nil {
		t.Fatal(err)
	}
	c.settle(t)
}

func (c *Client) hasController(t *testing.T, name string) bool {
	t.Helper()
	_, err := c.Get(t.Context(), api.ReplicationControllers, "default", name)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// "should delete pods created by rc when not orphaning", "should orphan pods created by rc if delete options say so", "should keep the
// rc around until all its pods are deleted if the deleteOptions says so"
func TestConformanceOfOneOwner(t *testing.T) {
	for how, want := range map[metav1.DeletionPropagation]struct {
		pods []string
		stay bool
	}{
		metav1.DeletePropagationBackground: {[]string{"p0 going", "p1 going"}, false},
		metav1.DeletePropagationForeground: {[]string{"p0 going", "p1 going"}, true},
		metav1.DeletePropagationOrphan:     {[]string{"p0", "p1"}, false},
	} {
		c := open(t, Config{})
		rc := create(t, c, rcOf("rc"))
		for i := range 2 {
			c.podOf(t, fmt.Sprint("p", i), ownerOf(api.ReplicationControllers, rc, true))
		}
		c.removeController(t, "rc", how)
		c.wantPods(t, string(how), want.pods...)
		if c.hasController(t, "rc") != want.stay {
			t.Errorf("%s: the controller is there: %v, want %v", how, !want.stay, want.stay)
		}
		if how == metav1.DeletePropagationOrphan {
			continue
		}
		c.ended(t, "p0")
		if c.hasController(t, "rc") != want.stay {
			t.Errorf("%s: the controller is there with the last pod: %v, want %v", how, !want.stay, want.stay)
		}
		c.ended(t, "p1")
		if c.wantPods(t, string(how)); c.hasController(t, "rc") {
			t.Errorf("%s: the controller outlives its pods", how)
		}
	}
}

// "should delete RS created by deployment when not orphaning", "should orphan RS created by deployment when
// deleteOptions.PropagationPolicy is Orphan": what stands between the owner and the pods is of another kind, and has a default of its own.
func TestConformanceOfAChain(t *testing.T) {
	for how, want := range map[metav1.DeletionPropagation][]string{
		"":                                 {"p going"},
		metav1.DeletePropagationBackground: {"p going"},
		metav1.DeletePropagationForeground: {"p going"},
		metav1.DeletePropagationOrphan:     {"p"},
	} {
		c := open(t, Config{})
		top := ownedMap(t, c, "top", false)
		rc := rcOf("rc")
		rc.OwnerReferences = []metav1.OwnerReference{ownerOf(api.ConfigMaps, top, true)}
		rc = create(t, c, rc)
		c.podOf(t, "p", ownerOf(api.ReplicationControllers, rc, true))
		c.remove(t, "top", how)
		c.wantPods(t, string(how), want...)
		foreground, orphan := how == metav1.DeletePropagationForeground, how == metav1.DeletePropagationOrphan
		if c.has(t, "top") != foreground || c.hasController(t, "rc") != (foreground || orphan) {
			t.Errorf("%q: owner %v, controller %v", how, c.has(t, "top"), c.hasController(t, "rc"))
		}
		if orphan {
			rc, err := api.Get[*corev1.ReplicationController](t.Context(), c, api.ReplicationControllers, "default", "rc")
			if err != nil || len(rc.OwnerReferences) != 0 {
				t.Errorf("%+v, %v: an orphan has an owner", rc, err)
			}
			continue
		}
		c.ended(t, "p")
		if c.has(t, "top") || c.hasController(t, "rc") {
			t.Errorf("%q: an owner outlives what belonged to it: %v, %v", how, c.has(t, "top"), c.hasController(t, "rc"))
		}
	}
}

// "should not delete dependents that have both valid owner and owner that's waiting for dependents to be deleted"
func TestConformanceOfTwoOwners(t *testing.T) {
	c := open(t, Config{})
	one, two := create(t, c, rcOf("one")), create(t, c, rcOf("two"))
	c.podOf(t, "p0", ownerOf(api.ReplicationControllers, one, true), ownerOf(api.ReplicationControllers, two, false))
	c.podOf(t, "p1", ownerOf(api.ReplicationControllers, one, true))
	c.removeController(t, "one", metav1.DeletePropagationForeground)
	c.wantPods(t, "while the first waits", "p0", "p1 going")
	c.ended(t, "p1")
	c.wantPods(t, "after", "p0")
	p, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", "p0")
	if err != nil || len(p.OwnerReferences) != 1 || p.OwnerReferences[0].UID != two.UID {
		t.Errorf("%+v, %v", p, err)
	}
	if c.hasController(t, "one") || !c.hasController(t, "two") {
		t.Error("the first waits for what has another owner, or the other went with it")
	}
}

// "should not be blocked by dependency circle"
func TestConformanceOfACircle(t *testing.T) {
	for _, all := range []bool{false, true} { // all: every one is deleted by hand, before the collector looks
		c := open(t, Config{})
		names := []string{"p0", "p1", "p2"}
		for _, name := range names {
			c.podOf(t, name)
		}
		for i, name := range names {
			owner, err := c.Get(t.Context(), api.Pods, "default", names[(i+2)%3])
			if err != nil {
				t.Fatal(err)
			}
			p, err := api.Get[*corev1.Pod](t.Context(), c, api.Pods, "default", name)
			if err != nil {
				t.Fatal(err)
			}
			p.OwnerReferences = []metav1.OwnerReference{ownerOf(api.Pods, owner, true)}
			if _, err := api.Update(t.Context(), c, api.Pods, p); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			if _, err := c.Delete(t.Context(), api.Pods, "default", name,
				api.DeleteOptions{Propagation: metav1.DeletePropagationForeground}); err != nil {
				t.Fatal(err)
			}
			if !all {
				break
			}
		}
		c.settle(t)
		c.ended(t, names...)
		c.wantPods(t, fmt.Sprint("all by hand: ", all))
	}
}

// An owner of another namespace is none. Where an object without a namespace names one that would be in one, nobody can tell
// which, so it stays.
func TestOwnersElsewhere(t *testing.T) {
	c := open(t, Config{})
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	far := create(t, c, &corev1.ConfigMap{ObjectMeta: in("other", "far")})
	near := ownedMap(t, c, "near", false)
	ownedMap(t, c, "lost", false, far)
	ownedMap(t, c, "kept", false, far, near)
	wide := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "wide",
		OwnerReferences: []metav1.OwnerReference{ownerOf(api.ConfigMaps, far, true)}}}
	create(t, c, wide)
	for range 2 { // what is said once is not said again
		c.collector.soon()
		c.settle(t)
	}
	if c.has(t, "lost") || !c.has(t, "kept") || c.belongsTo(t, "kept") != 1 {
		t.Errorf("lost %v, kept %v", c.has(t, "lost"), c.has(t, "kept"))
	}
	events, err := c.List(t.Context(), api.Events, api.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, o := range events.Items {
		if e := o.(*corev1.Event); e.Reason == "OwnerRefInvalidNamespace" {
			told = append(told, e.InvolvedObject.Name+": "+e.Message[:strings.Index(e.Message, ", uid")])
		}
	}
	slices.Sort(told)
	want := []string{"kept: ownerRef [v1/ConfigMap, namespace: default, name: far",
		"lost: ownerRef [v1/ConfigMap, namespace: default, name: far",
		"wide: ownerRef [v1/ConfigMap, namespace: , name: far"}
	if !slices.Equal(told, want) {
		t.Errorf("events %q, want %q", told, want)
	}
	if _, err := c.Delete(t.Context(), api.ConfigMaps, "other", "far",
		api.DeleteOptions{Propagation: metav1.DeletePropagationForeground}); err != nil {
		t.Fatal(err)
	}
	c.settle(t)
	if _, err := c.Get(t.Context(), api.ConfigMaps, "other", "far"); !apierrors.IsNotFound(err) {
		t.Errorf("%v: it waits for what cannot belong to it", err)
	}
}

// An object may say itself by a finalizer what becomes of its own; who deletes may say otherwise, also later.
func TestCollectByFinalizer(t *testing.T) {
	for finalizer, want := range map[string]bool{metav1.FinalizerOrphanDependents: true, metav1.FinalizerDeleteDependents: false} {
		c := open(t, Config{})
		one := &corev1.ConfigMap{ObjectMeta: in("default", "one")}
		one.Finalizers = []string{finalizer}
		ownedMap(t, c, "child", true, create(t, c, one))
		c.remove(t, "one", "")
		if c.has(t, "one") || c.has(t, "child") != want {
			t.Errorf("%s: the owner is there: %v, what belonged to it: %v", finalizer, c.has(t, "one"), c.has(t, "child"))
		}
	}
	c := open(t, Config{})
	one := ownedMap(t, c, "one", false)
	child := ownedMap(t, c, "child", true, one)
	child.Finalizers = []string{"a.b/c"}
	if _, err := api.Update(t.Context(), c, api.ConfigMaps, child); err != nil {
		t.Fatal(err)
	}
	c.remove(t, "one", metav1.DeletePropagationForeground)
	if !c.has(t, "one") {
		t.Fatal("the owner does not wait")
	}
	c.remove(t, "one", metav1.DeletePropagationBackground)
	if c.has(t, "one") {
		t.Error("the owner waits, though nobody wants it to any more")
	}
}

// In any family, whatever is deleted in whatever way: the collector comes to an end. Then no object is left whose owners are all gone,
// and no reference to an owner that is gone; nobody waits for ever. Objects that have an owner, or never had one, stay.
func TestCollectAnything(t *testing.T) {
	c := open(t, Config{})
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 2 + r.IntN(7)
		maps := make([]*corev1.ConfigMap, n)
		for i := range maps {
			maps[i] = ownedMap(t, c, fmt.Sprintf("s%d-%d", seed, i), false)
		}
		roots := map[string]bool{}
		for _, m := range maps {
			for j := range maps {
				if r.IntN(3) == 0 {
					m.OwnerReferences = append(m.OwnerReferences, ownerOf(api.ConfigMaps, maps[j], r.IntN(3) > 0))
				}
			}
			if roots[m.Name] = len(m.OwnerReferences) == 0; !roots[m.Name] {
				if _, err := api.Update(t.Context(), c, api.ConfigMaps, m); err != nil {
					t.Fatal(err)
				}
			}
		}
		deleted := map[string]bool{}
		for range 1 + r.IntN(n) {
			name := maps[r.IntN(n)].Name
			how := []metav1.DeletionPropagation{"", metav1.DeletePropagationForeground}[r.IntN(2)]
			if _, err := c.Delete(t.Context(), api.ConfigMaps, "default", name, api.DeleteOptions{Propagation: how}); err != nil &&
				!apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			deleted[name] = true
			if r.IntN(2) == 0 {
				c.settle(t)
			}
		}
		c.settle(t)
		list, err := c.List(t.Context(), api.ConfigMaps, api.ListOptions{Selection: api.Selection{Namespace: "default"}})
		if err != nil {
			t.Fatal(err)
		}
		left := map[types.UID]bool{}
		for _, o := range list.Items {
			left[o.GetUID()] = true
		}
		for _, m := range maps {
			if deleted[m.Name] && left[m.UID] || roots[m.Name] && !deleted[m.Name] && !left[m.UID] {
				t.Errorf("seed %d: %s: deleted %v, is there %v", seed, m.Name, deleted[m.Name], left[m.UID])
			}
		}
		for _, o := range list.Items {
			for _, ref := range o.GetOwnerReferences() {
				if !left[ref.UID] {
					t.Errorf("seed %d: %s belongs to %s, which is gone", seed, o.GetName(), ref.Name)
				}
			}
			if is, ours := roots[o.GetName()]; ours && !is && len(o.GetOwnerReferences()) == 0 {
				t.Errorf("seed %d: %s has no owner left", seed, o.GetName())
			}
		}
	}
}

// An owner may be named by another version of its kind.
func TestOwnersByAView(t *testing.T) {
	for _, view := range kinds.All.Views {
		if got := ownerKind(kinds.All, metav1.OwnerReference{APIVersion: view.APIVersion(), Kind: view.Name}); got == nil {
			t.Errorf("%s is not known as an owner", view.GVK())
		}
	}
}
