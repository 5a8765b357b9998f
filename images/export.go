package images

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// ErrNotKept means that an image's compressed layers were not kept, so it cannot be exported.
var ErrNotKept = errors.New("compressed layers are not kept")

// exported is what goes into an archive.
type exported struct {
	home  *home
	index v1.Index
	docs  map[string][]byte // by digest
	blobs []string          // of layers, each once
}

// Export writes an OCI archive of images, with all their names: the same bytes that came, so that digests stay.
// Nothing is written before everything has been found.
func (d *Disk) Export(ctx context.Context, w io.Writer, refs []string) error {
	x := &exported{home: d.home, docs: map[string][]byte{}}
	x.index.SchemaVersion, x.index.MediaType = 2, v1.MediaTypeImageIndex
	seen := map[string]bool{}
	for _, ref := range refs {
		row, err := d.catalog.find(ref)
		if err == nil && !seen[row.ID] {
			seen[row.ID] = true
			err = x.add(row)
		}
		if err != nil {
			return fmt.Errorf("export %s: %w", ref, err)
		}
	}
	if err := x.write(ctx, w); err != nil {
		return fmt.Errorf("export images: %w", err)
	}
	return nil
}

func (x *exported) add(row *imageRow) error {
	if row.Source != nil {
		return ErrBuiltIn
	}
	for _, l := range row.Layers {
		if l.Blob == "" {
			return fmt.Errorf("%w: pull it again with --pin, which keeps them", ErrNotKept)
		}
		if !slices.Contains(x.blobs, l.Blob) {
			x.blobs = append(x.blobs, l.Blob)
		}
	}
	manifest, err := x.manifestOf(row)
	if err != nil {
		return err
	}
	names := row.Names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, n := range names {
		desc := manifest
		if ref, err := ParseReference(n); err == nil {
			desc.Annotations = map[string]string{containerdName: n, v1.AnnotationRefName: ref.Tag}
		}
		x.index.Manifests = append(x.index.Manifests, desc)
	}
	return nil
}

// manifestOf finds the manifest that fits the kept layers, or makes one: docker's older archives have none.
func (x *exported) manifestOf(row *imageRow) (v1.Descriptor, error) {
	for _, dg := range row.Documents {
		data, err := x.document(dg)
		if err != nil {
			return v1.Descriptor{}, err
		}
		if dg == row.ID {
			x.docs[dg] = data
			continue
		}
		var m v1.Manifest
		if json.Unmarshal(data, &m) != nil || !fits(m, row) {
			continue
		}
		x.docs[dg] = data
		typ := m.MediaType
		if typ == "" {
			typ = v1.MediaTypeImageManifest
		}
		return v1.Descriptor{MediaType: typ, Digest: digest.Digest(dg), Size: int64(len(data))}, nil
	}
	m := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: v1.Descriptor{MediaType: v1.MediaTypeImageConfig, Digest: digest.Digest(row.ID), Size: int64(len(x.docs[row.ID]))}}
	for _, l := range row.Layers {
		desc, err := x.layerDescriptor(l.Blob)
		if err != nil {
			return desc, err
		}
		m.Layers = append(m.Layers, desc)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return v1.Descriptor{}, err
	}
	x.docs[digestOf(data)] = data
	return v1.Descriptor{MediaType: m.MediaType, Digest: digest.Digest(digestOf(data)), Size: int64(len(data))}, nil
}

// fits says whether a manifest is of exactly the layers that are kept.
func fits(m v1.Manifest, row *imageRow) bool {
	return string(m.Config.Digest) == row.ID && slices.EqualFunc(m.Layers, row.Layers, func(a v1.Descriptor, b layerRef) bool {
		return string(a.Digest) == b.Blob
	})
}

func (x *exported) document(dg string) ([]byte, error) {
	data, err := os.ReadFile(x.home.blobPath(dg))
	if err == nil && digestOf(data) != dg {
		err = fmt.Errorf("%s: %w", dg, ErrDamaged)
	}
	return data, err
}

func (x *exported) layerDescriptor(dg string) (v1.Descriptor, error) {
	f, err := os.Open(x.home.blobPath(dg))
	if err != nil {
		return v1.Descriptor{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return v1.Descriptor{}, err
	}
	magic := make([]byte, 4)
	n, err := f.ReadAt(magic, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return v1.Descriptor{}, err
	}
	typ := v1.MediaTypeImageLayer
	switch {
	case bytes.HasPrefix(magic[:n], []byte{0x1f, 0x8b}):
		typ = v1.MediaTypeImageLayerGzip
	case bytes.HasPrefix(magic[:n], []byte{0x28, 0xb5, 0x2f, 0xfd}):
		typ = v1.MediaTypeImageLayerZstd
	}
	return v1.Descriptor{MediaType: typ, Digest: digest.Digest(dg), Size: fi.Size()}, nil
}

func (x *exported) write(ctx context.Context, w io.Writer) error {
	index, err := json.Marshal(x.index)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	put := func(name string, data []byte) error {
		if err := tw.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644, Typeflag: tar.TypeReg,
			ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err := tw.Write(data)
		return err
	}
	if err := errors.Join(put(v1.ImageLayoutFile, []byte(`{"imageLayoutVersion":"1.0.0"}`)), put(v1.ImageIndexFile, index)); err != nil {
		return err
	}
	for dg, data := range x.docs {
		if err := put(blobFile(dg), data); err != nil {
			return err
		}
	}
	for _, dg := range x.blobs {
		if err := x.putBlob(ctx, tw, dg); err != nil {
			return fmt.Errorf("blob %s: %w", dg, err)
		}
	}
	return tw.Close()
}

func blobFile(dg string) string {
	return path.Join(v1.ImageBlobsDir, "sha256", strings.TrimPrefix(dg, "sha256:"))
}

// putBlob hashes what it writes: an archive is taken elsewhere, where nothing can mend it.
func (x *exported) putBlob(ctx context.Context, tw *tar.Writer, dg string) error {
	f, err := os.Open(x.home.blobPath(dg))
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Name: blobFile(dg), Size: fi.Size(), Mode: 0o644, Typeflag: tar.TypeReg,
		ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	h := digest.SHA256.Digester()
	if _, err := io.Copy(io.MultiWriter(tw, h.Hash()), &ctxReader{ctx, f}); err != nil {
		return err
	}
	if got := h.Digest(); string(got) != dg {
		return fmt.Errorf("has the digest %s: %w", got, ErrDamaged)
	}
	return nil
}
