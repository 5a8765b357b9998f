package images_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/images/layers"
)

// TestDamage: whatever a power cut did to a layer is found before a pod starts on it, and repaired from the kept
// blob without any network; an import of the same archive repairs too.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(layer string) error{
		"zero length": func(l string) error { return os.Truncate(l+"/fs/bin/app", 0) },
		"missing":     func(l string) error { return os.RemoveAll(l + "/fs/bin") },
		"no manifest": func(l string) error { return os.Remove(l + "/manifest") },
		"no row":      func(l string) error { return os.Truncate(l+"/row.json", 0) },
		"no layer":    func(l string) error { return os.RemoveAll(l) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			img := b.load(it.OCI(it.Sample("app")))[0]
			layer := filepath.Join(b.root, "layers", strings.TrimPrefix(img.Layers[0], "sha256:"))
			if err := damage(layer); err != nil {
				t.Fatal(err)
			}
			b.powerCut()
			dir, err := b.disk.Mount(t.Context(), img.ID, "pod")
			if err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(dir + "/bin/app"); err != nil || string(data) != "program app" {
				t.Errorf("%q, %v", data, err)
			}
			if !strings.Contains(b.log.String(), "image repaired") && name != "no row" {
				t.Errorf("log: %s", b.log.String())
			}
			b.whole("app")
			// Again, on a running machine, seen by Import.
			if err := b.disk.Unmount(t.Context(), "pod"); err != nil {
				t.Fatal(err)
			}
			if name == "no row" {
				return
			}
			if err := damage(layer); err != nil {
				t.Fatal(err)
			}
			b.load(it.OCI(it.Sample("app")))
			b.whole("app")
			b.tidy()
		})
	}
}

// TestCleanStopIsTrusted: after an orderly stop no layer is looked at again.
func TestCleanStopIsTrusted(t *testing.T) {
	b := newBoard(t)
	img := b.load(it.OCI(it.Sample("app")))[0]
	if err := b.disk.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.run); err != nil {
		t.Fatal(err)
	}
	counting := &countingLayers{Overlay: layers.New(layers.Config{})}
	cfg := b.config()
	cfg.Layers = counting
	d, err := images.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.disk = d
	if _, err := d.Mount(t.Context(), img.ID, "pod"); err != nil || counting.verified != 0 {
		t.Errorf("%d layers looked at, %v", counting.verified, err)
	}
	b.stopUnclean()
	if b.disk, err = images.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.disk.Mount(t.Context(), img.ID, "pod"); err != nil || counting.verified != 2 {
			t.Errorf("%d layers looked at, %v", counting.verified, err)
		}
		if err := b.disk.Unmount(t.Context(), "pod"); err != nil {
			t.Fatal(err)
		}
	}
}

type countingLayers struct {
	*layers.Overlay
	verified int
}

func (c *countingLayers) Verify(ctx context.Context, dir, manifest string, full bool) error {
	c.verified++
	return c.Overlay.Verify(ctx, dir, manifest, full)
}

// TestVerifyRepairs: a flipped bit is only seen by reading everything; what stands on the old layer goes on.
func TestVerifyRepairs(t *testing.T) {
	b := newBoard(t)
	img := b.load(it.OCI(it.Sample("app")))[0]
	dir, err := b.disk.Mount(t.Context(), img.ID, "pod")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.root, "layers", strings.TrimPrefix(img.Layers[0], "sha256:"), "fs/bin/app")
	if err := os.WriteFile(file, []byte("prograM app"), 0o644); err != nil {
		t.Fatal(err)
	}
	rep, err := b.disk.Verify(t.Context())
	if err != nil || rep.Layers != 2 || len(rep.Lost) != 0 || len(rep.Repaired) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "program app" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := os.Stat(dir + "/bin/app"); err != nil {
		t.Errorf("the running pod lost its file: %v", err)
	}
	if list := b.files("layers/.old-*"); len(list) != 1 {
		t.Errorf("replaced layers: %v", list)
	}
	b.restart() // the pod still runs
	if list := b.files("layers/.old-*"); len(list) != 1 {
		t.Errorf("replaced layers after a restart: %v", list)
	}
	b.powerCut()
	b.tidy()
	b.whole("app")
}

