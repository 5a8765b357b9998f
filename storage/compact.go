package storage

import (
	"errors"
	"fmt"
	"log/slog"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// A file is compacted, at open and when the disk is nearly full, if it is large and much of it is free.
const (
	compactFrom  = 4 << 20
	compactShare = 4 // a quarter
)

// mostlyAir says whether much of a file is free.
func mostlyAir(db *bolt.DB) bool {
	size := usedSize(db)
	return size >= compactFrom && freeSize(db) >= size/compactShare
}

func (o *opener) compact() error {
	if !mostlyAir(o.db) {
		return nil
	}
	size, tmp := usedSize(o.db), o.cfg.path(dbName+tempSuffix)
	if err := o.cfg.compact(o.db, tmp); err != nil { // it is only housekeeping, and a full disk has no space for it
		slog.Warn("could not compact the store", "err", err)
		return removeIfThere(tmp)
	}
	db, path := o.db, o.cfg.path(dbName)
	o.db = nil
	err := db.Close()
	if err == nil {
		err = o.cfg.disk().Move(tmp, path)
	}
	if err == nil {
		o.db, o.file, err = o.cfg.openFile(path)
	}
	if err == nil {
		slog.Info("compacted the store", "from", size, "to", usedSize(o.db))
	}
	return err
}

// compact writes what is in use of a file to another. It does so in small steps: each leaves a hole as large as the leaf that it ended
// with, and the next but one fills it.
func (c Config) compact(db *bolt.DB, tmp string) error {
	const step = 256 << 10
	c.MaxSize, c.NoSync = 0, true // until it is whole
	dst, _, err := c.openFile(tmp)
	if err != nil {
		return err
	}
	err = bolt.Compact(dst, db, step)
	if err == nil {
		err = dst.Sync()
	}
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return err
}

// Compact gives back what of the file is free while the store is in use; writers wait for it. It says how many bytes that
// were: none where it is not worth it.
func (s *Store) Compact() (freed int64, err error) {
	s.lockAlone()
	var old *bolt.DB
	if !s.isClosed() && s.condition.failure() == nil && mostlyAir(s.db) {
		old, freed, err = s.swapCompacted()
	}
	s.writing.Unlock()
	if old != nil { // outside all locks: it waits for those who still read there
		err = errors.Join(err, old.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("compact the store: %w", err)
	}
	return freed, nil
}

// swapCompacted puts a compacted copy in the place of the file, and gives the database that was there. The caller holds writing.
func (s *Store) swapCompacted() (old *bolt.DB, freed int64, err error) {
	size, tmp := usedSize(s.db), s.cfg.path(dbName+tempSuffix)
	err = s.ballast.with(func() error {
		if err := s.cfg.compact(s.db, tmp); err != nil {
			return errors.Join(err, removeIfThere(tmp))
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	db, file, err := s.cfg.openFile(tmp)
	if err != nil {
		return nil, 0, errors.Join(err, removeIfThere(tmp))
	}
	id, err := dbTxID(db)
	if freed = size - usedSize(db); err == nil && freed <= 0 {
		err = errors.New("the copy is as large")
	}
	if err == nil {
		err = s.cfg.disk().Move(tmp, s.cfg.path(dbName))
	}
	if err != nil {
		return nil, 0, errors.Join(err, db.Close(), removeIfThere(tmp))
	}
	slog.Info("compacted the store", "bytes", freed)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.db, s.file, s.txid, s.buckets = s.db, db, file, id, s.buckets.copied()
	return old, freed, nil
}

// piecesShare is the part of MaxSize that must have become free in pieces since the last compaction, for another to join them for one
// write: whoever writes much in a store that is nearly full has the card write sixteen times as much, and no more.
const piecesShare = 16

// freePieces are what of a file is free, and each too small for a write that found no space.
type freePieces struct {
	left int64 // bytes, by the last compaction that was to join them
}

// join compacts the file of a store. It says whether the write should be tried again. The caller holds writing.
func (p *freePieces) join(s *Store) bool {
	share, free, used := int64(s.cfg.MaxSize/piecesShare), freeSize(s.db), usedSize(s.db)
	if free-p.left < share || int64(s.db.MaxSize-s.db.AllocSize)-(used-free) < share || !fits(s.cfg.Dir, used-free) {
		return false
	}
	old, _, err := s.swapCompacted()
	p.left = freeSize(s.db)
	if err != nil {
		slog.Warn("could not compact the store, which is full", "err", err)
	}
	if old != nil {
		go func() { // it waits for those who still read there
			if err := old.Close(); err != nil {
				slog.Warn("could not close the file that was compacted", "err", err)
			}
		}()
	}
	return err == nil
}

// fits says whether the disk has space for a copy; the ballast is not for that.
func fits(dir string, size int64) bool {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	return err == nil && int64(fs.Bavail)*int64(fs.Bsize) >= size+ballastPieces*ballastPiece
}

// freeSize is what of the file is free, or will be when those who read it have ended.
func freeSize(db *bolt.DB) int64 {
	st := db.Stats()
	return int64(st.FreePageN+st.PendingPageN) * int64(db.Info().PageSize)
}

// usedSize is what of the file has ever been used; the file itself is longer, and sparse.
func usedSize(db *bolt.DB) (n int64) {
	err := db.View(func(tx *bolt.Tx) error {
		n = tx.Size()
		return nil
	})
	if err != nil {
		return 0
	}
	return n
}
