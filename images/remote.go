package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// remote is an image in a registry as the Archive that a resolver looks at: documents are fetched when they are
// read, of layers only what the manifest promises is known.
type remote struct {
	ctx      context.Context // of one resolve; a remote does not outlive it
	reg      Registry
	ref      Reference
	keys     Keyring
	max      int64 // bytes in one layer
	promised map[string]v1.Descriptor
	docs     map[string][]byte // by file
}

// expect notes what a descriptor promises; Read holds the content against it.
func (a *remote) expect(file string, d v1.Descriptor) error {
	if d.Size < 0 || d.Size > a.max {
		return fmt.Errorf("blob %s cannot have %d bytes", d.Digest, d.Size)
	}
	if old, ok := a.promised[file]; ok && old.Size != d.Size {
		return fmt.Errorf("blob %s is said to have %d bytes and %d", d.Digest, old.Size, d.Size)
	}
	a.promised[file] = d
	return nil
}

// Stat implements Archive.
func (a *remote) Stat(name string) (digest string, size int64, ok bool) {
	d, ok := a.promised[name]
	return string(d.Digest), d.Size, ok
}

// Read implements Archive.
func (a *remote) Read(name string) ([]byte, error) {
	if data, ok := a.docs[name]; ok {
		return data, nil
	}
	d, ok := a.promised[name]
	if !ok {
		return nil, fmt.Errorf("nothing promises %s", name)
	}
	if d.Size > MaxDocument {
		return nil, fmt.Errorf("%s has %d bytes, more than a document may have", d.Digest, d.Size)
	}
	data, err := a.fetch(d)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != d.Size {
		return nil, fmt.Errorf("%s has %d bytes, not %d", d.Digest, len(data), d.Size)
	}
	a.docs[name] = data
	return data, nil
}

func (a *remote) fetch(d v1.Descriptor) ([]byte, error) {
	switch d.MediaType {
	case v1.MediaTypeImageIndex, dockerIndex, v1.MediaTypeImageManifest, dockerManifest:
		ref := a.ref
		ref.Tag, ref.Digest = "", string(d.Digest)
		doc, err := a.reg.Manifest(a.ctx, ref, a.keys)
		return doc.Content, err
	}
	var avoid []string
	for {
		data, place, err := a.config(d, avoid)
		// A mirror may be wrong where the registry is right; one place is asked once.
		if err == nil || !errors.Is(err, ErrDamaged) || slices.Contains(avoid, place) {
			return data, err
		}
		avoid = append(avoid, place)
	}
}

func (a *remote) config(d v1.Descriptor, avoid []string) (data []byte, place string, err error) {
	s, err := a.reg.Blob(a.ctx, BlobRequest{Ref: a.ref, Digest: string(d.Digest), Keys: a.keys, Avoid: avoid})
	if err != nil {
		return nil, "", err
	}
	defer s.Close()
	data, err = io.ReadAll(io.LimitReader(s, MaxDocument+1))
	if err != nil {
		return nil, s.Place, fmt.Errorf("read %s: %w", d.Digest, err)
	}
	if got := digestOf(data); got != string(d.Digest) {
		return nil, s.Place, fmt.Errorf("%s from %s has the digest %s: %w", d.Digest, s.Place, got, ErrDamaged)
	}
	return data, s.Place, nil
}

func digestOf(data []byte) string {
	h := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(h[:])
}

// ResolveRemote reads the documents of an image in a registry and gives the one for p. Beside it come the documents
// themselves, by digest. No layer of it has more than maxLayer bytes.
func ResolveRemote(ctx context.Context, reg Registry, ref Reference, keys Keyring, p Platform, maxLayer int64) (Found, map[string][]byte,
	error) {
	a := &remote{ctx: ctx, reg: reg, ref: ref, keys: keys, max: maxLayer, promised: map[string]v1.Descriptor{}, docs: map[string][]byte{}}
	doc, err := reg.Manifest(ctx, ref, keys)
	if err != nil {
		return Found{}, nil, err
	}
	top := v1.Descriptor{MediaType: doc.MediaType, Digest: digest.Digest(doc.Digest), Size: int64(len(doc.Content))}
	if !knownType(doc.MediaType) {
		top.MediaType = ownType(doc.Content)
	}
	a.docs[path.Join(v1.ImageBlobsDir, "sha256", hexOf(doc.Digest))] = doc.Content
	r := &resolver{a: a, p: p}
	c, err := r.descend(top, 0)
	if err != nil {
		return Found{}, nil, err
	}
	if c == nil {
		slices.Sort(r.others)
		return Found{}, nil, fmt.Errorf("no image for %s in %s; it has %s", p, ref, strings.Join(slices.Compact(r.others), ", "))
	}
	if n := ref.Tagged(); n != "" {
		c.Names = []string{n}
	}
	docs := map[string][]byte{}
	for file, data := range a.docs {
		docs["sha256:"+path.Base(file)] = data
	}
	return c.Found, docs, nil
}

func knownType(t string) bool {
	return slices.Contains([]string{v1.MediaTypeImageIndex, dockerIndex, v1.MediaTypeImageManifest, dockerManifest}, t)
}

// ownType is what a document calls itself, for registries that serve everything as plain JSON.
func ownType(content []byte) string {
	var doc struct {
		MediaType string `json:"mediaType"`
	}
	if json.Unmarshal(content, &doc) != nil {
		return ""
	}
	return doc.MediaType
}
