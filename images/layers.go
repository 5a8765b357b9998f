package images

import (
	"context"
	"io"
	"os"
)

// ManifestFile is the file beside a layer's tree that lists everything in it.
const ManifestFile = "manifest"

// Layers is the file system work below a store: it makes directories of layer archives and root file systems of
// those directories. It keeps no state; images/layers does it with overlayfs.
type Layers interface {
	// Decompress gives the plain bytes of a gzip or zstd stream; anything else passes as it is.
	Decompress(r io.Reader) (io.ReadCloser, error)
	// Unpack makes a layer of an archive in the existing, empty directory dir: its tree and its manifest.
	// Nothing is synced. After an error dir may hold anything.
	Unpack(ctx context.Context, dir string, a LayerArchive) (Unpacked, error)
	// Verify compares a layer with its manifest, whose digest is given: everything is there with the right
	// mode and size or, with full, the right content too. The error wraps ErrDamaged when it is not so.
	Verify(ctx context.Context, dir, manifest string, full bool) error
	// Mount joins layers, lowest first, with a fresh writable one made inside dir, at the directory target.
	Mount(target, dir string, lower []string) error
	// Mounted says whether a root file system is mounted at target.
	Mounted(target string) (bool, error)
	// Unmount takes away whatever is mounted at target or below it. Nothing there is not an error.
	Unmount(ctx context.Context, target string) error
	// Remove deletes a directory and all below it, however deep. A missing one is not an error.
	Remove(dir string) error
}

// UserLayers are Layers that can mount for a user namespace.
type UserLayers interface {
	// MountFor is Mount for users 0 and on that are host and on of the board, size of them.
	MountFor(target, dir string, lower []string, host, size uint32) error
}

// LayerArchive is a layer as it came.
type LayerArchive struct {
	Tar io.Reader // plain, gzip or zstd
	// Lower are the directories of the layers below, lowest first: parents that the archive does not mention
	// take their owner and mode from there.
	Lower []string
	// Same gives open files that hold the content of an entry already, by the entry's path. They are shared
	// with the layer (reflink, hard link) instead of written again, where that is possible.
	Same map[string]*os.File
}

// Unpacked describes a layer made by Layers.Unpack.
type Unpacked struct {
	DiffID   string // digest of the uncompressed archive
	Manifest string // digest of the manifest
	Bytes    int64  // of file content
	Entries  int
}
