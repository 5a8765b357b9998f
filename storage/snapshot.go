package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
)

// keepSnapshots is how many verified copies stand beside the store.
const keepSnapshots = 2

// copies are the snapshots of a store, and what of its log leads on from them.
type copies struct {
	cfg     Config
	log     *redoLog    // known when the store is open
	changed atomic.Bool // something other than lazy writes was committed since the last one
	making  sync.Mutex  // one at a time: two could write one file, and each remove what the other is about to
}

// Snapshot makes a verified copy, if anything but lazy writes changed since the last one.
func (s *Store) Snapshot(ctx context.Context) error {
	if !s.copies.changed.Load() || s.isClosed() || s.condition.failure() != nil {
		return nil
	}
	tx, err := s.beginSnapshot()
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s.copies.changed.Store(false) // what comes from here on is for the next one
	if err := s.copies.make(ctx, tx); err != nil {
		s.copies.changed.Store(true)
		return fmt.Errorf("snapshot: %w", err)
	}
	s.condition.copied()
	return nil
}

// beginSnapshot pairs what the snapshot will have with a new file of the log: no commit comes between.
func (s *Store) beginSnapshot() (*Tx, error) {
	s.lockAlone()
	defer s.writing.Unlock()
	tx, err := s.begin()
	if err != nil {
		return nil, err
	}
	now, err := readTally(tx.b)
	if err != nil {
		return nil, errors.Join(err, tx.b.Rollback())
	}
	s.log.rotate(now)
	return tx, nil
}

// make copies what tx sees, ends tx, and keeps the copy if it passes its check.
func (c *copies) make(ctx context.Context, tx *Tx) error {
	c.making.Lock()
	defer c.making.Unlock()
	name, err := snapshotName(tx)
	dir := c.cfg.path(snapshotDir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	tmp := filepath.Join(dir, name+tempSuffix)
	if err == nil {
		err = saveTo(tx.b, tmp, c.cfg.NoSync)
	}
	if err = errors.Join(err, tx.b.Rollback()); err == nil {
		err = c.cfg.Check(ctx, tmp)
	}
	if err == nil {
		err = c.cfg.disk().Move(tmp, filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, removeIfThere(tmp))
	}
	if err := c.prune(); err != nil {
		return err
	}
	return c.pruneLog()
}

// pruneLog keeps what the snapshots need.
func (c *copies) pruneLog() error {
	snaps, err := c.list()
	if err != nil {
		return err
	}
	var sums []uint64
	for _, snap := range snaps {
		_, text, _ := strings.Cut(strings.TrimSuffix(filepath.Base(snap), ".db"), "-")
		if n, err := strconv.ParseUint(text, 16, 64); err == nil {
			sums = append(sums, n)
		}
	}
	return c.log.prune(sums)
}

// snapshotName sorts by revision and ends in the tally, which says what is inside.
func snapshotName(tx *Tx) (string, error) {
	t, err := readTally(tx.b)
	return fmt.Sprintf("%020d-%016x.db", tx.rev, t.sum), err
}

func saveTo(tx *bolt.Tx, path string, noSync bool) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = tx.WriteTo(f)
	if err == nil && !noSync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (c *copies) prune() error {
	snaps, err := c.list()
	if err != nil {
		return err
	}
	for _, old := range snaps[min(len(snaps), keepSnapshots):] {
		if err := os.Remove(old); err != nil {
			return err
		}
	}
	return nil
}

// list gives the copies, newest first: their names sort by revision.
func (c *copies) list() ([]string, error) {
	entries, err := os.ReadDir(c.cfg.path(snapshotDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".db") {
			out = append(out, c.cfg.path(snapshotDir, e.Name()))
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// noteSnapshots finds out whether the newest snapshot has all that the store has now. Some boards never run for hours, and would get none
// otherwise. The very first store gets one at once: from then on there is always something to restore.
func (o *opener) noteSnapshots(ctx context.Context) error {
	snaps, err := o.copies.list()
	if err != nil {
		return err
	}
	o.copies.changed.Store(true)
	if len(snaps) == 0 {
		if err := o.Snapshot(ctx); err != nil { // not worth keeping a board down
			slog.Warn("could not make the first snapshot", "err", err)
		}
		return nil
	}
	tx, err := o.begin()
	if err != nil {
		return err
	}
	name, err := snapshotName(tx)
	t, terr := readTally(tx.b)
	if err := errors.Join(err, terr, tx.b.Rollback()); err != nil {
		return err
	}
	_, now, _ := strings.Cut(name, "-")
	changed := !strings.HasSuffix(snaps[0], "-"+now)
	o.copies.changed.Store(changed)
	switch {
	case !o.stale:
	case changed: // a log that no snapshot leads to is none
		if err := o.Snapshot(ctx); err != nil {
			slog.Warn("could not make a snapshot for the log", "err", err)
		}
		return nil
	default:
		o.log.rotate(t)
	}
	st, err := os.Stat(snaps[0])
	if err != nil {
		return err
	}
	o.condition.health.Snapshot = st.ModTime()
	return nil
}
