package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

// Backup writes a copy of the running store, lazy writes included. The copy is made aside first: a reader at the
// other end of a network must not hold a transaction open, which would keep every page since then from reuse.
func (s *Store) Backup(w io.Writer) error {
	if err := s.Flush(); err != nil {
		slog.Warn("a backup without the newest lazy writes", "err", err)
	}
	tx, err := s.begin()
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	f, err := spool(s.cfg.Dir)
	if err == nil {
		defer f.Close()
		_, err = tx.b.WriteTo(f)
	}
	if errors.Is(err, unix.ENOSPC) { // the disk is full and someone wants to save what is on it
		_, err = tx.b.WriteTo(w)
		return wrap("backup", errors.Join(err, tx.b.Rollback()))
	}
	if err = errors.Join(err, tx.b.Rollback()); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(w, f)
	}
	return wrap("backup", err)
}

// spool is a file without a name.
func spool(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "backup-*"+tempSuffix)
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// BackupDir writes a copy of a store that no ledge has open.
func BackupDir(dir string, w io.Writer) error {
	path := filepath.Join(dir, dbName)
	if there, err := exists(path); err != nil || !there {
		return wrap("backup", errors.Join(err, fmt.Errorf("there is no store in %s", dir)))
	}
	lock, err := lockDir(dir, 0)
	if err != nil {
		return wrap("backup", err)
	}
	defer lock.Close()
	if err := Check(path); err != nil {
		return wrap("backup", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return wrap("backup", err)
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return wrap("backup", err)
}

// Restore puts a backup in the place of the store of a directory. The file that was there is kept as evidence.
type Restore struct {
	Dir, Backup string
	Check       func(context.Context, string) error // Check, or CheckChild; nil: Check
	Disk        durable.Disk
	Before      func() error // the backup is whole and beside the store, nothing is changed yet: an error leaves all as it was
	After       func() error // it is in its place
}

// Run is refused while a ledge has the store open, and holds it until it returns.
func (r Restore) Run(ctx context.Context) error {
	cfg := Config{Dir: r.Dir, Check: r.Check}
	if err := cfg.setDefaults(); err != nil {
		return err
	}
	if err := cfg.Check(ctx, r.Backup); err != nil {
		return wrap("restore", err)
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return wrap("restore", err)
	}
	lock, err := lockDir(r.Dir, 0)
	if err != nil {
		return wrap("restore", err)
	}
	defer lock.Close()
	in, err := os.Open(r.Backup)
	if err != nil {
		return wrap("restore", err)
	}
	defer in.Close()
	beside := cfg.path("restore" + tempSuffix)
	if err := r.Disk.Write(beside, in, 0o600); err != nil {
		return wrap("restore", err)
	}
	defer os.Remove(beside)
	if r.Before != nil {
		if err := r.Before(); err != nil {
			return err
		}
	}
	o := &opener{Store: newStore(cfg, lock)}
	if _, err := o.keepEvidence(); err != nil {
		return wrap("restore", err)
	}
	if err := o.breakLine(); err != nil {
		return wrap("restore", err)
	}
	// The log would lead away from the backup again.
	if err := os.RemoveAll(o.cfg.path(redoDir)); err != nil {
		return wrap("restore", err)
	}
	if err := errors.Join(r.Disk.SyncDir(r.Dir), r.Disk.Move(beside, o.cfg.path(dbName))); err != nil {
		return wrap("restore", err)
	}
	if r.After != nil {
		return r.After()
	}
	return nil
}

// copyFile copies so that after a power cut the target is whole or as it was.
func copyFile(disk durable.Disk, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return disk.ReplaceFrom(to, in, 0o600)
}
