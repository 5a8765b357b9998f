package claims

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/storage"
)

// slot is where a disk is plugged in and pulled out. What is on the disk is a directory, which is moved to where it is mounted.
type slot struct {
	mu            sync.Mutex
	stick         string
	in, torn      bool // plugged in; pulled out while it was mounted
	mountedAt, is string
	label         string // of the stick; empty: the one that is looked for
	refused       error
	finds         int
}

func (s *slot) Find(label string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds++
	if s.refused != nil {
		return "", s.refused
	}
	if !s.in || s.label != "" && s.label != label {
		return "", errors.New("no disk has a partition labelled " + label)
	}
	return "/dev/sda1", nil
}

func (s *slot) Refuse(_ string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = why
}

func (s *slot) Label(string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.label, "DATA"), nil
}

func (s *slot) Below(dir string) (mounted []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(s.mountedAt, dir+"/") {
		mounted = append(mounted, s.mountedAt)
	}
	return mounted, nil
}

func (s *slot) Mount(device, at string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.mountedAt, s.is, s.torn = at, device, false
	return os.Rename(s.stick, at)
}

func (s *slot) Stands(at string) (mounted, there bool, device string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mountedAt == at, !s.torn, s.is, nil
}

func (s *slot) Unmount(at string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mountedAt = ""
	return errors.Join(os.Rename(at, s.stick), os.Mkdir(at, 0o700)) // an empty mount point is left
}

func (s *slot) plug(in bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in, s.torn = in, !in
}

// onDisk is a rig whose loop runs all the while, with one disk that is not there.
func onDisk(t *testing.T) (*rig, *slot, *Disks) {
	r := newRig(t)
	if _, err := api.Create(t.Context(), r.client, storage.StorageClasses, storage.OnDisk("usb")); err != nil {
		t.Fatal(err)
	}
	s := &slot{stick: filepath.Join(t.TempDir(), "stick")}
	if err := os.Mkdir(s.stick, 0o755); err != nil {
		t.Fatal(err)
	}
	d := NewDisks([]Disk{{"usb", "DATA"}}, t.TempDir(), "a", s, newPlayed())
	return r, s, d
}

func (r *rig) live(d *Disks) (stop func()) {
	come := 0
	d.OnCome(func() { come++ })
	l := New(Config{Client: r.client, Node: "a", Shelf: r.shelf, Disks: d, Events: r.events, Retry: 10 * time.Millisecond})
	end, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- l.Run(untilClosed(r.t, end)) }()
	return func() {
		close(end)
		if err := <-done; err != nil || come == 0 {
			r.t.Errorf("%v, a disk has come %d times", err, come)
		}
	}
}

