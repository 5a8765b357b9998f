package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	bolt "go.etcd.io/bbolt"
)

// openLog brings the store to where the log has it, and goes on with the log from there. The store is behind when it
// was restored from a snapshot, or when the disk forgot what it had said was written.
func (o *opener) openLog() (err error) {
	l := &redoLog{dir: o.cfg.path(redoDir), store: o.id, disk: o.cfg.disk(), full: make(chan struct{}, 1), withBallast: o.ballast.with}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if o.segments, err = l.read(); err != nil {
		return err
	}
	now, err := tallyOf(o.db)
	if err != nil {
		return err
	}
	rest, whole := tail(o.segments, now)
	if n := len(o.segments); !whole && n > 0 && o.condition.health.Restored == "" {
		if at, err := o.logNumber(); err != nil || at < o.segments[n-1].number {
			return errors.Join(errForgot, err)
		}
	}
	for _, r := range rest {
		if len(r.changes) == 0 {
			continue
		}
		if err := o.redo(r); err != nil {
			return fmt.Errorf("put back what the log has: %w", err)
		}
		now = r.after
		o.condition.health.Replayed++
	}
	o.told(whole)
	o.log, o.copies.log = l, l
	switch n := len(o.segments); {
	case !whole: // begun with the next snapshot, which noteSnapshots makes
		o.stale, l.err = true, errors.New("not begun")
	case o.segments[n-1].clean && o.segments[n-1].number == l.number:
		return l.resume(o.segments[n-1])
	default: // nothing can stand behind what is no frame
		l.rotate(now)
	}
	return nil
}

// errForgot means that the store is sound, but older than the log reaches back. A store can also be ahead of the log,
// if the power failed between commit and log; its last commit then names the newest log file.
var errForgot = fmt.Errorf("%w: it is an older one, which the disk had been told to replace", ErrDamaged)

// logNumber is the file of the log that the store's last commit went to; 0 in a store from before there was a log.
func (o *opener) logNumber() (at uint64, err error) {
	err = o.db.View(func(tx *bolt.Tx) error {
		if tx.Bucket(metaBucket).Get(logKey) == nil {
			return nil
		}
		at, err = metaNumber(tx, logKey)
		return err
	})
	return at, err
}

// replace puts a snapshot in the place of a store that is open.
func (o *opener) replace(ctx context.Context, why error) error {
	db := o.db
	o.db = nil
	if err := db.Close(); err != nil {
		return err
	}
	if err := o.restore(ctx, why); err != nil {
		return err
	}
	if err := o.open(); err != nil {
		return err
	}
	if err := o.resume(); err != nil {
		return err
	}
	return o.openLog()
}

// told says what became of the store.
func (o *opener) told(whole bool) {
	h := &o.condition.health
	switch {
	case h.Restored != "" && whole:
		h.Complete = true
		slog.Warn("everything that was acknowledged is there again", "replayed", h.Replayed)
	case h.Restored != "":
		slog.Error("what was written after the snapshot and is not in the log is lost", "replayed", h.Replayed)
	case h.Replayed > 0:
		slog.Error("the disk had forgotten writes that it had acknowledged; they were put back from the log", "replayed", h.Replayed)
	}
}

func tallyOf(db *bolt.DB) (t tally, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		t, err = readTally(tx)
		return err
	})
	return t, err
}

// redo makes one transaction again; it must lead where it led.
func (o *opener) redo(r record) error {
	return o.write(false, func(w *writer) error {
		for _, c := range r.changes {
			if c.raw == nil {
				if err := w.delete(c.bucket, c.key); err != nil {
					return err
				}
				continue
			}
			if err := w.put(c.bucket, c.key, c.raw); err != nil {
				return err
			}
		}
		if w.t != r.after {
			return fmt.Errorf("%w: a record of the log leads elsewhere", ErrDamaged)
		}
		return nil
	}, nil)
}

// findInLog looks for the versions that were lost among what was written since the snapshots.
func findInLog(segments []segment, bad []*badValue) {
	for _, s := range segments {
		for _, r := range s.records {
			for _, c := range r.changes {
				for _, v := range bad {
					if c.raw == nil || !bytes.Equal(c.bucket, v.bucket) || !bytes.Equal(c.key, v.key) || !bytes.HasPrefix(c.raw, v.header) {
						continue
					}
					if _, err := unseal(c.bucket, c.key, c.raw); err == nil {
						v.good = bytes.Clone(c.raw)
					}
				}
			}
		}
	}
}
