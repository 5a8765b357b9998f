// Package layers makes directories of image layers and root file systems of those directories, with overlayfs.
// What it unpacks was made by strangers: nothing in an archive can reach outside the layer's own directory,
// because every path is opened with openat2 beneath it and without symbolic links, and every size is bounded.
package layers

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"ledge/images"
)

// Config sets bounds. The zero value is the default.
type Config struct {
	MaxBytes   int64 // of file content in a layer; 0: 32 GiB
	MaxEntries int   // in a layer; 0: 500000
	MaxDepth   int   // of directories; 0: 256
	// MaxRatio bounds what comes out of a compressed layer to so many times what went in, after the first
	// RatioSlack bytes; 0: 200.
	MaxRatio   int64
	RatioSlack int64 // 0: 256 MiB
	// UnmountWait is how long a busy root file system is waited for before it is detached; 0: 3 s.
	UnmountWait time.Duration
	Log         *slog.Logger
}

// Overlay does the file system work of an image store.
type Overlay struct {
	cfg Config
}

var _ images.Layers = (*Overlay)(nil)

// New makes an Overlay.
func New(cfg Config) *Overlay {
	def(&cfg.MaxBytes, 32<<30)
	def(&cfg.MaxEntries, 500_000)
	def(&cfg.MaxDepth, 256)
	def(&cfg.MaxRatio, 200)
	def(&cfg.RatioSlack, 256<<20)
	def(&cfg.UnmountWait, 3*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Overlay{cfg: cfg}
}

func def[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Decompress implements images.Layers.
func (o *Overlay) Decompress(r io.Reader) (io.ReadCloser, error) {
	rc, _, err := decompress(r)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return rc, nil
}
