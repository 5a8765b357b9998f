// Package durable changes files so that a power cut leaves the old or the new one, whole:
//
//	temporary file beside it -> write -> fsync -> rename -> fsync of the directory
//
// A file has one writer at a time: the owner of its directory sees to that.
package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Disk does the steps. The zero value is what a board uses.
type Disk struct {
	// NoSync leaves out every sync: a rename still is atomic, and a power cut may undo it or tear the file.
	NoSync bool
	// Before hears each fsync, syncfs and rename before it is done; its error fails the step. Only tests set it.
	Before func(step, path string) error
}

// Volatile is for files that are of no use after this boot: readers find the old or the new one, and nothing is synced.
var Volatile = Disk{NoSync: true}

// ErrSync marks a sync that failed. The kernel may have dropped what it could not write and call it clean, so a second
// sync of the same file proves nothing (Rebello et al., ATC '20).
var ErrSync = errors.New("what was written may be lost")

// Replace is Disk.Replace on a board.
func Replace(path string, data []byte, perm fs.FileMode) error {
	return Disk{}.Replace(path, data, perm)
}

// Move is Disk.Move on a board.
func Move(from, to string) error { return Disk{}.Move(from, to) }

// Write is Disk.Write on a board.
func Write(path string, from io.Reader, perm fs.FileMode) error {
	return Disk{}.Write(path, from, perm)
}

// SyncDir is Disk.SyncDir on a board.
func SyncDir(dir string) error { return Disk{}.SyncDir(dir) }

// Temporary says that a name is one that Replace gives a file before it is whole. A power cut can leave it; the next
// Replace of the same file removes it.
func Temporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, suffix)
}

const suffix = ".tmp"

func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+suffix)
}

// Replace makes data the content of a file, with exactly that mode.
func (d Disk) Replace(path string, data []byte, perm fs.FileMode) error {
	return d.ReplaceFrom(path, bytes.NewReader(data), perm)
}

// ReplaceFrom is Replace with what a reader yields. After an error the old file is there, or the new one if only the
// directory could not be synced.
func (d Disk) ReplaceFrom(path string, from io.Reader, perm fs.FileMode) error {
	tmp := temporary(path)
	if err := d.Write(tmp, from, perm); err != nil {
		return err
	}
	if err := d.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return d.SyncDir(filepath.Dir(path))
}

// Write makes a new file, in the place of whatever has the name, and syncs it. Its name is durable only after SyncDir.
// After an error there is no file.
func (d Disk) Write(path string, from io.Reader, perm fs.FileMode) error {
	// What a power cut left may have another mode, or be a link or a FIFO.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	err = f.Chmod(perm) // the umask may have taken something away
	if err == nil {
		_, err = io.Copy(f, from)
	}
	if err == nil {
		err = d.sync("fsync", f, (*os.File).Sync)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Rename renames. That is durable only after SyncDir.
func (d Disk) Rename(from, to string) error {
	if err := d.before("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Move renames a file that is synced, durably.
func (d Disk) Move(from, to string) error {
	if err := d.Rename(from, to); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(to))
}

// Remove removes a file durably. A missing one is not an error.
func (d Disk) Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// SyncFile makes content and size of a file durable.
func (d Disk) SyncFile(path string) error {
	return d.syncPath("fsync", path, os.O_RDWR, (*os.File).Sync)
}

// SyncDir makes the names in a directory durable; without it a rename can vanish (containerd#10457).
func (d Disk) SyncDir(dir string) error {
	return d.syncPath("fsync", dir, os.O_RDONLY, (*os.File).Sync)
}

func (d Disk) syncPath(step, path string, flags int, call func(*os.File) error) error {
	if d.NoSync {
		return nil
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.sync(step, f, call), f.Close())
}

func (d Disk) sync(step string, f *os.File, call func(*os.File) error) error {
	if d.NoSync {
		return nil
	}
	err := d.before(step, f.Name())
	if err == nil {
		err = call(f)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSync, err)
	}
	return nil
}

func (d Disk) before(step, path string) error {
	if d.Before == nil {
		return nil
	}
	if err := d.Before(step, path); err != nil {
		return &fs.PathError{Op: step, Path: path, Err: err}
	}
	return nil
}