// TestBeyondRepair: with the blob damaged too the image is gone, and can be brought again.
func TestBeyondRepair(t *testing.T) {
	b := newBoard(t)
	img := b.load(it.OCI(it.Sample("app")))[0]
	b.load(it.OCI(it.Sample("other")))
	spoil := func() {
		for _, p := range b.files("layers/" + strings.TrimPrefix(img.Layers[0], "sha256:") + "/fs/bin/app") {
			if err := os.Truncate(filepath.Join(b.root, p), 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range b.files("blobs/sha256/*") {
			if p := filepath.Join(b.root, p); !sameAs(t, p, "other") {
				if err := os.WriteFile(p, []byte("rot"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	spoil()
	b.powerCut()
	if _, err := b.disk.Mount(t.Context(), img.ID, "pod"); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("mount: %v", err)
	}
	if _, err := b.disk.Get(t.Context(), "app"); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	b.load(it.OCI(it.Sample("app")))
	b.whole("app", "other") // and nothing else: the layer that was spared for it is in use, or gone
	spoil()
	if rep, err := b.disk.Verify(t.Context()); err != nil || !slices.Equal(rep.Lost, []string{img.ID}) || len(rep.Repaired) != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	b.load(it.OCI(it.Sample("app")))
	b.whole("app", "other")
	b.tidy()
}

// sameAs says whether a blob belongs to the sample image of a name.
func sameAs(t *testing.T, path, name string) bool {
	t.Helper()
	files := it.OCI(it.Sample(name))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(files, data)
}

// TestRowsLost: the index comes back empty, or with damaged rows, or from before the last import: the images are
// still there, with names and pins.
func TestRowsLost(t *testing.T) {
	b := newBoard(t)
	b.load(it.OCI(it.Sample("one", "one:2")))
	before := &memIndex{}
	rows, _, _ := b.index.All()
	for k, v := range rows {
		_ = before.Put(k, v)
	}
	b.load(it.OCI(it.Sample("two", "one:2")))
	for name, index := range map[string]*memIndex{
		"empty":   {},
		"older":   before,
		"damaged": {rows: map[string][]byte{}, damaged: []string{"image/x"}},
		"garbage": {rows: map[string][]byte{"image/sha256:../../x": []byte("{}"), "layer/" + someDigest: []byte("x"),
			"image/" + someDigest: []byte(`{"v":1}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			b.index = index
			b.powerCut()
			b.whole("one", "two")
			img, err := b.disk.Get(t.Context(), "one:2")
			if err != nil || !img.Pinned || !slices.Contains(img.Names, "docker.io/library/two:latest") {
				t.Errorf("one:2 is %+v, %v", img, err)
			}
			for key := range index.rows {
				if !strings.HasPrefix(key, "image/sha256:") && !strings.HasPrefix(key, "layer/sha256:") || strings.Contains(key, "..") {
					t.Errorf("row %s", key)
				}
			}
		})
	}
	// And the other way round: the copies beside the rows are written again.
	for _, p := range b.files("images/*") {
		if err := os.Truncate(filepath.Join(b.root, p), 0); err != nil {
			t.Fatal(err)
		}
	}
	b.powerCut()
	b.whole("one", "two")
	b.index = &memIndex{}
	b.powerCut()
	b.whole("one", "two")
}

// TestNewerRowsAreRefused: an older ledge must not throw away what it does not understand.
func TestNewerRowsAreRefused(t *testing.T) {
	b := newBoard(t)
	b.load(it.OCI(it.Sample("app")))
	b.stopUnclean()
	x := b.index.(*memIndex)
	for k, v := range x.rows {
		x.rows[k] = bytes.Replace(v, []byte(`"v":1`), []byte(`"v":2`), 1)
	}
	_, err := images.Open(t.Context(), b.config())
	if err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("open: %v", err)
	}
	if len(b.files("layers/*")) != 2 || len(x.rows) != 3 {
		t.Error("something was thrown away")
	}
}
