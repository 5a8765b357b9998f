// Package images keeps images and makes root file systems of them. This file is its contract: plain types and
// two interfaces. It imports nothing of ledge; the READY rows are kept behind Index, which cmd/ledge joins to
// the store.
package images

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// ErrNotFound says that no image of that name is here.
var ErrNotFound = errors.New("image not found")

// ErrInUse says that a container stands on the image.
var ErrInUse = errors.New("image is in use")

// ErrInvalidName says that a reference is not one.
var ErrInvalidName = errors.New("invalid image name")

// ErrBuiltIn says that an image or a name belongs to ledge itself and cannot be removed or replaced.
var ErrBuiltIn = errors.New("image is built in")

// ErrDamaged means that content on disk has changed since it was written.
var ErrDamaged = errors.New("image data is damaged")

// Store holds unpacked images.
type Store interface {
	// Get finds a local image by any name a pod may give: short, tagged, by digest or by ID.
	Get(ctx context.Context, ref string) (Image, error)
	List(ctx context.Context) ([]Image, error)
	// Import reads an OCI layout or docker-archive tar, plain or compressed, and keeps every image in it for
	// this platform. Imported images are pinned.
	Import(ctx context.Context, r io.Reader) ([]Image, error)
	// Pull brings an image from its registry under the name that was asked for. What was downloaded before an error,
	// a restart or a power cut is not downloaded again.
	Pull(ctx context.Context, req PullRequest) (Pulled, error)
	// Remove drops a name, and with its last name the image.
	Remove(ctx context.Context, ref string) error
	// Mount gives container key a root file system of its own: the image's layers below, a writable layer of
	// its own above. The same key again gives the same directory.
	Mount(ctx context.Context, imageID, key string) (rootfs string, err error)
	// Unmount drops a root file system and what was written to it. An unknown key is not an error.
	Unmount(ctx context.Context, key string) error
	// Retain unmounts every root file system whose key is not listed; for after a restart.
	Retain(ctx context.Context, keys []string) error
}

// UserStore is a Store that can mount for a pod with a user namespace.
type UserStore interface {
	// MountFor is Mount for a container whose users 0 and on are host and on of the board, size of them.
	MountFor(ctx context.Context, imageID, key string, host, size uint32) (rootfs string, err error)
}

// Image is one image for this platform.
type Image struct {
	ID        string   // digest of its config: "sha256:..."
	Names     []string // "docker.io/library/busybox:1.37"
	Digests   []string // "docker.io/library/busybox@sha256:..."
	Layers    []string // chain IDs, lowest first
	Size      int64    // of the files in its layers
	Shared    int64    // of Size, in layers that other images have too
	Kept      bool     // its compressed layers are here as well
	Pinned    bool
	UsedBy    []string  // keys of root file systems that stand on it
	CreatedAt time.Time // when it came here
	Config    Config
}

// Config is what an image says about how to run it.
type Config struct {
	Entrypoint, Cmd, Env []string
	WorkingDir           string
	User                 string
	StopSignal           string
	Volumes              []string
	Labels               map[string]string
}

// Index is a small durable table. Put and Delete return when the change would survive a power cut.
type Index interface {
	Put(key string, value []byte) error
	Delete(key string) error
	// All is every row; values whose checksum does not hold are left out and reported by name.
	All() (rows map[string][]byte, damaged []string, err error)
}

// IsBuiltIn says whether an image of these names comes with ledge: no registry has it.
func IsBuiltIn(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, builtInDomain) })
}
