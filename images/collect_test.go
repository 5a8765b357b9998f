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
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/images"
	it "ledge/images/imagestest"
)

// fullDisk has the store see a disk of which only so many percent are free.
func fullDisk(b *board, percent uint64) func(*images.StoreConfig) {
	return func(c *images.StoreConfig) {
		c.GC.MinAge = time.Nanosecond
		c.Statfs = func(st *unix.Statfs_t) {
			st.Blocks, st.Bsize = 1<<20, 4096
			st.Bavail = st.Blocks * percent / 100
		}
	}
}

func (b *board) names() []string {
	b.t.Helper()
	list, err := b.disk.List(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, img := range list {
		for _, n := range img.Names {
			out = append(out, strings.TrimPrefix(n, "docker.io/library/"))
		}
	}
	return out
}

// TestCollect: pain 12, the disk is full and images go before pods; pain 11, imported ones never do.
func TestCollect(t *testing.T) {
	r := &it.Registry{}
	b := newBoard(t)
	b.setup = func(c *images.StoreConfig) {
		fullDisk(b, 10)(c)
		c.Registry = r
	}
	b.restart()
	for _, n := range []string{"a:1", "b:1", "c:1"} {
		im := it.Sample(n)
		im.Layers = append([][]byte{it.Layer(it.File("base", strings.Repeat("base", 100)))}, im.Layers...)
		r.Push(im)
		if _, err := b.pull(n); err != nil {
			t.Fatal(err)
		}
	}
	b.load(it.OCI(it.Sample("pinned:1")))
	mount := func(name, key string) {
		t.Helper()
		img, err := b.disk.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.disk.Mount(t.Context(), img.ID, key); err != nil {
			t.Fatal(err)
		}
	}
	mount("b:1", "runs")
	mount("a:1", "ran")
	if err := b.disk.Unmount(t.Context(), "ran"); err != nil {
		t.Fatal(err)
	}
	got, err := b.disk.Collect(t.Context(), false)
	if err != nil || got.Images != 2 || got.Short == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if n := b.names(); !slices.Equal(n, []string{"b:1", "pinned:1"}) {
		t.Errorf("left: %q", n)
	}
	if total := b.disk.Counts().Collected; total != got {
		t.Errorf("counted %+v, freed %+v", total, got)
	}
	if !strings.Contains(b.log.String(), "unused images removed") {
		t.Error("not logged")
	}
	b.tidy()
	b.whole("b:1", "pinned:1")
}

// The order of use outlives a restart, and a store without it collects all the same.
func TestCollectOrder(t *testing.T) {
	for _, lost := range []bool{false, true} {
		r := &it.Registry{}
		b := newBoard(t)
		b.setup = func(c *images.StoreConfig) { c.Registry = r }
		b.restart()
		var list []images.Image
		for _, n := range []string{"a:1", "b:1"} {
			im := bigImage(n, 1<<20)
			im.Layers[0] = it.Layer(it.File("name", n))
			im.Layers[1] = append(it.Layer(it.File("more", n)), im.Layers[1]...)
			im.Layers = im.Layers[:1]
			r.Push(im)
			p, err := b.pull(n)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, p.Image)
		}
		for _, i := range []int{1, 0} { // a was used last
			if _, err := b.disk.Mount(t.Context(), list[i].ID, "k"); err != nil {
				t.Fatal(err)
			}
			if err := b.disk.Unmount(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		used := uint64(0)
		b.setup = func(c *images.StoreConfig) {
			c.Registry = r
			c.GC = images.GCPolicy{High: 85, Low: 85}
			c.Statfs = func(st *unix.Statfs_t) { // one byte too much
				st.Bsize, st.Blocks, st.Bavail = 1, 100, 14+used
			}
		}
		b.restart()
		if lost {
			if err := b.disk.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(b.root, "uses.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			b.open()
		}
		if got, err := b.disk.Collect(t.Context(), false); err != nil || got.Images != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if n := b.names(); len(n) != 1 || !lost && n[0] != "a:1" {
			t.Errorf("left: %q", n)
		}
	}
}

// Young images stay: their pod may be about to start. Nothing goes while there is room.
func TestCollectSpares(t *testing.T) {
	r := &it.Registry{}
	b := newBoard(t)
	r.Push(it.Sample("a:1"))
	free := uint64(10)
	b.setup = func(c *images.StoreConfig) {
		c.Registry = r
		c.Statfs = func(st *unix.Statfs_t) { st.Blocks, st.Bavail = 100, free }
	}
	b.restart()
	if _, err := b.pull("a:1"); err != nil {
		t.Fatal(err)
	}
	for _, all := range []bool{false, true} {
		if got, err := b.disk.Collect(t.Context(), all); err != nil || got.Images != 0 {
			t.Errorf("young, all %v: %+v, %v", all, got, err)
		}
	}
	b.restart() // it was here before: old enough
	free = 50
	if got, err := b.disk.Collect(t.Context(), false); err != nil || got.Images != 0 {
		t.Errorf("room enough: %+v, %v", got, err)
	}
	if got, err := b.disk.Collect(t.Context(), true); err != nil || got.Images != 1 {
		t.Errorf("pressure: %+v, %v", got, err)
	}
}

// Downloads that were given up are freed when the disk is full, and those that go on are not.
func TestCollectParts(t *testing.T) {
	im := bigImage("app", 1<<20)
	b, r := pullBoard(t, im, nil)
	b.setup = func(c *images.StoreConfig) {
		c.Registry = r
		fullDisk(b, 50)(c)
	}
	b.restart()
	r.Stream = cutter(im, 1<<19)
	r.Fail = once(im, errors.New("no more"))
	if _, err := b.pull("app"); err == nil {
		t.Fatal("pulled")
	}
	if got, err := b.disk.Collect(t.Context(), false); err != nil || got.Parts != 0 {
		t.Errorf("with room: %+v, %v", got, err)
	}
	if got, err := b.disk.Collect(t.Context(), true); err != nil || got.Parts < 1<<19 {
		t.Errorf("under pressure: %+v, %v", got, err)
	}
	b.tidy()
	r.Fail, r.Stream = nil, nil
	block := make(chan struct{})
	r.Stream = onBig(im, func(_ int64, rd io.Reader) io.Reader {
		return io.MultiReader(io.LimitReader(rd, 1<<19), &waiting{block}, rd)
	})
	done := make(chan error, 1)
	go func() { _, err := b.pull("app"); done <- err }()
	for len(b.files("ingest/*.part")) == 0 {
		time.Sleep(time.Millisecond)
	}
	if got, err := b.disk.Collect(t.Context(), true); err != nil || got.Parts != 0 {
		t.Errorf("while it comes: %+v, %v", got, err)
	}
	close(block)
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.mustRun(im)
}

// An archive made of an image is the image again, digests and all, wherever it came from.
func TestExport(t *testing.T) {
	im := it.Sample("app:1", "registry.local:5000/app:2")
	for name, archive := range map[string][]byte{"oci": it.OCI(im), "docker": it.Docker(im)} {
		b := newBoard(t)
		b.load(archive)
		var out bytes.Buffer
		if err := b.disk.Export(t.Context(), &out, []string{"app:1", "registry.local:5000/app:2"}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		other := newBoard(t)
		got := other.load(out.Bytes())
		if len(got) != 1 || got[0].ID != im.ID() ||
			!slices.Equal(got[0].Names, []string{"docker.io/library/app:1", "registry.local:5000/app:2"}) {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "oci" && !slices.Contains(got[0].Digests, "docker.io/library/app@"+im.ManifestDigest()) {
			t.Errorf("%s: digests %q", name, got[0].Digests)
		}
		other.whole("app:1")
		// What rots on the card is not carried on.
		for _, f := range b.files("blobs/sha256/*") {
			path := filepath.Join(b.root, f)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.disk.Export(t.Context(), &out, []string{"app:1"}); !errors.Is(err, images.ErrDamaged) {
			t.Errorf("%s, rotten: %v", name, err)
		}
	}
}

// A pulled image can be exported only if it was pinned: then its layers are kept as they came, also those that were
// here already.
func TestPinAndExport(t *testing.T) {
	im := it.Sample("app:1")
	b, _ := pullBoard(t, im, nil)
	if _, err := b.pull("app:1"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := b.disk.Export(t.Context(), &out, []string{"app:1"}); !errors.Is(err, images.ErrNotKept) {
		t.Errorf("%v", err)
	}
	for range 2 {
		p, err := b.disk.Pull(t.Context(), images.PullRequest{Ref: "app:1", Pin: true})
		if err != nil || !p.Image.Pinned || !p.Image.Kept {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	if err := b.disk.Export(t.Context(), &out, []string{"app:1", im.ID()}); err != nil {
		t.Fatal(err)
	}
	if got := newBoard(t).load(out.Bytes()); len(got) != 1 || got[0].ID != im.ID() {
		t.Errorf("%+v", got)
	}
	b.tidy()
	if err := b.disk.Export(t.Context(), &out, []string{"none"}); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// keepBlobs: none keeps nothing but the layers of an imported image either.
func TestImportKeepsNone(t *testing.T) {
	b := newBoard(t)
	b.setup = func(c *images.StoreConfig) { c.KeepBlobs = images.KeepNone }
	b.restart()
	im := it.Sample("app:1")
	if img := b.load(it.OCI(im))[0]; img.Kept || !img.Pinned {
		t.Errorf("%+v", img)
	}
	if list := b.files("blobs/sha256/*"); len(list) != 2 { // config and manifest
		t.Errorf("%q", list)
	}
	b.tidy()
	b.restart()
	b.whole("app:1")
}

// What is on disk is counted once for all who share it.
func TestShared(t *testing.T) {
	b := newBoard(t)
	one, two := it.Sample("one:1"), it.Sample("two:1")
	two.Layers = [][]byte{one.Layers[0], it.Layer(it.File("own", "own"))}
	b.load(it.OCI(one))
	if img := b.load(it.OCI(two))[0]; img.Shared != int64(len("program one:1")) || img.Size != img.Shared+int64(len("own")) {
		t.Errorf("%d of %d shared", img.Shared, img.Size)
	}
}

// Check says what is damaged and changes nothing; the damage is mended when it matters.
func TestCheck(t *testing.T) {
	b := newBoard(t)
	img := b.load(it.OCI(it.Sample("app:1")))[0]
	if rep, err := b.disk.Check(t.Context()); err != nil || rep.Layers != 2 || len(rep.Damaged) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	file := filepath.Join(b.root, "layers", strings.TrimPrefix(img.Layers[0], "sha256:"), "fs/bin/app")
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), len("program app:1")), 0o644); err != nil {
		t.Fatal(err)
	}
	rep, err := b.disk.Check(t.Context())
	if err != nil || !slices.Equal(rep.Damaged, img.Layers[:1]) || len(rep.Repaired)+len(rep.Lost) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	if data, err := os.ReadFile(file); err != nil || data[0] != 'x' {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := b.disk.Mount(t.Context(), img.ID, "k"); err != nil {
		t.Error(err)
	}
	if err := b.disk.Unmount(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	b.whole("app:1")
}

// A pull that does not fit makes room first, and says so when there is none to be made.
func TestPullMakesRoom(t *testing.T) {
	r := &it.Registry{}
	old, big := it.Sample("old:1"), bigImage("big:1", 1<<20)
	r.Push(old, big)
	b := newBoard(t)
	fits := false
	b.setup = func(c *images.StoreConfig) {
		c.Registry = r
		c.GC.MinAge = time.Nanosecond
		c.Statfs = func(st *unix.Statfs_t) {
			if len(b.files("images/*.json")) > 0 || !fits { // the old image is in the way
				st.Bavail = 1
			}
		}
	}
	b.restart()
	if _, err := b.pull("old:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pull("big:1"); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "are free on the disk") {
		t.Errorf("%v", err)
	}
	fits = true
	if _, err := b.pull("old:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pull("big:1"); err != nil {
		t.Fatal(err)
	}
	if got := b.names(); !slices.Equal(got, []string{"big:1"}) {
		t.Errorf("%q", got)
	}
	b.mustRun(big)
}
