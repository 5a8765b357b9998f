package images_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/images"
	it "ledge/images/imagestest"
)

// memArchive is an archive in memory.
type memArchive map[string]string

func (a memArchive) Stat(name string) (string, int64, bool) {
	data, ok := a[name]
	h := sha256.Sum256([]byte(data))
	return "sha256:" + hex.EncodeToString(h[:]), int64(len(data)), ok
}

func (a memArchive) Read(name string) ([]byte, error) {
	data, ok := a[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if len(data) > images.MaxDocument {
		return nil, fmt.Errorf("%s is too long", name)
	}
	return []byte(data), nil
}

var armv7 = images.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}

func TestRank(t *testing.T) {
	amd64, arm64 := images.Platform{OS: "linux", Architecture: "amd64"}, images.Platform{OS: "linux", Architecture: "arm64"}
	armv6 := images.Platform{OS: "linux", Architecture: "arm", Variant: "v6"}
	for _, c := range []struct {
		host  images.Platform
		image string
		want  int
	}{
		{amd64, "linux/amd64", 0}, {amd64, "linux/amd64/v1", 0}, {amd64, "linux/amd64/v2", -1}, {amd64, "linux/amd64/v3", -1},
		{amd64, "linux/386", -1}, {amd64, "windows/amd64", -1}, {amd64, "/amd64", 0}, {amd64, "linux/arm64", -1},
		{arm64, "linux/arm64", 0}, {arm64, "linux/arm64/v8", 0}, {arm64, "linux/arm64/v9", -1}, {arm64, "linux/arm/v7", -1},
		{armv7, "linux/arm/v7", 0}, {armv7, "linux/arm", 0}, {armv7, "linux/arm/v6", 1}, {armv7, "linux/arm/v5", 2}, {armv7, "linux/arm/v8", -92},
		{armv7, "linux/arm64", -1},
		{armv6, "linux/arm/v6", 0}, {armv6, "linux/arm/v5", 1}, {armv6, "linux/arm/v7", -1}, {armv6, "linux/arm", -1},
	} {
		p := strings.Split(c.image+"//", "/")
		if got := c.host.Rank(images.Platform{OS: p[0], Architecture: p[1], Variant: p[2]}); got != c.want {
			t.Errorf("%s on %s: %d, want %d", c.image, c.host, got, c.want)
		}
	}
}

// variants is an image for each platform, with its manifest in files.
func variants(files map[string]string, platforms ...images.Platform) (list []v1.Descriptor, ids map[string]string) {
	ids = map[string]string{}
	for _, p := range platforms {
		im := it.Sample("x")
		im.Platform = p
		more, ix := it.OCIFiles(im)
		for k, v := range more {
			files[k] = v
		}
		d := ix.Manifests[0]
		d.Annotations = nil
		list = append(list, d)
		ids[p.String()] = im.ID()
	}
	return list, ids
}

func addIndex(files map[string]string, list ...v1.Descriptor) v1.Descriptor {
	b := it.JSON(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: list})
	d := it.Descriptor(v1.MediaTypeImageIndex, b)
	files[it.BlobPath(string(d.Digest))] = string(b)
	return d
}

func top(files map[string]string, list ...v1.Descriptor) memArchive {
	files["index.json"] = string(it.JSON(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: list}))
	return files
}

func named(d v1.Descriptor, key, name string) v1.Descriptor {
	d.Annotations = map[string]string{key: name}
	return d
}

