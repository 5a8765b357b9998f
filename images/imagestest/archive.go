package imagestest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/images"
)

// Entry is one entry of a layer archive.
type Entry struct {
	tar.Header
	Body string
}

// File is a regular file of mode 0644.
func File(name, body string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, body}
}

// Dir is a directory of mode 0755.
func Dir(name string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

// Symlink is a symbolic link.
func Symlink(name, target string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, ""}
}

// Hardlink is a further name of target.
func Hardlink(name, target string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, ""}
}

// Layer is the plain tar of the entries. It panics on what tar cannot express: that is a mistake in a test.
func Layer(entries ...Entry) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(e.Body))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			panic(fmt.Sprintf("entry %q: %v", e.Name, err))
		}
		if _, err := io.WriteString(w, e.Body); err != nil {
			panic(fmt.Sprintf("entry %q: %v", e.Name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// Gzip compresses.
func Gzip(b []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, _ = w.Write(b)
	_ = w.Close()
	return buf.Bytes()
}

// Zstd compresses.
func Zstd(b []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(b, nil)
}

// Digest of b.
func Digest(b []byte) string {
	h := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(h[:])
}

// Image is an image to be put into an archive.
type Image struct {
	Names    []string
	Platform images.Platform // zero: this host's
	Config   v1.ImageConfig
	Layers   [][]byte // plain tars
	Compress func([]byte) []byte
}

// built is the blobs of an image.
type built struct {
	blobs            map[string][]byte // by digest
	config, manifest []byte
	packed           [][]byte
	platform         *v1.Platform
}

func (im Image) build() built {
	p := im.Platform
	if p == (images.Platform{}) {
		p = images.HostPlatform()
	}
	b := built{blobs: map[string][]byte{}, platform: &v1.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}}
	c := v1.Image{Platform: *b.platform, Config: im.Config, RootFS: v1.RootFS{Type: "layers"}}
	m := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Layers: []v1.Descriptor{}}
	for _, l := range im.Layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.Digest(Digest(l)))
		typ := v1.MediaTypeImageLayer
		if im.Compress != nil {
			l, typ = im.Compress(l), v1.MediaTypeImageLayerGzip
			if bytes.HasPrefix(l, []byte{0x28, 0xb5}) {
				typ = v1.MediaTypeImageLayerZstd
			}
		}
		b.packed = append(b.packed, l)
		b.blobs[Digest(l)] = l
		m.Layers = append(m.Layers, Descriptor(typ, l))
	}
	b.config = JSON(c)
	m.Config = Descriptor(v1.MediaTypeImageConfig, b.config)
	b.manifest = JSON(m)
	b.blobs[Digest(b.config)] = b.config
	b.blobs[Digest(b.manifest)] = b.manifest
	return b
}

// ID is the ID the image will have.
func (im Image) ID() string { return Digest(im.build().config) }

// ManifestDigest is the digest of the manifest it has in an OCI archive.
func (im Image) ManifestDigest() string { return Digest(im.build().manifest) }

// Descriptor of b.
func Descriptor(mediaType string, b []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Digest: digest.Digest(Digest(b)), Size: int64(len(b))}
}

// JSON of v.
func JSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// OCI is an OCI layout as a tar, with one descriptor in the index per name, as containerd and docker write it.
func OCI(list ...Image) []byte {
	files, ix := OCIFiles(list...)
	files["index.json"] = string(JSON(ix))
	return Tar(files)
}

// OCIFiles is what goes into an OCI layout, without its index, which is given beside.
func OCIFiles(list ...Image) (map[string]string, v1.Index) {
	files := map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`}
	ix := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, im := range list {
		b := im.build()
		for d, blob := range b.blobs {
			files[BlobPath(d)] = string(blob)
		}
		names := im.Names
		if len(names) == 0 {
			names = []string{""}
		}
		for _, n := range names {
			d := Descriptor(v1.MediaTypeImageManifest, b.manifest)
			d.Platform = b.platform
			if n != "" {
				d.Annotations = map[string]string{"io.containerd.image.name": n}
			}
			ix.Manifests = append(ix.Manifests, d)
		}
	}
	return files, ix
}

// BlobPath is where a layout keeps a blob.
func BlobPath(d string) string { return "blobs/sha256/" + strings.TrimPrefix(d, "sha256:") }

// Docker is what docker save wrote before version 25.
func Docker(list ...Image) []byte {
	type row struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	files := map[string]string{}
	var rows []row
	for i, im := range list {
		b := im.build()
		hex := strings.TrimPrefix(Digest(b.config), "sha256:")
		r := row{Config: hex + ".json", RepoTags: im.Names}
		files[r.Config] = string(b.config)
		for k, l := range b.packed {
			name := fmt.Sprintf("%d-%d/layer.tar", i, k)
			files[name] = string(l)
			r.Layers = append(r.Layers, name)
		}
		rows = append(rows, r)
	}
	files["manifest.json"] = string(JSON(rows))
	return Tar(files)
}

// Tar of the files, in the order of their names, so that the index comes last.
func Tar(files map[string]string) []byte {
	var entries []Entry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, File(name, files[name]))
	}
	return Layer(entries...)
}
