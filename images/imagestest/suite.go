// Package imagestest is the suite that every images.Store passes, and builders of the archives it imports.
package imagestest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/images"
)

// Run runs the suite. open gives an empty store that pulls from a registry; it is not shared, and closed by the
// caller's own means.
func Run(t *testing.T, open func(t *testing.T, reg images.Registry) images.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s images.Store)
	}{
		{"Empty", testEmpty},
		{"ImportAndGet", testImportAndGet},
		{"ImportKinds", testImportKinds},
		{"ImportAgain", testImportAgain},
		{"ImportRefused", testImportRefused},
		{"NameMoves", testNameMoves},
		{"Remove", testRemove},
		{"RemoveInUse", testRemoveInUse},
		{"Mount", testMount},
		{"MountRefused", testMountRefused},
		{"Retain", testRetain},
		{"ListIsACopy", testListIsACopy},
		{"Parallel", testParallel},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t, nil)) })
	}
	for _, c := range []struct {
		name string
		test func(t *testing.T, s images.Store, r *Registry)
	}{
		{"Pull", testPull},
		{"PullAgain", testPullAgain},
		{"PullPlatform", testPullPlatform},
		{"PullRefused", testPullRefused},
		{"PullOverImport", testPullOverImport},
		{"PullParallel", testPullParallel},
		{"Counts", testCounts},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Registry{}
			c.test(t, open(t, r), r)
		})
	}
}

// Sample is a small image of two layers.
func Sample(names ...string) Image {
	return Image{Names: names, Compress: Gzip,
		Config: v1.ImageConfig{Entrypoint: []string{"/bin/app"}, Cmd: []string{"run"}, Env: []string{"A=1"}, WorkingDir: "/srv",
			User: "7:8", StopSignal: "SIGINT", Volumes: map[string]struct{}{"/data": {}, "/cache": {}}, Labels: map[string]string{"k": "v"}},
		Layers: [][]byte{Layer(Dir("bin"), File("bin/app", "program "+strings.Join(names, " "))), Layer(File("srv/index", "content"))}}
}