// TestPlatformChoice: the best variant of an index is taken, whatever its place.
func TestPlatformChoice(t *testing.T) {
	v := func(arch, variant string) images.Platform {
		return images.Platform{OS: "linux", Architecture: arch, Variant: variant}
	}
	for name, c := range map[string]struct {
		have []images.Platform
		want string
	}{
		"v7 before v6":       {[]images.Platform{v("arm", "v5"), v("arm", "v6"), v("amd64", ""), v("arm", "v7")}, "linux/arm/v7"},
		"v6 for want of v7":  {[]images.Platform{v("arm64", "v8"), v("arm", "v6"), v("arm", "v5")}, "linux/arm/v6"},
		"nothing of 64 bits": {[]images.Platform{v("arm64", "v8"), v("amd64", "")}, ""},
	} {
		files := map[string]string{}
		list, ids := variants(files, c.have...)
		for _, form := range []string{"index", "nested", "flat"} {
			a := top(files, named(addIndex(files, list...), v1.AnnotationRefName, "x:1"))
			switch form {
			case "nested":
				a = top(files, named(addIndex(files, addIndex(files, list...)), v1.AnnotationRefName, "x:1"))
			case "flat":
				var flat []v1.Descriptor
				for _, d := range list {
					flat = append(flat, named(d, v1.AnnotationRefName, "x:1"))
				}
				a = top(files, flat...)
			}
			found, err := images.Resolve(a, armv7)
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), "no image for linux/arm/v7 in the archive; it has linux/amd64, linux/arm64/v8") {
					t.Errorf("%s, %s: %v", name, form, err)
				}
				continue
			}
			if err != nil || len(found) != 1 || found[0].ID != ids[c.want] {
				t.Errorf("%s, %s: %+v, %v", name, form, found, err)
				continue
			}
			if want := map[string]int{"index": 1, "nested": 2, "flat": 0}[form]; len(found[0].Indexes) != want {
				t.Errorf("%s, %s: indexes %v", name, form, found[0].Indexes)
			}
		}
	}
}

