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

// RestoreDir puts a checked backup in the place of the store of a directory. The file that was there is kept as
// evidence. It is refused while a ledge has the store open. Verifying a backup is Check, or CheckChild.
func RestoreDir(ctx context.Context, dir, backup string, check func(context.Context, string) error) error {
	cfg := Config{Dir: dir, Check: check}
	if err := cfg.setDefaults(); err != nil {
		return err
	}
	if err := cfg.Check(ctx, backup); err != nil {
		return wrap("restore", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return wrap("restore", err)
	}
	lock, err := lockDir(dir, 0)
	if err != nil {
		return wrap("restore", err)
	}
	defer lock.Close()
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
	return wrap("restore", errors.Join(durable.SyncDir(dir), copyFile(durable.Disk{}, backup, o.cfg.path(dbName))))
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
