package storage

import (
	"errors"
	"fmt"
	"log/slog"

	bolt "go.etcd.io/bbolt"
)

// A file is compacted, at open and when the disk is nearly full, if it is large and much of it is free.
const (
	compactFrom  = 4 << 20
	compactShare = 4 // a quarter
)

// mostlyAir says whether much of a file is free.
func mostlyAir(db *bolt.DB) bool {
	st, size := db.Stats(), usedSize(db)
	free := int64(st.FreePageN+st.PendingPageN) * int64(db.Info().PageSize)
	return size >= compactFrom && free >= size/compactShare
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

// compact writes what is in use of a file to another.
func (c Config) compact(db *bolt.DB, tmp string) error {
	dst, _, err := c.openFile(tmp)
	if err != nil {
		return err
	}
	err = bolt.Compact(dst, db, 1<<20)
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
	old, freed, err := s.swapCompacted()
	if old != nil { // outside all locks: it waits for those who still read there
		err = errors.Join(err, old.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("compact the store: %w", err)
	}
	if freed > 0 {
		slog.Info("compacted the store", "bytes", freed)
	}
	return freed, nil
}

// swapCompacted puts a compacted copy in the place of the file, and gives the database that was there.
func (s *Store) swapCompacted() (old *bolt.DB, freed int64, err error) {
	s.lockAlone()
	defer s.writing.Unlock()
	if s.isClosed() || s.condition.failure() != nil || !mostlyAir(s.db) {
		return nil, 0, nil
	}
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
	if err == nil {
		err = s.cfg.disk().Move(tmp, s.cfg.path(dbName))
	}
	if err != nil {
		return nil, 0, errors.Join(err, db.Close(), removeIfThere(tmp))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.db, s.file, s.txid = s.db, db, file, id
	return old, size - usedSize(db), nil
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
