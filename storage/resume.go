package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"

	bolt "go.etcd.io/bbolt"

	"ledge/internal/durable"
)

// Schema is the version of the layout. A store written by a newer one is refused: it may mean things this
// version would destroy. What raises it has to wait until an upgrade is over (docs/decisions/0057): a version on trial
// leaves a store that the one before it can open.
const Schema = 1

var (
	metaBucket = []byte("meta")
	schemaKey  = []byte("schema")
	ceilingKey = []byte("ceiling")
	idKey      = []byte("id")
	tallyKey   = []byte("tally")
	countKey   = []byte("count") // of the commits, and the tally that it belongs to
	logKey     = []byte("log")   // number of the file of the log that the last commit went to
)

// resume chooses the first revision, above everything that was ever handed out, and takes away the buckets of kinds that have no
// objects: every commit writes the list of buckets.
func (o *opener) resume() error {
	fileCeiling, known, err := o.ceiling.read()
	if err != nil {
		return err
	}
	var dbCeiling uint64
	var empty [][]byte
	o.buckets.forget()
	err = o.db.View(func(tx *bolt.Tx) (err error) {
		for _, k := range o.cfg.Kinds.Kept {
			name := bucketName(k)
			b := tx.Bucket(name)
			if b == nil {
				continue
			}
			if key, _ := b.Cursor().First(); key == nil {
				empty = append(empty, name)
			} else {
				o.buckets.made(name, 0)
			}
		}
		dbCeiling, err = metaNumber(tx, ceilingKey)
		return err
	})
	if err != nil {
		return err
	}
	start := max(fileCeiling, dbCeiling)
	if !known { // and state.db, which may be an old snapshot, tells little: leave no doubt
		start += ceilingJump
	}
	o.rev.Store(start)
	o.ceiling.at = start
	o.ring = newRing(o.cfg.RingSize, o.cfg.RingBytes, start)
	if !known {
		if err := o.ceiling.raise(start + 1); err != nil {
			return err
		}
	}
	if known && len(empty) == 0 {
		return nil
	}
	return o.write(false, func(w *writer) error {
		for _, name := range empty {
			if err := w.tx.DeleteBucket(name); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

// ceilingStep is how many revisions one write of the ceiling file allows: with a lease every ten seconds, a week.
const ceilingStep = 1 << 16

// ceilingJump is more than a board hands out in its life.
const ceilingJump = 1 << 40

// ceiling is the revision above which none may be handed out before it is raised on disk.
type ceiling struct {
	path    string
	disk    durable.Disk
	noSync  bool
	ballast *ballast

	at uint64
}

// raise makes revisions up to rev safe to hand out: the number is on disk before it is used.
func (c *ceiling) raise(rev uint64) error {
	if rev <= c.at {
		return nil
	}
	next := rev + ceilingStep
	if err := c.write(next); err != nil {
		if full(err) {
			return fmt.Errorf("write %s: the disk is full; free some space there: %w", c.path, err)
		}
		return fmt.Errorf("write %s: %w", c.path, err)
	}
	c.at = next
	return nil
}

func (c *ceiling) write(n uint64) error {
	k := []byte(ceilingName)
	data := seal(k, k, number(n))
	err := c.ballast.with(func() error { return c.disk.Replace(c.path, data, 0o600) })
	if full(err) && overwrite(c.path, data, c.noSync) == nil {
		// Without this no object could be deleted on a full disk that has taken the ballast. One that a power cut tears is
		// as good as missing: revisions jump ahead then.
		return nil
	}
	return err
}

// read reads the file; ok is false when it is missing or damaged.
func (c *ceiling) read() (at uint64, ok bool, err error) {
	raw, err := os.ReadFile(c.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, false, err
	}
	k := []byte(ceilingName)
	payload, err := unseal(k, k, raw)
	if err != nil || len(payload) != 8 {
		slog.Warn("the ceiling file is missing or damaged; revisions jump ahead", "file", c.path)
		return 0, false, nil
	}
	return binary.BigEndian.Uint64(payload), true, nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// metaValue reads an entry of meta; length -1 takes any.
func metaValue(tx *bolt.Tx, key []byte, length int) ([]byte, error) {
	b := tx.Bucket(metaBucket)
	if b == nil {
		return nil, fmt.Errorf("%w: this is not a store of ledge, it has no meta bucket", ErrDamaged)
	}
	payload, err := unseal(metaBucket, key, b.Get(key))
	if err == nil && length >= 0 && len(payload) != length {
		err = fmt.Errorf("%w: it is %d bytes long", ErrDamaged, len(payload))
	}
	if err != nil {
		return nil, fmt.Errorf("meta %s: %w", key, err)
	}
	return append([]byte(nil), payload...), nil
}

func metaNumber(tx *bolt.Tx, key []byte) (uint64, error) {
	payload, err := metaValue(tx, key, 8)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(payload), nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
