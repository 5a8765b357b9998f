package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
	"ledge/api/local"
	"ledge/api/storage"
	"ledge/host/quota"
	"ledge/internal/durable"
	objects "ledge/storage"
)

// heard are events, as reason and whom they are about.
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) Event(o api.Object, _, reason, _ string) {
	h.EventOn(corev1.ObjectReference{Name: o.GetName()}, "", reason, "")
}

func (h *heard) EventOn(ref corev1.ObjectReference, _, reason, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, reason+" "+ref.Name)
}

func (h *heard) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.list, ", ")
}

// rig is a board with a control plane that binds nothing by itself.
type rig struct {
	t      *testing.T
	client *local.Client
	shelf  *Shelf
	sizes  *played
	events *heard
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, err := objects.Open(t.Context(), objects.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := local.New(local.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, client: client, events: &heard{}}
	r.shelf, r.sizes = aShelf(t)
	if _, err := api.Create(t.Context(), client, storage.StorageClasses, storage.Card()); err != nil && !strings.Contains(err.Error(), "exists") {
		t.Fatal(err)
	}
	return r
}

// run is one life of the loop.
func (r *rig) run() {
	r.t.Helper()
	l := New(Config{Client: r.client, Node: "a", Shelf: r.shelf, Events: r.events, Retry: 10 * time.Millisecond})
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- l.Run(untilClosed(r.t, stop)) }()
	synctest.Wait()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	close(stop)
	if err := <-done; err != nil {
		r.t.Error(err)
	}
}

func (r *rig) claim(name, size string) *corev1.PersistentVolumeClaim {
	r.t.Helper()
	c := claimOf("", size)
	c.Name, c.UID = name, ""
	out, err := api.Create(r.t.Context(), r.client, api.PersistentVolumeClaims, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// bind does what the control plane does.
func (r *rig) bind(c *corev1.PersistentVolumeClaim) {
	r.t.Helper()
	c.Spec.VolumeName = api.VolumeFor(c)
	c, err := api.Update(r.t.Context(), r.client, api.PersistentVolumeClaims, c)
	if err == nil {
		c.Status.Phase = corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *c.Spec.Resources.Requests.Storage()}
		_, err = r.client.Update(r.t.Context(), api.PersistentVolumeClaims, c, api.WriteOptions{Subresource: api.StatusSub})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) volumes() string {
	r.t.Helper()
	list, err := r.client.List(r.t.Context(), api.PersistentVolumes, api.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		v := o.(*corev1.PersistentVolume)
		out = append(out, fmt.Sprintf("%s %s %s", v.Spec.ClaimRef.Name, v.Spec.Capacity.Storage(), strings.Join(v.Finalizers, "+")))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// TestLifeOfAClaim: made, grown, and removed, each with the loop dying in between.
func TestLifeOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.claim("data", "1Mi")
		r.run()
		both := api.VolumeProtection + "+" + api.CardFinalizer
		if got := r.volumes(); got != "data 1Mi "+both {
			t.Errorf("volumes %s", got)
		}
		r.bind(c)
		got, err := api.Get[*corev1.PersistentVolumeClaim](t.Context(), r.client, api.PersistentVolumeClaims, c.Namespace, c.Name)
		if err != nil {
			t.Fatal(err)
		}
		got.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Mi")
		if _, err := api.Update(t.Context(), r.client, api.PersistentVolumeClaims, got); err != nil {
			t.Fatal(err)
		}
		r.run()
		got, err = api.Get[*corev1.PersistentVolumeClaim](t.Context(), r.client, api.PersistentVolumeClaims, c.Namespace, c.Name)
		if err != nil || got.Status.Capacity.Storage().String() != "2Mi" || r.volumes() != "data 2Mi "+both {
			t.Errorf("%v %s %s", err, got.Status.Capacity.Storage(), r.volumes())
		}
		name := api.VolumeFor(c)
		if u, ok := r.shelf.Use(name); !ok || u.MaxBytes != 2*mib {
			t.Errorf("%+v", u)
		}
		if err := os.WriteFile(filepath.Join(r.shelf.Path(name), "row"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Delete(t.Context(), api.PersistentVolumes, "", name, api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.run()
		if got := lies(t, r.shelf); got != name {
			t.Errorf("in use, and %s is left", got)
		}
		v, err := api.Get[*corev1.PersistentVolume](t.Context(), r.client, api.PersistentVolumes, "", name)
		if err != nil {
			t.Fatal(err)
		}
		v.Finalizers = []string{api.CardFinalizer}
		if _, err := api.Update(t.Context(), r.client, api.PersistentVolumes, v); err != nil {
			t.Fatal(err)
		}
		r.run()
		if got := lies(t, r.shelf) + r.volumes(); got != "" {
			t.Errorf("left: %s", got)
		}
		if got := r.events.all(); got != "ProvisioningSucceeded data, FileSystemResizeSuccessful data" {
			t.Error(got)
		}
	})
}

// TestCutsOfTheLoop: the disk fails at any step, the loop begins anew, and there is one volume with one directory, or none of either.
func TestCutsOfTheLoop(t *testing.T) { // N-13.10
	for step := range 8 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			c := r.claim("data", "1Mi")
			n := 0
			r.shelf.Disk = durable.Disk{Before: func(string, string) error {
				if n++; n > step {
					return errors.New("cut")
				}
				return nil
			}}
			r.run()
			r.shelf.Disk = durable.Disk{}
			r.run()
			if got := lies(t, r.shelf); got != api.VolumeFor(c) || !strings.HasPrefix(r.volumes(), "data 1Mi") {
				t.Errorf("step %d: %s, volumes %s", step, got, r.volumes())
			}
			if len(r.sizes.uses) == 0 {
				t.Errorf("step %d: no size", step)
			}
		})
	}
}

// TestAsksBeforeItRemoves: watches of two kinds are not of one moment, so an empty directory whose volume was not seen goes only when the
// control plane says that there is none.
func TestAsksBeforeItRemoves(t *testing.T) { // N-13.10
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		name := api.VolumeFor(r.claim("data", "1Mi"))
		r.run()
		l := New(Config{Client: r.client, Node: "a", Shelf: r.shelf, Events: r.events})
		here := place{shelf: r.shelf}
		if err := l.do(t.Context(), here, World{}, Step{Do: Remove, Name: name}); err != nil || lies(t, r.shelf) != name {
			t.Errorf("a directory with a volume: %s, %v", lies(t, r.shelf), err)
		}
		const none = "pvc-none"
		if err := r.shelf.Make(none, mib); err != nil {
			t.Fatal(err)
		}
		err := l.do(t.Context(), here, World{}, Step{Do: Remove, Name: none})
		if got := lies(t, r.shelf); err != nil || !strings.Contains(got, gonePrefix+none) {
			t.Errorf("one without: %s, %v", got, err)
		}
	})
}

