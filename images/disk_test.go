package images_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/images/layers"
)

// TestOrder: the steps of reliability A2, in that order: blobs and their directory, one syncfs for all layers,
// then each manifest before its layer's name, the directory, and only then the rows.
func TestOrder(t *testing.T) {
	b := newBoard(t)
	var steps []string
	index := &watchedIndex{memIndex: b.index.(*memIndex), note: func(s string) { steps = append(steps, s) }}
	if err := b.disk.Close(); err != nil {
		t.Fatal(err)
	}
	b.index = index
	b.open()
	b.disk.Watch(func(step, path string) error {
		rel, err := filepath.Rel(b.root, path)
		if err != nil {
			return err
		}
		steps = append(steps, step+" "+shorten(rel))
		return nil
	})
	steps = nil
	b.load(it.OCI(it.Sample("app")))
	want := strings.Fields(strings.Join(strings.Split(`
		fsync ingest/*
		rename blobs/*
		fsync ingest/*
		rename blobs/*
		fsync ingest/*
		rename blobs/*
		fsync ingest/*
		rename blobs/*
		fsync blobs/sha256
		syncfs layers
		fsync layers/*/manifest
		rename layers/*
		fsync layers/*/manifest
		rename layers/*
		fsync layers
		put layer
		put layer
		fsync images/*
		rename images/*
		fsync images
		put image`, "\n"), " "))
	if got := strings.Fields(strings.Join(steps, " ")); !slices.Equal(got, want) {
		t.Errorf("steps:\n%s", strings.Join(steps, "\n"))
	}
	// Nothing new to unpack: nothing to sync but what came.
	steps = nil
	b.load(it.OCI(it.Sample("app")))
	if slices.Contains(steps, "syncfs layers") {
		t.Errorf("steps of a second import:\n%s", strings.Join(steps, "\n"))
	}
	// Out again: the second copy of the row first, then the rows, then the content.
	steps = nil
	if err := b.disk.Remove(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(steps, ", "); got != "fsync images, delete image, delete layer, rename layers/*/layer, delete layer, rename layers/*/layer" {
		t.Errorf("steps of remove: %s", got)
	}
}

func shorten(rel string) string {
	parts := strings.Split(rel, "/")
	switch {
	case len(parts) == 1 || rel == "blobs/sha256":
		return rel
	case len(parts) == 3 && parts[0] == "layers":
		return "layers/*/" + parts[2]
	}
	return parts[0] + "/*"
}

// watchedIndex tells of its writes.
type watchedIndex struct {
	*memIndex
	note func(string)
}

func (x *watchedIndex) Put(key string, value []byte) error {
	x.note("put " + strings.Split(key, "/")[0])
	return x.memIndex.Put(key, value)
}

func (x *watchedIndex) Delete(key string) error {
	x.note("delete " + strings.Split(key, "/")[0])
	return x.memIndex.Delete(key)
}

// TestStepsFail: whichever step fails, with a full disk or a broken one, the image is absent and the store in
// order; after a failed sync nothing more is taken until it is opened again.
func TestStepsFail(t *testing.T) {
	for _, fault := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		for n := 0; ; n++ {
			b := newBoard(t)
			b.load(it.OCI(it.Sample("before")))
			left, failed := n, ""
			b.disk.Watch(func(step, path string) error {
				if left--; left == -1 {
					failed = step
					return fault
				}
				return nil
			})
			_, err := b.disk.Import(t.Context(), bytes.NewReader(it.OCI(it.Sample("app"))))
			b.disk.Watch(nil)
			if failed == "" {
				if err != nil || n < 15 {
					t.Fatalf("after %d steps: %v", n, err)
				}
				break
			}
			if !errors.Is(err, fault) {
				t.Errorf("step %d (%s): %v", n, failed, err)
			}
			if _, err := b.disk.Get(t.Context(), "app"); !errors.Is(err, images.ErrNotFound) {
				t.Errorf("step %d (%s): get: %v", n, failed, err)
			}
			b.tidy()
			_, err = b.disk.Import(t.Context(), bytes.NewReader(it.OCI(it.Sample("app"))))
			if sync := strings.Contains(failed, "sync"); sync != (err != nil) {
				t.Errorf("step %d (%s): import after it: %v", n, failed, err)
			}
			b.powerCutAfterFailure()
			b.load(it.OCI(it.Sample("app")))
			b.whole("app", "before")
		}
	}
}

