package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

// home is where the things of a store lie, and whether what is written there can be trusted.
type home struct {
	dir, runDir string // StoreConfig.Root and RunDir
	statfs      func(*unix.Statfs_t)
	durable     durable.Disk
	lock        *os.File

	mu     sync.Mutex
	failed error // a sync went wrong: nothing more is written
}

// open makes what is missing of the directories, and keeps other processes out of them.
func (h *home) open() error {
	for _, dir := range []string{h.dir, h.runDir, h.root(ingestDir), h.root(filepath.Dir(blobsDir)), h.root(blobsDir),
		h.root(layersDir), h.root(imagesDir), h.root(containersDir), h.run(rootfsDir), h.run(mountsDir)} {
		// 0700: layers hold setuid programs that users of the host must not reach (CVE-2021-41103).
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// Mounts are listed by their real path; /var/run is often a link.
	for _, dir := range []*string{&h.dir, &h.runDir} {
		real, err := filepath.EvalSymlinks(*dir)
		if err != nil {
			return err
		}
		if *dir, err = filepath.Abs(real); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(h.root("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	h.lock = lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another ledge works on it: %w", err)
	}
	return nil
}

// close lets others in.
func (h *home) close() error {
	if h.lock == nil {
		return nil
	}
	return h.lock.Close()
}

func (h *home) root(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}
func (h *home) run(elem ...string) string {
	return filepath.Join(append([]string{h.runDir}, elem...)...)
}
func (h *home) blobPath(digest string) string { return h.root(blobsDir, hexOf(digest)) }
func (h *home) layerPath(chain string) string { return h.root(layersDir, hexOf(chain)) }
func (h *home) copyPath(id string) string     { return h.root(imagesDir, hexOf(id)+".json") }
func (h *home) partPath(digest string) string { return h.root(ingestDir, hexOf(digest)+partSuffix) }
func (h *home) markPath(digest string) string { return h.root(ingestDir, hexOf(digest)+markSuffix) }

// broken says why nothing may be written any more.
func (h *home) broken() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		return nil
	}
	return fmt.Errorf("storage failed; what was written cannot be trusted until ledge is restarted: %w", h.failed)
}

// note remembers an error that ends all trust in the page cache.
func (h *home) note(err error) error {
	if errors.Is(err, durable.ErrSync) {
		h.mu.Lock()
		h.failed = err
		h.mu.Unlock()
	}
	return err
}

// writeJSON replaces a small file durably.
func (h *home) writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return h.durable.Replace(path, data, 0o600)
}

// space is the size of the disk, and its free part.
func (h *home) space() (capacity, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(h.dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: h.dir, Err: err}
	}
	if h.statfs != nil {
		h.statfs(&st)
	}
	return int64(st.Blocks) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize), nil
}

// halfMade says that a name in a directory of the store is of something that was being made.
func halfMade(name string) bool { return strings.HasPrefix(name, tmpPrefix) || durable.Temporary(name) }