func (r *rig) claimOn(class, name string) *corev1.PersistentVolumeClaim {
	r.t.Helper()
	c := claimOf("", "1Mi")
	c.Name, c.UID, c.Spec.StorageClassName = name, "", &class
	out, err := api.Create(r.t.Context(), r.client, api.PersistentVolumeClaims, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// passes lets a few looks at disks go by.
func passes() {
	time.Sleep(3 * diskEvery)
	synctest.Wait()
}

// TestDiskComesAndGoes: a claim whose disk is not there is told so by name and gets no volume on the card; the disk comes, and it has one;
// pulled out, it is named again; what is on it is there when it comes back, and goes with its volume.
func TestDiskComesAndGoes(t *testing.T) { // N-13.17
	synctest.Test(t, func(t *testing.T) {
		r, s, d := onDisk(t)
		stop := r.live(d)
		c := r.claimOn("usb", "data")
		passes()
		if got := r.volumes() + lies(t, r.shelf); got != "" {
			t.Fatalf("without its disk: %s", got)
		}
		if got := r.events.all(); !strings.Contains(got, "ProvisioningFailed data") {
			t.Fatal(got)
		}
		s.plug(true)
		c, err := api.Get[*corev1.PersistentVolumeClaim](t.Context(), r.client, api.PersistentVolumeClaims, c.Namespace, c.Name)
		if err != nil || c.Annotations[api.SelectedNode] != "" {
			t.Fatalf("it was not given back: %v", err)
		}
		c.Annotations = map[string]string{api.SelectedNode: "a"} // the scheduler chooses again
		if c, err = api.Update(t.Context(), r.client, api.PersistentVolumeClaims, c); err != nil {
			t.Fatal(err)
		}
		passes()
		name, at := api.VolumeFor(c), d.States()[0].Shelf
		if got := r.volumes(); !strings.HasPrefix(got, "data 1Mi") || lies(t, at) != name || lies(t, r.shelf) != "" {
			t.Fatalf("with its disk: volumes %q, %q on it", got, lies(t, at))
		}
		r.bind(c)
		passes()
		path := at.Path(name)
		if err := os.WriteFile(filepath.Join(path, "row"), []byte("1"), 0o600); err != nil || d.Absent(path) != nil {
			t.Fatal(err, d.Absent(path))
		}
		s.plug(false)
		passes()
		if err := d.Absent(path); err == nil || !strings.Contains(err.Error(), "disk usb (label DATA)") {
			t.Errorf("pulled out: %v", err)
		}
		if got := r.events.all(); !strings.Contains(got, "DiskGone a") || !strings.Contains(got, "DiskAbsent data") ||
			strings.Contains(got, "VolumeLost") {
			t.Error(got)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("it is mounted still")
		}
		if _, err := r.client.Delete(t.Context(), api.PersistentVolumes, "", name, api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		v, err := api.Get[*corev1.PersistentVolume](t.Context(), r.client, api.PersistentVolumes, "", name)
		if err != nil {
			t.Fatal(err)
		}
		v.Finalizers = []string{api.CardFinalizer}
		if _, err := api.Update(t.Context(), r.client, api.PersistentVolumes, v); err != nil {
			t.Fatal(err)
		}
		passes()
		if r.volumes() == "" {
			t.Error("a volume goes although its directory is on a disk that is not there")
		}
		s.plug(true)
		passes()
		if got := r.volumes() + lies(t, at); got != "" {
			t.Errorf("left: %s", got)
		}
		stop()
	})
}

// late is a slot that takes a while to look for a disk.
type late struct{ *slot }

func (l late) Find(label string) (string, error) {
	time.Sleep(time.Second)
	return l.slot.Find(label)
}

// TestClaimBeforeFirstLook: a claim that is there when the board starts is not given back because nobody has looked for its disk yet.
func TestClaimBeforeFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, _ := onDisk(t)
		c := r.claimOn("usb", "data")
		s.plug(true)
		d := NewDisks([]Disk{{"usb", "DATA"}}, t.TempDir(), "a", late{s}, newPlayed())
		stop := r.live(d)
		passes()
		if got := r.events.all(); lies(t, d.States()[0].Shelf) != api.VolumeFor(c) || strings.Contains(got, "ProvisioningFailed") {
			t.Errorf("%q, %s", lies(t, d.States()[0].Shelf), got)
		}
		stop()
	})
}

// TestDisksWithLinks: somebody brings a disk with a link where the claims are to be.
func TestDisksWithLinks(t *testing.T) {
	r, s, d := onDisk(t)
	_ = r
	if err := os.Symlink("/etc", filepath.Join(s.stick, "ledge-claims.a")); err != nil {
		t.Fatal(err)
	}
	s.plug(true)
	d.list[0].look()
	if got := d.States()[0]; got.Err == nil || !strings.Contains(got.Err.Error(), "no directory") || s.mountedAt != "" || s.refused == nil {
		t.Errorf("%v, mounted at %q", got.Err, s.mountedAt)
	}
}

