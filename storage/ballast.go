package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The ballast is what the store keeps for itself on a disk that others may fill: empty files with space behind them. When
// a write finds no space, or no inode, one of them goes and the write is tried again. One at a time: whoever fills the disk
// takes what is free at once, and the next write needs space as well.
const (
	ballastDir    = "ballast"
	ballastPieces = 16
	ballastPiece  = 256 << 10
	// ballastShare is the part of what is available that all of it may be: it must not be what makes a disk full.
	ballastShare = 16
	// ballastEvery is how often what was thrown off is looked for again.
	ballastEvery = time.Minute
)

// full says that a disk has no space left, for files or for what is in them.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// ballast is that of one store.
type ballast struct {
	dir    string
	broken func() bool // the store: nothing is tried again then
	light  atomic.Bool // it is not known to be whole
}

// with calls fn, and again with a piece of the ballast less for as long as the disk is full. fn must leave everything as it
// was when it fails so.
func (b *ballast) with(fn func() error) error {
	for {
		err := fn()
		if !full(err) || b.broken() || !b.throwOff(err) {
			return err
		}
	}
}

// throwOff removes one piece; false: there is none.
func (b *ballast) throwOff(why error) bool {
	pieces, err := os.ReadDir(b.dir)
	if err != nil || len(pieces) == 0 {
		return false
	}
	if err := os.Remove(filepath.Join(b.dir, pieces[len(pieces)-1].Name())); err != nil {
		return false
	}
	b.light.Store(true)
	slog.Warn("the disk is full; the store lives on what it has kept for this", "pieces", len(pieces)-1, "bytes", (len(pieces)-1)*ballastPiece,
		"cause", why)
	return true
}

// takeIn makes it whole when there is space for it again.
func (b *ballast) takeIn() error {
	if !b.light.Load() {
		return nil
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return fmt.Errorf("keep space for a full disk: %w", err)
	}
	for i := range ballastPieces {
		path := filepath.Join(b.dir, strconv.Itoa(10+i))
		if there, err := exists(path); err != nil || there {
			continue
		}
		if ample, err := ample(b.dir); err != nil || !ample {
			return err
		}
		if err := reserveFile(path, ballastPiece); err != nil {
			return fmt.Errorf("keep space for a full disk: %w", errors.Join(err, removeIfThere(path)))
		}
	}
	b.light.Store(false)
	return nil
}

// takeIn has the disk keep the space that the store may need, when there is some again.
func (s *Store) takeIn() error {
	if s.cfg.NoSync { // a simulation has no card to fill
		return nil
	}
	if err := s.fillHoles(); err != nil {
		return fmt.Errorf("keep space in %s: %w", dbName, err)
	}
	return s.ballast.takeIn()
}

// ample says whether the disk of a directory has so much space that the ballast is a small part of it.
func ample(dir string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false, fmt.Errorf("keep space for a full disk: %w", err)
	}
	return int64(fs.Bavail)*int64(fs.Bsize)/ballastShare >= ballastPieces*ballastPiece &&
		(fs.Files == 0 || fs.Ffree >= ballastShare*ballastPieces), nil
}

// fillHoles has the disk keep what the file has and has never used. bbolt makes a file longer without that: a page of it that
// is written for the first time takes space, and a full disk could not even hold a deletion.
func (s *Store) fillHoles() error {
	var st unix.Stat_t
	if err := unix.Stat(s.cfg.path(dbName), &st); err != nil || st.Blocks*512 >= st.Size {
		return err
	}
	if ample, err := ample(s.cfg.Dir); err != nil || !ample {
		return err
	}
	s.lockAlone() // a compaction puts another file in its place
	defer s.writing.Unlock()
	if s.isClosed() {
		return nil
	}
	return unix.Fallocate(int(s.file.Fd()), 0, 0, st.Size)
}

// tryTakeIn tells of a failure once; last is the one before.
func (s *Store) tryTakeIn(last string) string {
	err := s.takeIn()
	if err == nil || full(err) {
		return ""
	}
	if err.Error() != last {
		slog.Warn("a full disk would stop the store at once", "err", err)
	}
	return err.Error()
}

// reserveFile makes a file with space behind it. Nothing is written into that, so it wears no card.
func reserveFile(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	return errors.Join(err, f.Close())
}