// TestPlatformFeatures: an image that asks for features of its operating system is not for a board, which has none.
func TestPlatformFeatures(t *testing.T) {
	files := map[string]string{}
	list, ids := variants(files, armv7, images.Platform{OS: "linux", Architecture: "arm", Variant: "v6"})
	list[0].Platform.OSFeatures = []string{"sandbox"}
	found, err := images.Resolve(top(files, named(addIndex(files, list...), v1.AnnotationRefName, "x:1")), armv7)
	if err != nil || len(found) != 1 || found[0].ID != ids["linux/arm/v6"] {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := images.Resolve(top(files, named(addIndex(files, list[0]), v1.AnnotationRefName, "x:1")), armv7); err == nil {
		t.Error("taken, although nothing here has the feature")
	}
}

func TestNames(t *testing.T) {
	files := map[string]string{}
	list, _ := variants(files, images.HostPlatform())
	for _, c := range []struct{ key, name, want string }{
		{v1.AnnotationRefName, "quay.io/a/b:1", "quay.io/a/b:1"},
		{v1.AnnotationRefName, "b", "docker.io/library/b:latest"},
		{v1.AnnotationRefName, "b:2", "docker.io/library/b:2"},
		{v1.AnnotationRefName, "latest", ""},
		{v1.AnnotationRefName, "1.37", ""},
		{v1.AnnotationRefName, "v2", ""},
		{v1.AnnotationRefName, "", ""},
		{"io.containerd.image.name", "docker.io/library/c:3", "docker.io/library/c:3"},
	} {
		found, err := images.Resolve(top(files, named(list[0], c.key, c.name)), images.HostPlatform())
		if err != nil || len(found) != 1 || strings.Join(found[0].Names, " ") != c.want {
			t.Errorf("%s: %+v, %v", c.name, found, err)
		}
	}
}

// TestDockerWithIndex: docker 25 and later writes both; the index is the truth, the tags are added.
func TestDockerWithIndex(t *testing.T) {
	im := it.Sample()
	files, ix := it.OCIFiles(im)
	attestation := ix.Manifests[0]
	attestation.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	a := top(files, ix.Manifests[0], attestation)
	a["manifest.json"] = string(it.JSON([]map[string]any{
		{"Config": it.BlobPath(im.ID()), "RepoTags": []string{"app:1", "r.io/app:2"}, "Layers": []string{"never/looked/at"}},
		{"Config": "missing.json", "RepoTags": []string{"other:1"}, "Layers": []string{}},
	}))
	found, err := images.Resolve(a, images.HostPlatform())
	if err != nil || len(found) != 1 || !slices.Equal(found[0].Names, []string{"docker.io/library/app:1", "r.io/app:2"}) ||
		found[0].Manifest != im.ManifestDigest() {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestHostileArchives: each is refused with a word of why, without reading without end.
func TestHostileArchives(t *testing.T) {
	host := images.HostPlatform()
	base := func() (map[string]string, v1.Descriptor) {
		files := map[string]string{}
		list, _ := variants(files, host)
		return files, list[0]
	}
	manifest := func(change func(*v1.Manifest)) memArchive {
		files, d := base()
		var m v1.Manifest
		if err := json.Unmarshal([]byte(files[it.BlobPath(string(d.Digest))]), &m); err != nil {
			t.Fatal(err)
		}
		change(&m)
		b := it.JSON(m)
		nd := it.Descriptor(d.MediaType, b)
		files[it.BlobPath(string(nd.Digest))] = string(b)
		return top(files, nd)
	}
	descriptor := func(change func(*v1.Descriptor)) memArchive {
		files, d := base()
		change(&d)
		return top(files, d)
	}
	config := func(data string) memArchive {
		return manifestOf(t, base, data)
	}
	for name, c := range map[string]struct {
		a    memArchive
		want string
	}{
		"digest as a path": {descriptor(func(d *v1.Descriptor) { d.Digest = "sha256:../../../../etc/passwd" }),
			"no valid sha256 digest"},
		"digest of another kind":        {descriptor(func(d *v1.Descriptor) { d.Digest = "sha512:" + d.Digest }), "no valid sha256 digest"},
		"no digest":                     {descriptor(func(d *v1.Descriptor) { d.Digest = "" }), "no valid sha256 digest"},
		"wrong size":                    {descriptor(func(d *v1.Descriptor) { d.Size++ }), "bytes, not"},
		"negative size":                 {descriptor(func(d *v1.Descriptor) { d.Size = -1 }), "bytes, not"},
		"missing manifest":              {descriptor(func(d *v1.Descriptor) { d.Digest = someDigest }), "no blob"},
		"unknown type":                  {descriptor(func(d *v1.Descriptor) { d.MediaType = "text/plain" }), `calls itself`},
		"manifest as an index":          {descriptor(func(d *v1.Descriptor) { d.MediaType = v1.MediaTypeImageIndex }), "calls itself"},
		"no type inside, index outside": {manifestAs(base, v1.MediaTypeImageIndex), "an index and a manifest at once"},
		"artifact": {manifest(func(m *v1.Manifest) { m.Config.MediaType = "application/vnd.cncf.helm.config.v1+json" }),
			"not a container image"},
		"layer of unknown type": {manifest(func(m *v1.Manifest) { m.Layers[0].MediaType = "application/x-encrypted" }), "unknown type"},
		"layer as a path":       {manifest(func(m *v1.Manifest) { m.Layers[0].Digest = "sha256:../../x" }), "no valid sha256 digest"},
		"layer elsewhere": {manifest(func(m *v1.Manifest) { m.Layers[0].Digest = someDigest; m.Layers[0].URLs = []string{"http://x/"} }),
			"stored elsewhere"},
		"layer of another size":  {manifest(func(m *v1.Manifest) { m.Layers[0].Size = 1 }), "bytes, not 1"},
		"layers and diff IDs":    {manifest(func(m *v1.Manifest) { m.Layers = m.Layers[:1] }), "config names 2 layers, manifest 1"},
		"config missing":         {manifest(func(m *v1.Manifest) { m.Config.Digest = someDigest }), "no blob"},
		"config no JSON":         {config("{"), "unexpected end"},
		"config of another type": {config(`{"os":"linux","architecture":7}`), "cannot unmarshal"},
		"diff ID as a path": {config(`{"os":"linux","architecture":"` + host.Architecture +
			`","rootfs":{"type":"layers","diff_ids":["sha256:../x","sha256:../y"]}}`), "no valid diff ID"},
		"deep JSON":             {config(strings.Repeat("[", 1<<20)), "exceeded max depth"},
		"long index":            {memArchive{"index.json": strings.Repeat(" ", images.MaxDocument+1)}, "too long"},
		"no index":              {memArchive{"oci-layout": "{}"}, "neither index.json nor manifest.json"},
		"old docker":            {memArchive{"repositories": "{}"}, "older than 1.10"},
		"empty index":           {top(map[string]string{}), "no image in the archive"},
		"bad name":              {descriptor(func(d *v1.Descriptor) { *d = named(*d, v1.AnnotationRefName, "a:b:c") }), "invalid image name"},
		"docker config missing": {memArchive{"manifest.json": `[{"Config":"x.json"}]`}, "no x.json"},
		"docker config digest": {memArchive{"manifest.json": `[{"Config":"` + strings.Repeat("a", 64) + `.json"}]`,
			strings.Repeat("a", 64) + ".json": "{}"}, "has the digest"},
		"docker layer missing":  {memArchive{"manifest.json": `[{"Config":"c","Layers":["../../etc/passwd"]}]`, "c": "{}"}, "no layer"},
		"nested too deep":       {nested(base, 8), "nested deeper"},
		"index that multiplies": {wide(base, 40), "more than 1000 documents"},
		"too many layers":       {manifestLayers(t, base, 200), "at most 128"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := images.Resolve(c.a, host)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d found, %v; want %q", len(found), err, c.want)
			}
		})
	}
}

// manifestOf is an archive whose image has the given config.
func manifestOf(t *testing.T, base func() (map[string]string, v1.Descriptor), config string) memArchive {
	t.Helper()
	files, d := base()
	var m v1.Manifest
	if err := json.Unmarshal([]byte(files[it.BlobPath(string(d.Digest))]), &m); err != nil {
		t.Fatal(err)
	}
	m.Config = it.Descriptor(m.Config.MediaType, []byte(config))
	files[it.BlobPath(string(m.Config.Digest))] = config
	b := it.JSON(m)
	nd := it.Descriptor(d.MediaType, b)
	files[it.BlobPath(string(nd.Digest))] = string(b)
	return top(files, nd)
}

// manifestAs is a manifest that does not say what it is, in an index that says it is something else.
func manifestAs(base func() (map[string]string, v1.Descriptor), mediaType string) memArchive {
	files, d := base()
	raw := strings.Replace(files[it.BlobPath(string(d.Digest))], `"mediaType":"`+d.MediaType+`",`, "", 1)
	nd := it.Descriptor(mediaType, []byte(raw))
	files[it.BlobPath(string(nd.Digest))] = raw
	return top(files, nd)
}

func nested(base func() (map[string]string, v1.Descriptor), depth int) memArchive {
	files, d := base()
	for range depth {
		d = addIndex(files, d)
	}
	return top(files, d)
}

// wide is an index of n times an index of n times one image: little to store, much to walk.
func wide(base func() (map[string]string, v1.Descriptor), n int) memArchive {
	files, d := base()
	for range 3 {
		d = addIndex(files, slices.Repeat([]v1.Descriptor{d}, n)...)
	}
	return top(files, d)
}

func manifestLayers(t *testing.T, base func() (map[string]string, v1.Descriptor), n int) memArchive {
	t.Helper()
	files, d := base()
	var m v1.Manifest
	if err := json.Unmarshal([]byte(files[it.BlobPath(string(d.Digest))]), &m); err != nil {
		t.Fatal(err)
	}
	var c v1.Image
	if err := json.Unmarshal([]byte(files[it.BlobPath(string(m.Config.Digest))]), &c); err != nil {
		t.Fatal(err)
	}
	m.Layers = slices.Repeat(m.Layers[:1], n)
	c.RootFS.DiffIDs = slices.Repeat(c.RootFS.DiffIDs[:1], n)
	config := it.JSON(c)
	m.Config = it.Descriptor(m.Config.MediaType, config)
	files[it.BlobPath(string(m.Config.Digest))] = string(config)
	b := it.JSON(m)
	nd := it.Descriptor(d.MediaType, b)
	files[it.BlobPath(string(nd.Digest))] = string(b)
	return top(files, nd)
}

// FuzzResolve: whatever index, manifest and config say, what is found has digests that can be file names.
func FuzzResolve(f *testing.F) {
	files, ix := it.OCIFiles(it.Sample("app"))
	d := ix.Manifests[0]
	var m v1.Manifest
	if err := json.Unmarshal([]byte(files[it.BlobPath(string(d.Digest))]), &m); err != nil {
		f.Fatal(err)
	}
	f.Add(string(it.JSON(ix)), files[it.BlobPath(string(d.Digest))], files[it.BlobPath(string(m.Config.Digest))], "")
	f.Add("", "", files[it.BlobPath(string(m.Config.Digest))], `[{"Config":"c","RepoTags":["a:b"],"Layers":["l","l"]}]`)
	f.Fuzz(func(t *testing.T, index, manifest, config, docker string) {
		a := memArchive{"c": config, "l": "layer"}
		for _, doc := range []string{manifest, config} {
			a[it.BlobPath(it.Digest([]byte(doc)))] = doc
		}
		for name, file := range files {
			if strings.HasPrefix(name, "blobs/") {
				a[name] = file
			}
		}
		// Let the index find a changed manifest, so that the search gets past the digests.
		if index != "" {
			a["index.json"] = strings.ReplaceAll(strings.ReplaceAll(index, string(d.Digest), it.Digest([]byte(manifest))), fmt.Sprint(d.Size),
				fmt.Sprint(len(manifest)))
		}
		if docker != "" {
			a["manifest.json"] = docker
		}
		found, err := images.Resolve(a, images.HostPlatform())
		if err != nil {
			return
		}
		for _, img := range found {
			for _, dg := range append(slices.Clone(img.Documents), img.ID) {
				if !images.ValidDigest(dg) {
					t.Errorf("digest %q", dg)
				}
			}
			for _, l := range img.Layers {
				if _, _, ok := a.Stat(l.File); !ok || !images.ValidDigest(l.Digest) || !images.ValidDigest(l.DiffID) {
					t.Errorf("layer %+v", l)
				}
			}
			for _, n := range img.Names {
				if _, err := images.ParseReference(n); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// FuzzRemote: whatever a registry says of an image, reading it ends, and what it gives could have been an image.
func FuzzRemote(f *testing.F) {
	im := it.Sample("app")
	files, _ := it.OCIFiles(im)
	for _, text := range files {
		f.Add([]byte(text), v1.MediaTypeImageManifest, []byte(files[it.BlobPath(im.ID())]))
		f.Add([]byte(text), v1.MediaTypeImageIndex, []byte(text))
	}
	f.Fuzz(func(t *testing.T, top []byte, typ string, blob []byte) {
		reg := &anything{top: images.Document{Digest: it.Digest(top), MediaType: typ, Content: top}, blob: blob}
		got, docs, err := images.ResolveRemote(t.Context(), reg, images.Reference{Domain: "r.example", Path: "app", Tag: "1"}, nil,
			images.HostPlatform(), 1<<40)
		if err != nil {
			return
		}
		if !images.ValidDigest(got.ID) || docs[got.ID] == nil || docs[got.Manifest] == nil || len(got.Layers) > 128 {
			t.Errorf("%+v", got)
		}
		for _, l := range got.Layers {
			if !images.ValidDigest(l.Digest) || !images.ValidDigest(l.DiffID) || l.Size < 0 {
				t.Errorf("%+v", l)
			}
		}
	})
}

// anything is a registry that has one document and one blob for every question.
type anything struct {
	top  images.Document
	blob []byte
}

func (a *anything) Head(context.Context, images.Reference, images.Keyring) (string, error) {
	return a.top.Digest, nil
}

func (a *anything) Manifest(_ context.Context, ref images.Reference, _ images.Keyring) (images.Document, error) {
	if ref.Digest != "" && ref.Digest != a.top.Digest {
		return images.Document{Digest: it.Digest(a.blob), MediaType: a.top.MediaType, Content: a.blob}, nil
	}
	return a.top, nil
}

func (a *anything) Blob(_ context.Context, req images.BlobRequest) (images.BlobStream, error) {
	if len(req.Avoid) > 0 {
		return images.BlobStream{}, images.ErrDamaged
	}
	return images.BlobStream{ReadCloser: io.NopCloser(bytes.NewReader(a.blob)), Place: "here"}, nil
}
