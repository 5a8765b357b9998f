package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	bolt "go.etcd.io/bbolt"
)

// errOlder: somebody, or a file system that lost a rename, has put an older state.db in the place of the one that was there. The log would
// tell; here it is gone as well.
var errOlder = fmt.Errorf("%w: it is older than its newest snapshot, and there is no log", ErrDamaged)

// compare looks at a store that no log leads on from. One that is older than its newest snapshot is replaced by that; of any other it
// cannot be told whether the newest writes are in it, and that is said. A backup that was put there on purpose has no lineage, and is
// younger from now on than all there is.
func (o *opener) compare(ctx context.Context) error {
	if len(o.segments) > 0 || o.condition.health.Restored != "" || o.condition.health.Made {
		return nil
	}
	newest, err := o.newestCount()
	if err != nil {
		return err
	}
	at, err := o.logNumber()
	if err != nil {
		return err
	}
	meant, err := exists(o.cfg.path(lineageName))
	switch meant = !meant; {
	case err != nil:
		return err
	case meant:
		return o.write(false, func(w *writer) error {
			w.above = newest
			return nil
		}, nil)
	case at == 0: // it has never had a log
		return nil
	}
	var own uint64
	var sure bool
	if err := o.db.View(func(tx *bolt.Tx) error {
		own, sure = readCount(tx)
		return nil
	}); err != nil {
		return err
	}
	if sure && own < newest {
		return o.replace(ctx, errOlder)
	}
	o.condition.health.LogMissing = true
	slog.Error("the log beside the store is missing: whether the newest writes are in the store cannot be told", "dir", o.cfg.path(redoDir))
	return nil
}

// newestCount is that of the newest snapshot; 0: there is none, or it does not say.
func (o *opener) newestCount() (n uint64, err error) {
	snaps, err := o.copies.list()
	if err != nil || len(snaps) == 0 {
		return 0, err
	}
	if err := o.cfg.Check(context.Background(), snaps[0]); err != nil {
		return 0, nil //nolint:nilerr // one that is not sound says nothing
	}
	db, err := bolt.Open(snaps[0], 0o600, &bolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return 0, err
	}
	err = db.View(func(tx *bolt.Tx) error {
		if count, sure := readCount(tx); sure {
			n = count
		}
		return nil
	})
	return n, errors.Join(err, db.Close())
}
