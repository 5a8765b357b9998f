package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

// Names in a data directory.
const (
	dbName          = "state.db"
	provisionedName = "provisioned"
	ceilingName     = "ceiling"
	cleanName       = "clean"
	lockName        = "lock"
	snapshotDir     = "snapshots"
	damagedDir      = "damaged"
	tempSuffix      = ".tmp"
)

func (c Config) disk() durable.Disk { return durable.Disk{NoSync: c.NoSync} }

// overwrite writes into a file of the same length, which needs no space. A power cut may leave a mixture.
func overwrite(path string, data []byte, noSync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Size() != int64(len(data))) {
		err = fmt.Errorf("%s is not of %d bytes", path, len(data))
	}
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil && !noSync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Hold locks a store until release is called, or fails if a running ledge has the lock. It writes nothing. Without a
// lock file the store is not held.
func Hold(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would block
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, 0); err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil // nothing was written through it
}

// lockDir keeps a second ledge out. The lock goes with the process, however it ends.
func lockDir(dir string, patience time.Duration) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, patience); err != nil {
		return nil, err
	}
	return f, nil
}

// lockFile locks an open file, or closes it.
func lockFile(f *os.File, patience time.Duration) (err error) {
	dir := filepath.Dir(f.Name())
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || !time.Now().Before(end) {
			break
		}
	}
	_ = f.Close() // nothing was written through it
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s", ErrInUse, dir)
	}
	return fmt.Errorf("lock %s: %w", dir, err)
}