// TestUnmountedByHand: somebody unmounts a disk between two looks. Nothing is made in the empty mount point, no volume goes whose directory
// is not seen, and the disk is mounted again.
func TestUnmountedByHand(t *testing.T) { // N-13.17
	synctest.Test(t, func(t *testing.T) {
		r, s, d := onDisk(t)
		s.plug(true)
		stop := r.live(d)
		c := r.claimOn("usb", "first")
		passes()
		at, name, place := d.States()[0].Shelf, api.VolumeFor(c), d.list[0].place
		if lies(t, at) != name {
			t.Fatalf("on the disk: %s", lies(t, at))
		}
		r.bind(c)
		r.release(name)
		time.Sleep(time.Second)
		if err := s.Unmount(place); err != nil {
			t.Fatal(err)
		}
		s.plug(false)
		r.claimOn("usb", "second")
		time.Sleep(time.Second)
		synctest.Wait()
		if err := at.Make("third", 1<<20); !errors.Is(err, errUnmounted) && !errors.Is(err, errGone) {
			t.Errorf("made in an empty mount point: %v", err)
		}
		if list, err := os.ReadDir(place); err != nil || len(list) > 0 {
			t.Errorf("in the empty mount point: %v %v", list, err)
		}
		r.unprotect(name)
		passes()
		if got := r.volumes(); !strings.HasPrefix(got, "first") {
			t.Errorf("the volume went and its data stay: %q", got)
		}
		s.plug(true)
		passes()
		if strings.Contains(lies(t, at), name) || strings.Contains(r.volumes(), "first") {
			t.Errorf("on the disk %s, volumes %s", lies(t, at), r.volumes())
		}
		stop()
	})
}

// hasty is a slot whose disk somebody unmounts right after it was asked whether it is mounted.
type hasty struct {
	*slot
	armed atomic.Bool
}

func (h *hasty) Stands(at string) (mounted, there bool, device string, err error) {
	mounted, there, device, err = h.slot.Stands(at)
	if mounted && h.armed.CompareAndSwap(true, false) {
		err = h.Unmount(at)
	}
	return mounted, there, device, err
}

// TestUnmountedWhileRead: what was read counts only if the disk stands there afterwards.
func TestUnmountedWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, _ := onDisk(t)
		h := &hasty{slot: s}
		d := NewDisks([]Disk{{"usb", "DATA"}}, t.TempDir(), "a", h, newPlayed())
		s.plug(true)
		stop := r.live(d)
		c := r.claimOn("usb", "data")
		passes()
		r.bind(c)
		name := api.VolumeFor(c)
		r.release(name)
		passes()
		time.Sleep(time.Second)
		h.armed.Store(true)
		r.unprotect(name)
		synctest.Wait()
		if h.armed.Load() || r.volumes() == "" {
			t.Errorf("armed %v, volumes %q", h.armed.Load(), r.volumes())
		}
		passes()
		if got := r.volumes() + lies(t, d.States()[0].Shelf); got != "" {
			t.Errorf("when it is mounted again: %s", got)
		}
		stop()
	})
}

