package images

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrUnreachable says that no registry answered: there is no network, or what answers is out of order. Anything that
// a registry says of the image itself, "unknown" or "not allowed", is another error.
var ErrUnreachable = errors.New("registry cannot be reached")

// Registry reads images from registries. images/registry does it over HTTP; it keeps no images.
type Registry interface {
	// Head asks which digest a tag stands for now, without its content; empty when the registry does not tell.
	Head(ctx context.Context, ref Reference, keys Keyring) (digest string, err error)
	// Manifest reads the manifest or index that ref names: by its digest if it has one, else by its tag. The content
	// matches the digest that is returned with it, and ref's digest if ref has one.
	Manifest(ctx context.Context, ref Reference, keys Keyring) (Document, error)
	// Blob opens a blob of ref's repository. Nothing of its content has been checked.
	Blob(ctx context.Context, req BlobRequest) (BlobStream, error)
}

// Document is a manifest or an index as a registry gave it.
type Document struct {
	Digest    string
	MediaType string // what the registry calls it
	Content   []byte
}

// BlobRequest asks for the content of a blob from an offset on.
type BlobRequest struct {
	Ref    Reference
	Digest string
	Offset int64
	Keys   Keyring
	// Avoid are the places (BlobStream.Place) that gave wrong content before.
	Avoid []string
}

// BlobStream is a blob on its way.
type BlobStream struct {
	io.ReadCloser
	From  int64  // where the stream begins: the offset that was asked for, or 0 when the registry cannot do that
	Place string // who serves it: the registry or one of its mirrors
}

// PullRequest asks for an image from its registry.
type PullRequest struct {
	Ref string
	// Keys come before the registry's own: a pod's imagePullSecrets.
	Keys Keyring
	// IfMissing is content with what is here when its turn comes: another pull may have brought it.
	IfMissing bool
	// Pin keeps the image for good, and its compressed layers as an imported one's.
	Pin bool
}

// Pulled is what came of a pull.
type Pulled struct {
	Image   Image
	Bytes   int64         // downloaded now
	Took    time.Duration // without Waited
	Waited  time.Duration // for other pulls to end
	Present bool          // everything was here already
}

// PullStatus is a pull that is going on.
type PullStatus struct {
	Ref     string        `json:"ref"`
	Waiting bool          `json:"waiting,omitempty"` // for other pulls to end
	Layers  []LayerStatus `json:"layers,omitempty"`  // that have to be fetched, lowest first
}

// LayerStatus is one layer of a pull.
type LayerStatus struct {
	Digest  string `json:"digest"`
	Size    int64  `json:"size"`              // compressed
	Fetched int64  `json:"fetched"`           // of Size; what an earlier pull left counts
	Ready   bool   `json:"ready,omitempty"`   // unpacked
	Trouble string `json:"trouble,omitempty"` // why nothing comes at the moment
}

// permanent says that trying again does not help.
func permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// retryAfter is what a registry asks us to wait, if it says so.
func retryAfter(err error) time.Duration {
	var r interface{ RetryAfter() time.Duration }
	if errors.As(err, &r) {
		return min(r.RetryAfter(), time.Minute)
	}
	return 0
}
