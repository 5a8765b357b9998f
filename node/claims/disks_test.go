package claims

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
}

func (s *slot) Find(label string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.in {
		return "", errors.New("no disk has a partition labelled " + label)
	}
	return "/dev/sda1", nil
}

func (s *slot) Mount(device, at string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	return os.Rename(at, s.stick)
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

// TestDisksWithLinks: somebody brings a disk with a link where the claims are to be.
func TestDisksWithLinks(t *testing.T) {
	r, s, d := onDisk(t)
	_ = r
	if err := os.Symlink("/etc", filepath.Join(s.stick, "ledge-claims.a")); err != nil {
		t.Fatal(err)
	}
	s.plug(true)
	d.look()
	if got := d.States()[0]; got.Err == nil || !strings.Contains(got.Err.Error(), "no directory") || s.mountedAt != "" {
		t.Errorf("%v, mounted at %q", got.Err, s.mountedAt)
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
