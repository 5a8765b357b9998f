package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// durable does the steps whose order and success make a change survive a power cut. A test watches it, and lets
// steps fail; nothing else does.
type durable struct {
	watch func(step, path string) error
}

func (d *durable) before(step, path string) error {
	if d.watch == nil {
		return nil
	}
	if err := d.watch(step, path); err != nil {
		return &fs.PathError{Op: step, Path: path, Err: err}
	}
	return nil
}

// syncFile makes content and size of a file durable.
func (d *durable) syncFile(path string) error {
	return d.sync("fsync", path, os.O_RDWR, unix.Fsync)
}

// syncDir makes the names in a directory durable; without it a rename can vanish (containerd#10457).
func (d *durable) syncDir(path string) error {
	return d.sync("fsync", path, os.O_RDONLY, unix.Fsync)
}

// syncFS makes everything on the file system of path durable. Unlike sync(2) it tells of errors (5.8).
func (d *durable) syncFS(path string) error {
	return d.sync("syncfs", path, os.O_RDONLY, unix.Syncfs)
}

// errSync marks a failed sync: the kernel may have dropped what it could not write and call it clean, so asking
// again would lie (Rebello et al., ATC '20).
var errSync = errors.New("storage failed; what was written cannot be trusted until ledge is restarted")

func (d *durable) sync(step, path string, flags int, call func(int) error) error {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = d.before(step, path)
	if err == nil {
		err = call(int(f.Fd()))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %w", step, path, errSync, err)
	}
	return nil
}

func (d *durable) rename(from, to string) error {
	if err := d.before("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// replace puts a directory in the place of another, which is then at from. At no moment is neither there.
func (d *durable) replace(from, to string) error {
	if err := d.before("rename", to); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: from, New: to, Err: err}
	}
	return nil
}

// writeJSON writes a small file atomically: after a power cut it is there whole or not at all.
func (d *durable) writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), tmpPrefix+filepath.Base(path))
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := d.syncFile(tmp); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := d.rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return d.syncDir(filepath.Dir(path))
}

// unlink removes a file durably. A missing one is not an error.
func (d *durable) unlink(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.syncDir(filepath.Dir(path))
}