// unprotect says of a volume that is being deleted that nobody uses it any more.
func (r *rig) unprotect(name string) {
	r.t.Helper()
	v, err := api.Get[*corev1.PersistentVolume](r.t.Context(), r.client, api.PersistentVolumes, "", name)
	if err == nil {
		v.Finalizers = []string{api.CardFinalizer}
		_, err = api.Update(r.t.Context(), r.client, api.PersistentVolumes, v)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// unclaim deletes a claim, as it is now.
func (r *rig) unclaim(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	r.t.Helper()
	c, err := api.Get[*corev1.PersistentVolumeClaim](r.t.Context(), r.client, api.PersistentVolumeClaims, c.Namespace, c.Name)
	if err == nil {
		c.Finalizers = nil
		_, err = api.Update(r.t.Context(), r.client, api.PersistentVolumeClaims, c)
	}
	if err == nil {
		_, err = r.client.Delete(r.t.Context(), api.PersistentVolumeClaims, c.Namespace, c.Name, api.DeleteOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// release deletes a volume, which something protects still.
func (r *rig) release(name string) {
	r.t.Helper()
	if _, err := r.client.Delete(r.t.Context(), api.PersistentVolumes, "", name, api.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// TestOtherConfiguration: a brain that starts again with another configuration keeps nothing mounted that is not in it.
func TestOtherConfiguration(t *testing.T) {
	_, s, d := onDisk(t)
	s.plug(true)
	s.label = "DATA"
	d.list[0].look()
	run := filepath.Dir(d.top)
	again := NewDisks([]Disk{{"usb", "DATA"}}, run, "a", s, newPlayed())
	if again.list[0].look(); again.States()[0].Err != nil || s.finds != 1 {
		t.Errorf("the same again: %v, found %d times", again.States()[0].Err, s.finds)
	}
	other := NewDisks([]Disk{{"usb", "OTHER"}}, run, "a", s, newPlayed())
	if other.list[0].look(); other.States()[0].Err == nil || s.mountedAt != "" {
		t.Errorf("another label: %+v, mounted at %q", other.States()[0], s.mountedAt)
	}
	again.list[0].look()
	if err := again.clear(); err != nil || s.mountedAt != again.list[0].place {
		t.Errorf("%v, mounted at %q", err, s.mountedAt)
	}
	renamed := NewDisks([]Disk{{"ssd", "DATA"}}, run, "a", s, newPlayed())
	if err := renamed.clear(); err != nil || s.mountedAt != "" {
		t.Errorf("another name: %v, mounted at %q", err, s.mountedAt)
	}
}

// stuck is a disk that does not return from a call any more.
type stuck struct {
	*played
	mu   sync.Mutex
	hold chan struct{}
}

func (s *stuck) On(f *os.File) error {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil && filepath.Base(f.Name()) == "usb" {
		<-hold
	}
	return s.played.On(f)
}

// TestDiskHangs: claims of the card are made and removed, people get their answers, and who waits for the disk is told.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, _ := onDisk(t)
		h := &stuck{played: newPlayed()}
		d := NewDisks([]Disk{{"usb", "DATA"}}, t.TempDir(), "a", s, h)
		s.plug(true)
		come := 0
		d.OnCome(func() { come++ })
		l := New(Config{Client: r.client, Node: "a", Shelf: r.shelf, Disks: d, Events: r.events, Retry: 10 * time.Second})
		end, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- l.Run(untilClosed(t, end)) }()
		on := r.claimOn("usb", "data")
		passes()
		r.bind(on)
		passes()
		h.mu.Lock()
		h.hold = make(chan struct{})
		h.mu.Unlock()
		late := r.claimOn("usb", "late")
		for _, name := range []string{"one", "two"} {
			c := r.claimOn("local", name)
			time.Sleep(time.Minute)
			synctest.Wait()
			if !strings.Contains(lies(t, r.shelf), api.VolumeFor(c)) {
				t.Errorf("on the card lies %q", lies(t, r.shelf))
			}
			r.bind(c)
		}
		if err := d.Absent(d.States()[0].Shelf.Path("x")); !errors.Is(err, errMute) || !strings.Contains(r.events.all(), "DiskAbsent data") {
			t.Errorf("%v; %s", err, r.events.all())
		}
		begun := time.Now()
		for _, v := range l.Volumes() {
			l.Use(v)
		}
		if states := l.Disks(); !errors.Is(states[0].Err, errMute) || time.Since(begun) > 2*askIn {
			t.Errorf("%v after %v", states[0].Err, time.Since(begun))
		}
		gone := l.Volumes()[len(l.Volumes())-1]
		if gone.Spec.ClaimRef.Name == "data" {
			gone = l.Volumes()[0]
		}
		r.release(gone.Name)
		r.unprotect(gone.Name)
		time.Sleep(time.Minute)
		synctest.Wait()
		if strings.Contains(lies(t, r.shelf), gone.Name) || strings.Contains(r.volumes(), gone.Spec.ClaimRef.Name) {
			t.Errorf("not removed: %s, %s", lies(t, r.shelf), r.volumes())
		}
		if late = r.unclaim(late); late.Annotations[api.SelectedNode] != "" {
			t.Error("the claim was not given back")
		}
		close(h.hold)
		h.mu.Lock()
		h.hold = nil
		h.mu.Unlock()
		passes()
		if got := r.volumes() + lies(t, d.States()[0].Shelf); strings.Contains(got, "late") || strings.Contains(got, api.VolumeFor(late)) {
			t.Errorf("the pass that has hung made what nobody wants any more: %s", got)
		}
		c := r.claimOn("usb", "more")
		passes()
		if got := lies(t, d.States()[0].Shelf); !strings.Contains(got, api.VolumeFor(c)) || l.Disks()[0].Err != nil {
			t.Errorf("it answers again: %q, %v", got, l.Disks()[0].Err)
		}
		close(end)
		if err := <-done; err != nil || come != 1 {
			t.Errorf("%v, it has come %d times", err, come)
		}
	})
}

// TestDiskOfAStranger: what a power cut left half-made is out of the way before anybody makes something, and a directory with more in it
// than any board ever makes is not read to its end.
func TestDiskOfAStranger(t *testing.T) {
	_, s, d := onDisk(t)
	half := filepath.Join(s.stick, "ledge-claims.a", newPrefix+"pvc-x")
	if err := os.MkdirAll(filepath.Join(half, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.plug(true)
	d.list[0].look()
	shelf := d.States()[0].Shelf
	if err := d.States()[0].Err; err != nil || lies(t, shelf) != gonePrefix+newPrefix+"pvc-x" {
		t.Fatalf("%v, %s", err, lies(t, shelf))
	}
	if err := errors.Join(shelf.Make("pvc-x", 1<<20), shelf.Sweep(gonePrefix)); err != nil || lies(t, shelf) != "pvc-x" {
		t.Errorf("%v, %s", err, lies(t, shelf))
	}
	if err := s.Unmount(s.mountedAt); err != nil {
		t.Fatal(err)
	}
	shelf.most = 20
	for i := range shelf.most + 1 {
		if err := os.WriteFile(filepath.Join(s.stick, "ledge-claims.a", fmt.Sprint("n", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.list[0].look()
	if err := d.States()[0].Err; err == nil || !strings.Contains(err.Error(), "too much") || s.mountedAt != "" {
		t.Errorf("%v, mounted at %q", err, s.mountedAt)
	}
}

// TestUnknownDisk: a class names a disk that this board does not have, and the claim is given back with the word.
func TestUnknownDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if _, err := api.Create(t.Context(), r.client, storage.StorageClasses, storage.OnDisk("tape")); err != nil {
			t.Fatal(err)
		}
		r.claimOn("tape", "data")
		r.run()
		if got := r.volumes() + lies(t, r.shelf); got != "" || r.events.all() != "ProvisioningFailed data" {
			t.Errorf("%s, events %s", got, r.events.all())
		}
	})
}

// TestDeviceOf: which device a volume lies on, if that is there.
func TestDeviceOf(t *testing.T) {
	r, _, d := onDisk(t)
	l := New(Config{Client: r.client, Node: "a", Shelf: r.shelf, Disks: d, Events: r.events})
	at := func(path string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{}
		v.Name, v.Spec.Local = filepath.Base(path), &corev1.LocalVolumeSource{Path: path}
		return v
	}
	stick := at(d.list[0].shelf.Path("pvc-2"))
	is := func(v *corev1.PersistentVolume, device string, here bool) {
		t.Helper()
		if got, ok := l.DeviceOf(v); got != device || ok != here {
			t.Errorf("%s: %q %t", v.Spec.Local.Path, got, ok)
		}
	}
	is(at(r.shelf.Path("pvc-1")), "", true)
	is(at("/elsewhere/pvc-1"), "", false)
	is(stick, "", false)
	d.list[0].why, d.list[0].device = nil, "/dev/sdx1"
	is(stick, "/dev/sdx1", true)
}
