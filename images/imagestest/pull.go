package imagestest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/images"
)

func mustPull(t *testing.T, s images.Store, ref string) images.Pulled {
	t.Helper()
	p, err := s.Pull(t.Context(), images.PullRequest{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func testPull(t *testing.T, s images.Store, r *Registry) {
	im := Sample("registry.local:5000/team/app:1")
	r.Push(im)
	p := mustPull(t, s, im.Names[0])
	if p.Image.ID != im.ID() || p.Image.Pinned || p.Present || p.Bytes == 0 || len(p.Image.Layers) != 2 {
		t.Errorf("%+v", p)
	}
	byDigest := "registry.local:5000/team/app@" + im.ManifestDigest()
	if !slices.Equal(p.Image.Names, im.Names) || !slices.Contains(p.Image.Digests, byDigest) {
		t.Errorf("%v %v", p.Image.Names, p.Image.Digests)
	}
	if c := p.Image.Config; c.User != "7:8" || c.StopSignal != "SIGINT" || !slices.Equal(c.Entrypoint, []string{"/bin/app"}) {
		t.Errorf("%+v", c)
	}
	for _, ref := range append(im.Names, byDigest, im.ID()) {
		if got := mustGet(t, s, ref); got.ID != im.ID() {
			t.Errorf("%s: %s", ref, got.ID)
		}
	}
	if _, err := s.Mount(t.Context(), im.ID(), "key"); err != nil {
		t.Error(err)
	}
	if err := s.Retain(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func testPullAgain(t *testing.T, s images.Store, r *Registry) {
	one, two := Sample("app:1"), Sample("app:1", "other:2")
	r.Push(one)
	mustPull(t, s, "app:1")
	blob := one.build().packed[0]
	if p := mustPull(t, s, "app:1"); !p.Present || p.Bytes != 0 || r.Served(Digest(blob)) != 1 {
		t.Errorf("the same again: %+v, served %d times", p, r.Served(Digest(blob)))
	}
	// By digest nothing is asked of anybody.
	r.Fail = func(string, string) error { return fmt.Errorf("no network: %w", images.ErrUnreachable) }
	if p := mustPull(t, s, "app@"+one.ManifestDigest()); !p.Present {
		t.Errorf("by digest: %+v", p)
	}
	if p, err := s.Pull(t.Context(), images.PullRequest{Ref: "app:1", IfMissing: true}); err != nil || !p.Present {
		t.Errorf("if missing: %+v, %v", p, err)
	}
	_, err := s.Pull(t.Context(), images.PullRequest{Ref: "app:1"})
	wantErr(t, "without a network", err, images.ErrUnreachable)
	// The tag moves on.
	r.Fail = nil
	r.Push(two)
	if p := mustPull(t, s, "app:1"); p.Present || p.Image.ID != two.ID() {
		t.Errorf("moved: %+v", p)
	}
	if got := mustGet(t, s, one.ID()); len(got.Names) != 0 {
		t.Errorf("old names %v", got.Names)
	}
}

func testPullPlatform(t *testing.T, s images.Store, r *Registry) {
	here := images.HostPlatform()
	mine, other := Sample("app"), Sample("app")
	mine.Layers, other.Layers = mine.Layers[:1], other.Layers[1:]
	mine.Platform, other.Platform = here, images.Platform{OS: "linux", Architecture: "s390x"}
	r.PushIndex("app", other, mine)
	p := mustPull(t, s, "app")
	if p.Image.ID != mine.ID() || len(p.Image.Digests) != 2 {
		t.Errorf("%+v", p.Image)
	}
	r.PushIndex("foreign", other)
	_, err := s.Pull(t.Context(), images.PullRequest{Ref: "foreign"})
	if err == nil || !strings.Contains(err.Error(), "linux/s390x") {
		t.Errorf("foreign: %v", err)
	}
}

func testPullRefused(t *testing.T, s images.Store, r *Registry) {
	im := Sample("app")
	b := im.build()
	r.Push(im)
	var m v1.Manifest
	for name, c := range map[string]struct {
		spoil func()
		typ   string
	}{
		"nothing":    {func() { m = v1.Manifest{} }, v1.MediaTypeImageManifest},
		"not-json":   {nil, v1.MediaTypeImageManifest},
		"mismatch":   {func() { m.MediaType = v1.MediaTypeImageIndex }, v1.MediaTypeImageManifest},
		"config":     {func() { m.Config.MediaType = "application/vnd.example" }, v1.MediaTypeImageManifest},
		"layer-type": {func() { m.Layers[0].MediaType = "application/x-rar" }, v1.MediaTypeImageManifest},
		"layer-gone": {func() { m.Layers[0].Digest = Descriptor("", []byte("gone")).Digest }, v1.MediaTypeImageManifest},
		"digest":     {func() { m.Layers[0].Digest = "sha256:../../etc" }, v1.MediaTypeImageManifest},
		"size":       {func() { m.Layers[0].Size = -1 }, v1.MediaTypeImageManifest},
		"too-long":   {func() { m.Layers[0].Size++ }, v1.MediaTypeImageManifest},
		"too-short":  {func() { m.Layers[0].Size-- }, v1.MediaTypeImageManifest},
		"fewer":      {func() { m.Layers = m.Layers[:1] }, v1.MediaTypeImageManifest},
		"swapped":    {func() { slices.Reverse(m.Layers) }, v1.MediaTypeImageManifest},
		"schema1":    {func() {}, "application/vnd.docker.distribution.manifest.v1+json"},
	} {
		m = v1.Manifest{MediaType: c.typ, Config: Descriptor(v1.MediaTypeImageConfig, b.config)}
		for _, l := range b.packed {
			m.Layers = append(m.Layers, Descriptor(v1.MediaTypeImageLayerGzip, l))
		}
		doc := []byte("{")
		if c.spoil != nil {
			c.spoil()
			doc = JSON(m)
		}
		ref := mustRef("app:" + name)
		for _, blob := range b.blobs {
			r.put(ref, "", blob)
		}
		r.PutDocument("app:"+name, c.typ, doc)
		if p, err := s.Pull(t.Context(), images.PullRequest{Ref: "app:" + name}); err == nil {
			t.Errorf("%s: pulled %+v", name, p)
		}
	}
	for ref, want := range map[string]error{"app:none": ErrUnknown, "UPPER": images.ErrInvalidName, "ledge.local/x": images.ErrBuiltIn} {
		_, err := s.Pull(t.Context(), images.PullRequest{Ref: ref})
		wantErr(t, ref, err, want)
	}
	if n := count(t, s); n != 0 {
		t.Errorf("%d images", n)
	}
	mustPull(t, s, "app") // what was downloaded in vain is used or thrown away
}

func testPullOverImport(t *testing.T, s images.Store, r *Registry) {
	im := Sample("app")
	mustImport(t, s, OCI(im))
	r.Push(im)
	p := mustPull(t, s, "app:latest")
	if !p.Image.Pinned || p.Bytes != 0 {
		t.Errorf("%+v", p)
	}
}

func testPullParallel(t *testing.T, s images.Store, r *Registry) {
	var list []Image
	for i := range 4 {
		im := Sample(fmt.Sprint("app:", i))
		im.Layers = append([][]byte{Layer(File("base", strings.Repeat("base", 1000)))}, im.Layers...)
		list = append(list, im)
	}
	r.Push(list...)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			im := list[i%4]
			if _, err := s.Pull(t.Context(), images.PullRequest{Ref: im.Names[0], IfMissing: true}); err != nil {
				t.Error(err)
			}
			key := fmt.Sprint("key", i)
			if _, err := s.Mount(t.Context(), im.ID(), key); err != nil {
				t.Error(err)
			}
			if err := s.Unmount(t.Context(), key); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := count(t, s); n != 4 {
		t.Errorf("%d images", n)
	}
}

func testCounts(t *testing.T, s images.Store, r *Registry) {
	m, ok := s.(images.Meter)
	if !ok {
		t.Fatal("it counts nothing")
	}
	if c := m.Counts(); c.Pulls != nil || c.Failed != 0 || c.Bytes != 0 {
		t.Errorf("before the first: %+v", c)
	}
	im := Sample("app:1")
	r.Push(im)
	p := mustPull(t, s, "app:1")
	mustPull(t, s, "app:1")
	if _, err := s.Pull(t.Context(), images.PullRequest{Ref: "none:1"}); err == nil {
		t.Error("pulled")
	}
	gone, cancel := context.WithCancel(t.Context())
	r.Fail = func(string, string) error { cancel(); return gone.Err() }
	if _, err := s.Pull(gone, images.PullRequest{Ref: "app:1"}); err == nil {
		t.Error("pulled")
	}
	c := m.Counts()
	if len(c.Pulls) != 1 || c.Pulls[0].Size != "0-10MB" || c.Pulls[0].Count != 2 || c.Failed != 1 || c.Bytes != p.Bytes || p.Bytes == 0 {
		t.Errorf("%+v", c)
	}
	if last := len(images.PullDurations) - 1; c.Pulls[0].Within[last] != 2 || c.Pulls[0].Took < p.Took {
		t.Errorf("%+v", c.Pulls[0])
	}
}
