package imagestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"ledge/images"
)

// Registry is an images.Registry in memory.
type Registry struct {
	// Fail, when set, is asked before every answer ("head", "manifest", "blob") with the digest or tag it is about.
	Fail func(op, what string) error
	// Stream, when set, may change how a blob comes: cut it, slow it, damage it. It gets what is left after the offset.
	Stream func(digest string, offset int64, r io.Reader) io.Reader

	mu     sync.Mutex
	tags   map[string]string          // "repository:tag" -> digest
	blobs  map[string][]byte          // by digest
	types  map[string]string          // media type of documents, by digest
	repos  map[string]map[string]bool // which digests a repository has
	served map[string]int             // how often a blob was asked for
}

var _ images.Registry = (*Registry)(nil)

// ErrUnknown is a Registry's answer for something it does not have.
var ErrUnknown = errors.New("unknown to the registry")

// Push puts images there under their names.
func (r *Registry) Push(list ...Image) {
	for _, im := range list {
		b := im.build()
		for _, n := range im.Names {
			ref := mustRef(n)
			for _, blob := range b.blobs {
				r.put(ref, "", blob)
			}
			r.put(ref, v1.MediaTypeImageManifest, b.manifest)
			r.tag(ref, Digest(b.manifest))
		}
	}
}

// PushIndex puts an index of images there, one for each platform, under one name.
func (r *Registry) PushIndex(name string, list ...Image) (digest string) {
	ref := mustRef(name)
	ix := v1.Index{MediaType: v1.MediaTypeImageIndex}
	ix.SchemaVersion = 2
	for _, im := range list {
		b := im.build()
		for _, blob := range b.blobs {
			r.put(ref, "", blob)
		}
		r.put(ref, v1.MediaTypeImageManifest, b.manifest)
		d := Descriptor(v1.MediaTypeImageManifest, b.manifest)
		d.Platform = b.platform
		ix.Manifests = append(ix.Manifests, d)
	}
	return r.PutDocument(name, v1.MediaTypeImageIndex, JSON(ix))
}

// PutDocument puts any document there under a name.
func (r *Registry) PutDocument(name, mediaType string, data []byte) (digest string) {
	ref := mustRef(name)
	r.put(ref, mediaType, data)
	r.tag(ref, Digest(data))
	return Digest(data)
}

func mustRef(name string) images.Reference {
	ref, err := images.ParseReference(name)
	if err != nil {
		panic(err)
	}
	return ref
}

func (r *Registry) put(ref images.Reference, mediaType string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blobs == nil {
		r.tags, r.blobs, r.types = map[string]string{}, map[string][]byte{}, map[string]string{}
		r.repos, r.served = map[string]map[string]bool{}, map[string]int{}
	}
	d := Digest(data)
	r.blobs[d] = data
	if mediaType != "" {
		r.types[d] = mediaType
	}
	if r.repos[ref.Name()] == nil {
		r.repos[ref.Name()] = map[string]bool{}
	}
	r.repos[ref.Name()][d] = true
}

func (r *Registry) tag(ref images.Reference, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags[ref.Tagged()] = digest
}

// Served is how often a blob was asked for.
func (r *Registry) Served(digest string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.served[digest]
}

func (r *Registry) find(op string, ref images.Reference, digest string) (string, []byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if digest == "" {
		digest = ref.Digest
	}
	what := digest
	if digest == "" {
		what, digest = ref.Tag, r.tags[ref.Tagged()]
	}
	if r.Fail != nil {
		if err := r.Fail(op, what); err != nil {
			return "", nil, err
		}
	}
	if !r.repos[ref.Name()][digest] {
		return "", nil, &gone{fmt.Errorf("%s: %w", ref, ErrUnknown)}
	}
	return digest, r.blobs[digest], nil
}

// gone is an error that stays.
type gone struct{ error }

func (gone) Permanent() bool { return true }
func (g gone) Unwrap() error { return g.error }

// Head implements images.Registry.
func (r *Registry) Head(_ context.Context, ref images.Reference, _ images.Keyring) (string, error) {
	digest, _, err := r.find("head", ref, "")
	return digest, err
}

// Manifest implements images.Registry.
func (r *Registry) Manifest(_ context.Context, ref images.Reference, _ images.Keyring) (images.Document, error) {
	digest, data, err := r.find("manifest", ref, "")
	return images.Document{Digest: digest, MediaType: r.types[digest], Content: data}, err
}

// Blob implements images.Registry.
func (r *Registry) Blob(ctx context.Context, req images.BlobRequest) (images.BlobStream, error) {
	_, data, err := r.find("blob", req.Ref, req.Digest)
	if err != nil {
		return images.BlobStream{}, err
	}
	if len(req.Avoid) > 0 {
		return images.BlobStream{}, &gone{fmt.Errorf("nobody else has %s: %w", req.Digest, images.ErrDamaged)}
	}
	r.mu.Lock()
	r.served[req.Digest]++
	r.mu.Unlock()
	var body io.Reader = bytes.NewReader(data[req.Offset:])
	if r.Stream != nil {
		body = r.Stream(req.Digest, req.Offset, body)
	}
	return images.BlobStream{ReadCloser: io.NopCloser(&until{ctx, body}), From: req.Offset, Place: "memory"}, nil
}

// until ends a stream with its context, as a connection does.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