// powerCutAfterFailure is powerCut of a store that may not write its clean mark.
func (b *board) powerCutAfterFailure() {
	b.t.Helper()
	if err := b.disk.Close(); err != nil {
		b.t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(b.root, "clean"))
	if err := os.RemoveAll(b.run); err != nil {
		b.t.Fatal(err)
	}
	b.open()
	b.tidy()
}

// whole checks that images are there, byte for byte, and nothing else is.
func (b *board) whole(names ...string) {
	b.t.Helper()
	rep, err := b.disk.Verify(context.Background())
	if err != nil || len(rep.Repaired)+len(rep.Lost) > 0 {
		b.t.Errorf("verify: %+v, %v", rep, err)
	}
	list, err := b.disk.List(context.Background())
	if err != nil || len(list) != len(names) {
		b.t.Errorf("%d images, want %q; %v", len(list), names, err)
	}
	chains := map[string]bool{}
	for _, n := range names {
		img, err := b.disk.Get(context.Background(), n)
		if err != nil {
			b.t.Error(err)
		}
		for _, l := range img.Layers {
			chains[l] = true
		}
	}
	if dirs := b.files("layers/*"); len(dirs) != len(chains) {
		b.t.Errorf("layers on disk: %v, want %d", dirs, len(chains))
	}
}

// TestIndexFails: when the rows cannot be written the image is not there, now and later.
func TestIndexFails(t *testing.T) {
	b := newBoard(t)
	x := b.index.(*memIndex)
	x.fail = syscall.ENOSPC
	if _, err := b.disk.Import(t.Context(), bytes.NewReader(it.OCI(it.Sample("app")))); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("import: %v", err)
	}
	x.fail = nil
	if _, err := b.disk.Get(t.Context(), "app"); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	b.powerCut()
	b.load(it.OCI(it.Sample("app")))
	b.whole("app")
}

// TestRestartKeepsPods: a new process on the same boot finds what is mounted and goes on.
func TestRestartKeepsPods(t *testing.T) {
	b := newBoard(t)
	img := b.load(it.OCI(it.Sample("app")))[0]
	dir, err := b.disk.Mount(t.Context(), img.ID, "pod")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/written", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.disk.Mount(t.Context(), img.ID, "gone"); err != nil {
		t.Fatal(err)
	}
	// Rubbish of a process that was killed in the middle of Mount or Unmount.
	for _, p := range []string{b.root + "/containers/stray/upper", b.run + "/rootfs/stray"} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.restart()
	if list := b.files("containers/*"); len(list) != 2 {
		t.Errorf("containers: %v", list)
	}
	if again, err := b.disk.Mount(t.Context(), img.ID, "pod"); err != nil || again != dir {
		t.Errorf("%q, %v", again, err)
	}
	if data, err := os.ReadFile(dir + "/written"); err != nil || string(data) != "x" {
		t.Errorf("what the pod wrote: %q, %v", data, err)
	}
	if err := b.disk.Remove(t.Context(), "app"); !errors.Is(err, images.ErrInUse) {
		t.Errorf("remove: %v", err)
	}
	if err := b.disk.Retain(t.Context(), []string{"pod"}); err != nil {
		t.Fatal(err)
	}
	if list := b.files("containers/*"); !slices.Equal(list, []string{"containers/pod"}) {
		t.Errorf("containers: %v", list)
	}
	// After Unmount a key starts from nothing.
	if err := b.disk.Unmount(t.Context(), "pod"); err != nil {
		t.Fatal(err)
	}
	if dir, err = b.disk.Mount(t.Context(), img.ID, "pod"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir + "/written"); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if data, err := os.ReadFile(dir + "/srv/index"); err != nil || string(data) != "content" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestDirectoriesAreClosed: layers hold setuid programs that users of the host must not reach (CVE-2021-41103).
