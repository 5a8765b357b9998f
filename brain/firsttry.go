package brain

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"ledge/brain/place"
)

// firstTry notes what a first start is about to make in the two directories. What it gives removes that again, if the store is of this
// start and nothing stands yet but files: a full disk then costs no more than another try. Later 'ledge reset' finds what there is.
func (b *Brain) firstTry() (undo func()) {
	var absent []string
	for dir, names := range map[string][]string{b.DataDir: {"store", "pki", "images"},
		b.RunDir: {place.InfoFile, place.InfoFile + ".tmp", "images"}} {
		for _, name := range names {
			if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
				absent = append(absent, filepath.Join(dir, name))
			}
		}
	}
	return func() {
		if b.begun || b.store == nil || !b.store.Health().Made {
			return
		}
		if err := b.close(); err != nil {
			slog.Debug("what a failed start leaves is not closed in order", "err", err)
		}
		b.images, b.store = nil, nil
		if store := filepath.Join(b.DataDir, "store"); slices.Contains(absent, store) {
			// The mark first: cut off after it, this is a first start again; with the mark alone the next one would look for a store.
			absent = slices.Insert(absent, 0, filepath.Join(store, "provisioned"))
		}
		for _, path := range absent {
			if err := os.RemoveAll(path); err != nil {
				slog.Warn("a failed start leaves something behind", "err", err)
			}
		}
	}
}