func mustImport(t *testing.T, s images.Store, archive []byte) []images.Image {
	t.Helper()
	list, err := s.Import(t.Context(), bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func mustGet(t *testing.T, s images.Store, ref string) images.Image {
	t.Helper()
	img, err := s.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func count(t *testing.T, s images.Store) int {
	t.Helper()
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func testEmpty(t *testing.T, s images.Store) {
	if n := count(t, s); n != 0 {
		t.Errorf("%d images", n)
	}
	for _, ref := range []string{"busybox", "busybox@" + Digest(nil), Digest(nil), strings.TrimPrefix(Digest(nil), "sha256:")} {
		_, err := s.Get(t.Context(), ref)
		wantErr(t, "get "+ref, err, images.ErrNotFound)
		wantErr(t, "remove "+ref, s.Remove(t.Context(), ref), images.ErrNotFound)
	}
	for _, ref := range []string{"", "UPPER", "a b", "a@sha256:12", "../x"} {
		_, err := s.Get(t.Context(), ref)
		wantErr(t, "get "+ref, err, images.ErrInvalidName)
	}
	_, err := s.Mount(t.Context(), Digest(nil), "key")
	wantErr(t, "mount", err, images.ErrNotFound)
	if err := s.Unmount(t.Context(), "key"); err != nil {
		t.Errorf("unmount of an unknown key: %v", err)
	}
	if err := s.Retain(t.Context(), nil); err != nil {
		t.Errorf("retain: %v", err)
	}
}

func testImportAndGet(t *testing.T, s images.Store) {
	im := Sample("app:1.0", "registry.local:5000/team/app")
	list := mustImport(t, s, OCI(im))
	if len(list) != 1 {
		t.Fatalf("%d images", len(list))
	}
	got := list[0]
	if got.ID != im.ID() || !got.Pinned || len(got.Layers) != 2 || got.CreatedAt.IsZero() {
		t.Errorf("%+v", got)
	}
	// N-1.65 counts what an image takes on disk.
	if want := int64(len("program app:1.0 registry.local:5000/team/app") + len("content")); got.Size != want {
		t.Errorf("size %d, want %d", got.Size, want)
	}
	if want := []string{"docker.io/library/app:1.0", "registry.local:5000/team/app:latest"}; !slices.Equal(got.Names, want) {
		t.Errorf("names %q", got.Names)
	}
	if want := []string{"docker.io/library/app@" + im.ManifestDigest(),
		"registry.local:5000/team/app@" + im.ManifestDigest()}; !slices.Equal(got.Digests, want) {
		t.Errorf("digests %q", got.Digests)
	}
	c := got.Config
	if fmt.Sprintln(c.Entrypoint, c.Cmd, c.Env, c.WorkingDir, c.User, c.StopSignal, c.Volumes, c.Labels) !=
		"[/bin/app] [run] [A=1] /srv 7:8 SIGINT [/cache /data] map[k:v]\n" {
		t.Errorf("config %+v", c)
	}
	for _, ref := range []string{"app:1.0", "library/app:1.0", "docker.io/app:1.0", "index.docker.io/library/app:1.0",
		"registry.local:5000/team/app", "registry.local:5000/team/app:latest", "app@" + im.ManifestDigest(), "app:other@" + im.ManifestDigest(),
		im.ID(), strings.TrimPrefix(im.ID(), "sha256:"), im.ManifestDigest()} {
		if got := mustGet(t, s, ref); got.ID != im.ID() {
			t.Errorf("%s is %s", ref, got.ID)
		}
	}
	for _, ref := range []string{"app", "app:1", "team/app", "other@" + im.ManifestDigest()} {
		_, err := s.Get(t.Context(), ref)
		wantErr(t, "get "+ref, err, images.ErrNotFound)
	}
}

func testImportKinds(t *testing.T, s images.Store) {
	plain := Sample("one")
	plain.Compress = nil
	two := Sample("two")
	for i, archive := range [][]byte{OCI(plain, two), Docker(plain, two), Gzip(Docker(plain)), Gzip(OCI(two)), Zstd(OCI(two))} {
		for _, img := range mustImport(t, s, archive) {
			if want := map[string]string{plain.ID(): "docker.io/library/one:latest",
				two.ID(): "docker.io/library/two:latest"}[img.ID]; len(img.Names) != 1 || img.Names[0] != want {
				t.Errorf("archive %d: %+v", i, img)
			}
		}
	}
	if n := count(t, s); n != 2 {
		t.Errorf("%d images", n)
	}
}

func testImportAgain(t *testing.T, s images.Store) {
	im := Sample("app:1")
	first := mustImport(t, s, OCI(im))[0]
	im.Names = []string{"app:2"}
	second := mustImport(t, s, OCI(im))[0]
	if second.ID != first.ID || !slices.Equal(second.Names, []string{"docker.io/library/app:1", "docker.io/library/app:2"}) {
		t.Errorf("%+v", second)
	}
	if !second.CreatedAt.Equal(first.CreatedAt) || second.Size != first.Size || count(t, s) != 1 {
		t.Errorf("%+v", second)
	}
}

func testImportRefused(t *testing.T, s images.Store) {
	foreign := Sample("app")
	foreign.Platform = images.Platform{OS: "linux", Architecture: "s390x"}
	for name, archive := range map[string][]byte{
		"nothing": nil, "text": []byte(strings.Repeat("no tar ", 200)), "empty tar": Tar(nil), "other tar": Tar(map[string]string{"x": "y"}),
		"foreign": OCI(foreign), "foreign docker": Docker(foreign), "cut": OCI(Sample("app"))[:3000],
	} {
		if list, err := s.Import(t.Context(), bytes.NewReader(archive)); err == nil {
			t.Errorf("%s: %v", name, list)
		}
	}
	_, err := s.Import(t.Context(), bytes.NewReader(OCI(Sample("ledge.local/self"))))
	wantErr(t, "import of a built-in name", err, images.ErrBuiltIn)
	_, err = s.Import(t.Context(), bytes.NewReader(Docker(Sample("Not A Name"))))
	wantErr(t, "import of no name", err, images.ErrInvalidName)
	if n := count(t, s); n != 0 {
		t.Errorf("%d images", n)
	}
}

func testNameMoves(t *testing.T, s images.Store) {
	old, new := Sample("app", "app:old"), Sample("app")
	mustImport(t, s, OCI(old))
	mustImport(t, s, OCI(new))
	if got := mustGet(t, s, "app"); got.ID != new.ID() {
		t.Errorf("app is %s", got.ID)
	}
	if got := mustGet(t, s, "app:old"); got.ID != old.ID() || !slices.Equal(got.Names, []string{"docker.io/library/app:old"}) || !got.Pinned {
		t.Errorf("%+v", got)
	}
	next := Sample("app:old", "app:extra")
	mustImport(t, s, OCI(next))
	// Without a name it is still there for who knows its digest, but no longer kept for ever.
	if got := mustGet(t, s, old.ID()); len(got.Names) != 0 || got.Pinned {
		t.Errorf("%+v", got)
	}
}

func testRemove(t *testing.T, s images.Store) {
	im := Sample("app:1", "app:2", "other/app")
	mustImport(t, s, OCI(im))
	if err := s.Remove(t.Context(), "app:1"); err != nil {
		t.Fatal(err)
	}
	got := mustGet(t, s, im.ID())
	if !slices.Equal(got.Names, []string{"docker.io/library/app:2", "docker.io/other/app:latest"}) || len(got.Digests) != 2 {
		t.Errorf("%+v", got)
	}
	_, err := s.Get(t.Context(), "app:1")
	wantErr(t, "get", err, images.ErrNotFound)
	wantErr(t, "remove again", s.Remove(t.Context(), "app:1"), images.ErrNotFound)
	if err := s.Remove(t.Context(), "app:2"); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, s, im.ID()); !slices.Equal(got.Digests, []string{"docker.io/other/app@" + im.ManifestDigest()}) {
		t.Errorf("digests %q", got.Digests)
	}
	if err := s.Remove(t.Context(), "other/app:latest"); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s); n != 0 {
		t.Errorf("%d images", n)
	}
	// By ID it is the whole image.
	mustImport(t, s, OCI(im))
	if err := s.Remove(t.Context(), im.ID()); err != nil || count(t, s) != 0 {
		t.Errorf("remove by ID: %v, %d left", err, count(t, s))
	}
}

func testRemoveInUse(t *testing.T, s images.Store) {
	im := Sample("app:1", "app:2")
	mustImport(t, s, OCI(im))
	if _, err := s.Mount(t.Context(), im.ID(), "key"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "app:2"); err != nil {
		t.Errorf("a name of a used image: %v", err)
	}
	wantErr(t, "remove the last name", s.Remove(t.Context(), "app:1"), images.ErrInUse)
	wantErr(t, "remove by ID", s.Remove(t.Context(), im.ID()), images.ErrInUse)
	if err := s.Unmount(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "app:1"); err != nil {
		t.Error(err)
	}
}

func testMount(t *testing.T, s images.Store) {
	im := Sample("app")
	mustImport(t, s, OCI(im))
	a, err := s.Mount(t.Context(), im.ID(), "pod_a.0-1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Mount(t.Context(), im.ID(), "pod_a.0-1")
	if err != nil || again != a {
		t.Errorf("again: %q, %v; was %q", again, err, a)
	}
	b, err := s.Mount(t.Context(), im.ID(), "pod_b")
	if err != nil || b == a {
		t.Errorf("another key: %q, %v", b, err)
	}
	for range 2 {
		if err := s.Unmount(t.Context(), "pod_a.0-1"); err != nil {
			t.Error(err)
		}
	}
	if again, err := s.Mount(t.Context(), im.ID(), "pod_a.0-1"); err != nil || again != a {
		t.Errorf("anew: %q, %v", again, err)
	}
	if err := s.Retain(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func testMountRefused(t *testing.T, s images.Store) {
	one, two := Sample("one"), Sample("two")
	mustImport(t, s, OCI(one, two))
	for _, key := range []string{"", ".", "..", "a/b", "../x", "a b", ".hidden", strings.Repeat("k", 300)} {
		if dir, err := s.Mount(t.Context(), one.ID(), key); err == nil {
			t.Errorf("key %q was mounted at %s", key, dir)
		}
	}
	if _, err := s.Mount(t.Context(), one.ID(), "key"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mount(t.Context(), two.ID(), "key"); err == nil {
		t.Error("one key, two images")
	}
	_, err := s.Mount(t.Context(), Digest([]byte("x")), "other")
	wantErr(t, "mount", err, images.ErrNotFound)
	// What failed holds nothing in use.
	if err := s.Remove(t.Context(), two.ID()); err != nil {
		t.Error(err)
	}
	wantErr(t, "remove", s.Remove(t.Context(), one.ID()), images.ErrInUse)
	if err := s.Unmount(t.Context(), "key"); err != nil {
		t.Error(err)
	}
}

func testRetain(t *testing.T, s images.Store) {
	im := Sample("app")
	mustImport(t, s, OCI(im))
	for _, key := range []string{"a", "b", "c"} {
		if _, err := s.Mount(t.Context(), im.ID(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustGet(t, s, "app").UsedBy; !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("used by %q", got)
	}
	if err := s.Retain(t.Context(), []string{"b", "unknown"}); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(t.Context()); err != nil || !slices.Equal(list[0].UsedBy, []string{"b"}) {
		t.Errorf("used by %q, %v", list[0].UsedBy, err)
	}
	wantErr(t, "remove while b is kept", s.Remove(t.Context(), "app"), images.ErrInUse)
	if err := s.Retain(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "app"); err != nil {
		t.Error(err)
	}
}

func testListIsACopy(t *testing.T, s images.Store) {
	mustImport(t, s, OCI(Sample("app")))
	spoil := func(img images.Image) {
		img.Names[0], img.Digests[0], img.Layers[0], img.Config.Env[0] = "x", "x", "x", "x"
		img.Config.Labels["k"] = "x"
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spoil(list[0])
	spoil(mustGet(t, s, "app"))
	got := mustGet(t, s, "app")
	if got.Names[0] == "x" || got.Digests[0] == "x" || got.Layers[0] == "x" || got.Config.Env[0] == "x" || got.Config.Labels["k"] == "x" {
		t.Errorf("changed from outside: %+v", got)
	}
}

func testParallel(t *testing.T, s images.Store) {
	im := Sample("app")
	mustImport(t, s, OCI(im))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprint("key", i/2) // two on each
			for range 3 {
				if _, err := s.Mount(t.Context(), im.ID(), key); err != nil {
					t.Error(err)
				}
				if err := s.Unmount(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		other := Sample("other")
		for range 3 {
			if _, err := s.Import(t.Context(), bytes.NewReader(OCI(other))); err != nil {
				t.Error(err)
			}
			if err := s.Remove(t.Context(), "other"); err != nil {
				t.Error(err)
			}
			if _, err := s.List(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	if err := s.Retain(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