// TestSizeNotEnforced: a claim that nothing holds to its size says so, once, and why; one that is held does not.
func TestSizeNotEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		condition := func(name string) (message, revision string) {
			c, err := api.Get[*corev1.PersistentVolumeClaim](t.Context(), r.client, api.PersistentVolumeClaims, "default", name)
			if err != nil {
				t.Fatal(err)
			}
			return conditionOf(c), c.ResourceVersion
		}
		c := r.claim("held", "1Mi")
		r.run()
		r.bind(c)
		r.run()
		if got, _ := condition("held"); got != "" {
			t.Errorf("of one that is held: %s", got)
		}
		r.sizes.off = true
		c = r.claim("loose", "1Mi")
		r.run()
		r.bind(c)
		r.run()
		got, was := condition("loose")
		if want := unsized(quota.ErrNone.Error()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		r.run()
		if _, is := condition("loose"); is != was {
			t.Error("it is written again")
		}
		r.sizes.off = false
		r.run()
		if got, _ := condition("loose"); !strings.Contains(got, "was made before") {
			t.Errorf("made before there were sizes: %q", got)
		}
		r.run()
		l := r.events.all()
		if n := strings.Count(l, string(SizeNotEnforced)); n != 1 {
			t.Errorf("%d events: %s", n, l)
		}
	})
}

// TestGivenBack: a claim that does not fit is told so and given back, and does not go round.
func TestGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.claim("data", "4Pi")
		r.run()
		got, err := api.Get[*corev1.PersistentVolumeClaim](t.Context(), r.client, api.PersistentVolumeClaims, c.Namespace, c.Name)
		if _, still := got.Annotations[api.SelectedNode]; err != nil || still || r.volumes() != "" || lies(t, r.shelf) != "" {
			t.Errorf("%v %v", err, got.Annotations)
		}
		if got := r.events.all(); got != "ProvisioningFailed data" {
			t.Error(got)
		}
	})
}

// TestNearlyFull: told once, and again after there was room.
func TestNearlyFull(t *testing.T) {
	s, sizes := aShelf(t)
	h := &heard{}
	l := New(Config{Node: "a", Shelf: s, Events: h})
	if err := s.Make("pvc-1", mib); err != nil {
		t.Fatal(err)
	}
	v := volumeOf("1", "1Mi")
	v.Spec.Local.Path, v.Spec.ClaimRef.Name = s.Path("pvc-1"), "data"
	for _, bytes := range []int64{0, mib * 84 / 100, mib * 86 / 100, mib, mib * 82 / 100, mib * 90 / 100, mib * 10 / 100, mib} {
		u := sizes.uses[firstNumber]
		u.Bytes = bytes
		sizes.uses[firstNumber] = u
		l.watchRoom([]*corev1.PersistentVolume{v})
	}
	if got := h.all(); got != "NearlyFull data, NearlyFull data" {
		t.Error(got)
	}
}

func untilClosed(t *testing.T, stop <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-stop; cancel() }()
	return ctx
}
