package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncFS makes everything on the file system of path durable. Unlike sync(2) it tells of errors (Linux 5.8).
func (d Disk) SyncFS(path string) error {
	return d.syncPath("syncfs", path, os.O_RDONLY, func(f *os.File) error {
		if err := unix.Syncfs(int(f.Fd())); err != nil {
			return &os.PathError{Op: "syncfs", Path: path, Err: err}
		}
		return nil
	})
}

// Exchange puts a directory in the place of another, which is then at from; where there is none it renames. At no
// moment is neither there. It is durable only after SyncDir.
func (d Disk) Exchange(from, to string) error {
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