func TestDirectoriesAreClosed(t *testing.T) {
	b := newBoard(t)
	img := b.load(it.OCI(it.Sample("app")))[0]
	if _, err := b.disk.Mount(t.Context(), img.ID, "pod"); err != nil {
		t.Fatal(err)
	}
	for _, top := range []string{b.root, b.run} {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if base := filepath.Base(path); base == "fs" || base == "upper" || filepath.Dir(path) == b.run+"/rootfs" {
				return filepath.SkipDir // what containers see
			}
			fi, err := d.Info()
			if err == nil && fi.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, fi.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestOneAtATime: two processes on one store would each delete what the other has half-done.
func TestOneAtATime(t *testing.T) {
	b := newBoard(t)
	if _, err := images.Open(t.Context(), b.config()); err == nil || !strings.Contains(err.Error(), "another ledge") {
		t.Errorf("open: %v", err)
	}
	b.load(it.OCI(it.Sample("app")))
}

// TestImportBounds: what an archive may cost is bounded, and what was begun is cleared away.
func TestImportBounds(t *testing.T) {
	b := newBoard(t)
	if err := b.disk.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := b.config()
	cfg.MaxImport = 1 << 20
	cfg.Layers = layers.New(layers.Config{MaxBytes: 1 << 20})
	d, err := images.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.disk = d
	many := map[string]string{}
	for i := range 20001 {
		many[strings.Repeat("x", i%50)+string(rune('a'+i%26))+strings.Repeat("y", i/50)] = ""
	}
	bomb := it.Sample("bomb")
	bomb.Layers = append(bomb.Layers, it.Layer(it.File("zero", strings.Repeat("\x00", 2<<20))))
	liar, ix := it.OCIFiles(it.Sample("liar"))
	for name := range liar {
		if strings.HasPrefix(name, "blobs") && len(liar[name]) < 300 {
			liar[name] += "x"
		}
	}
	liar["index.json"] = string(it.JSON(ix))
	other := it.Sample("diff")
	files, ix2 := it.OCIFiles(other)
	files["index.json"] = string(it.JSON(ix2))
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"too long":      {it.Tar(map[string]string{"x": strings.Repeat("x", 2<<20)}), "more than 1048576 bytes"},
		"too many":      {it.Tar(many), "more than 20000 files"},
		"layer too big": {it.OCI(bomb), "more than 1048576 bytes"},
		"wrong digest":  {it.Tar(liar), "content has the digest"},
		"twice":         {append(it.Tar(map[string]string{"x": "1"})[:1024], it.Tar(map[string]string{"x": "2"})...), "twice"},
		"diff ID":       {wrongDiffID(), "unpacks to"},
	} {
		if _, err := d.Import(t.Context(), bytes.NewReader(c.archive)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		b.tidy()
		b.whole()
		if list := b.files("blobs/sha256/*"); len(list) != 0 {
			t.Errorf("%s: blobs %v", name, list)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(it.OCI(it.Sample("app"))[:2048]), readerFunc(func([]byte) (int, error) { cancel(); return 0, nil }))
	if _, err := d.Import(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	b.tidy()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// wrongDiffID is a docker archive whose config promises another layer than it brings.
func wrongDiffID() []byte {
	a := it.Sample("a")
	a.Layers, a.Compress = [][]byte{it.Layer(it.File("a", "1"))}, nil
	archive := it.Docker(a)
	evil := it.Layer(it.File("a", "2"))
	return bytes.Replace(archive, a.Layers[0], evil, 1)
}

// TestDockerLinks: docker save writes a layer that occurs twice as a link to the first.
func TestDockerLinks(t *testing.T) {
	b := newBoard(t)
	im := it.Sample("app")
	im.Compress = nil
	im.Layers = [][]byte{im.Layers[0], im.Layers[1], im.Layers[0]}
	archive := it.Docker(im)
	cut := bytes.Index(archive, []byte("0-2/layer.tar\x00"))
	if cut < 0 {
		t.Fatal("no third layer")
	}
	size := 512 + (len(im.Layers[2])+511)/512*512
	link := it.Layer(it.Symlink("0-2/layer.tar", "../0-0/layer.tar"))[:512]
	archive = slices.Concat(archive[:cut], link, archive[cut+size:])
	img := b.load(archive)[0]
	if img.ID != im.ID() || len(img.Layers) != 3 {
		t.Errorf("%+v", img)
	}
	b.whole("app")
}
