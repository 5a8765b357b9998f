package storage

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	bolt "go.etcd.io/bbolt"
)

// badValue is a value with damaged content and a sound header (the tally covers headers). The header identifies the
// lost content: a snapshot with the same header has exactly that content.
type badValue struct {
	bucket, key, header []byte
	good                []byte
}

// heal puts damaged values back from snapshots where these have the very same version, and leaves the rest in
// quarantine: one object is missing then, not the node.
func (o *opener) heal(ctx context.Context) error {
	bad, err := o.badValues()
	if err != nil {
		return err
	}
	findInLog(o.segments, bad)
	snaps, err := o.copies.list()
	if err != nil {
		return err
	}
	for _, snap := range snaps {
		if err := o.cfg.Check(ctx, snap); err != nil && !errors.Is(err, ErrValues) {
			continue
		}
		if err := findIn(snap, bad); err != nil {
			return err
		}
	}
	err = o.write(false, func(w *writer) error {
		for _, v := range bad {
			if v.good == nil {
				continue
			}
			if err := w.put(v.bucket, v.key, v.good); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	if err != nil {
		slog.Warn("could not write repaired values back", "err", err)
	}
	for _, v := range bad {
		slot := string(v.bucket) + "\x00" + string(v.key)
		if v.good == nil || err != nil {
			o.condition.quarantine(slot)
			continue
		}
		slog.Warn("a damaged value was put back from a snapshot", "value", spoken(slot))
		o.condition.health.Repaired = append(o.condition.health.Repaired, spoken(slot))
	}
	return nil
}

func (o *opener) badValues() (bad []*badValue, err error) {
	defer o.condition.guard(&err)()
	err = o.db.View(func(tx *bolt.Tx) error {
		return eachValue(tx, func(bucket, key, raw []byte) error {
			if _, err := unseal(bucket, key, raw); err != nil {
				bad = append(bad, &badValue{bucket: bytes.Clone(bucket), key: bytes.Clone(key),
					header: bytes.Clone(raw[:min(len(raw), valueHeader)])})
			}
			return nil
		})
	})
	return bad, err
}

// findIn looks for the versions that were lost in one snapshot, which has passed its check.
func findIn(snap string, bad []*badValue) error {
	db, err := bolt.Open(snap, 0o600, &bolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bolt.Tx) error {
		for _, v := range bad {
			b := tx.Bucket(v.bucket)
			if b == nil || v.good != nil {
				continue
			}
			raw := b.Get(v.key)
			if _, err := unseal(v.bucket, v.key, raw); err == nil && bytes.HasPrefix(raw, v.header) {
				v.good = bytes.Clone(raw)
			}
		}
		return nil
	})
	return errors.Join(err, db.Close())
}
