package storage

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// commit makes a transaction true: on disk if any of its writes asks for that, in memory, and in the ring. The
// caller holds writing.
func (s *Store) commit(tx *Tx) error {
	if len(tx.staged) == 0 && !tx.durable {
		return nil
	}
	if err := s.ceiling.raise(tx.rev); err != nil {
		s.condition.note(err)
		return err
	}
	lazy, now := s.lazyCopy(), time.Now()
	for slot, w := range tx.staged {
		if !w.lazy {
			delete(lazy, slot)
			continue
		}
		since := now
		if l, again := lazy[slot]; again {
			since = l.since
		}
		lazy[slot] = lazyWrite{kind: w.kind, obj: w.obj, raw: w.raw, since: since}
	}
	if tx.durable {
		along := lazy
		if len(tx.staged) > 0 && young(lazy, now) {
			along = nil
		}
		return s.write(tx.grows(), func(w *writer) error { return tx.apply(w, along) }, func() {
			clear(along)
			s.publish(tx, lazy)
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish(tx, lazy)
	return nil
}

// publish lets the world see a transaction that is true. The caller holds mu.
func (s *Store) publish(tx *Tx, lazy map[string]lazyWrite) {
	s.condition.heard(tx)
	s.lazy = lazy
	if tx.durable && told(lazy) {
		select {
		case s.left <- struct{}{}:
		default: // known
		}
	}
	s.held.add(tx.grown)
	if tx.durable && len(tx.staged) > 0 {
		s.copies.changed.Store(true)
	}
	if len(tx.changes) > 0 {
		s.ring.publish(tx.changes) // before rev: what a revision counts can be watched
	}
	s.rev.Store(tx.rev)
}

// grows tells a transaction that needs space from one that only makes some, or leads to that.
func (tx *Tx) grows() bool {
	for _, w := range tx.staged {
		if w.raw != nil && !w.spends && !w.lazy {
			return true
		}
	}
	return false
}

// apply puts a transaction's writes, and the lazy writes that go along, into a bbolt transaction.
func (tx *Tx) apply(w *writer, along map[string]lazyWrite) error {
	for _, l := range along {
		if err := w.put(bucketName(l.kind), keyOf(l.obj.GetNamespace(), l.obj.GetName()), l.raw); err != nil {
			return err
		}
	}
	for _, st := range tx.staged {
		if st.lazy { // it waits, or goes along
			continue
		}
		if err := st.apply(w); err != nil {
			return err
		}
	}
	return nil
}

func (st *stagedWrite) apply(w *writer) error {
	if st.raw == nil {
		return w.delete(st.bucket, st.key)
	}
	return w.put(st.bucket, st.key, st.raw)
}

// reserve is what of MaxSize only deletions, and what leads to them, may use: bbolt copies on write, so without it a store that is full
// could not even be emptied.
const reserve = 8

// write is writeOnce, with what the ballast has when the disk is full, and again when the space that there is was in pieces. The caller
// holds writing.
func (s *Store) write(grows bool, fn func(*writer) error, then func()) error {
	once := func() error { return s.ballast.with(func() error { return s.writeOnce(grows, fn, then) }) }
	err := once()
	if errors.Is(err, ErrFull) && s.pieces.join(s) {
		return once()
	}
	return err
}

// writeOnce is one bbolt transaction: fn, the tally, the ceiling, commit, the log, and then, for all readers at once, what follows
// from it. The caller holds writing.
func (s *Store) writeOnce(grows bool, fn func(*writer) error, then func()) (err error) {
	s.db.MaxSize = s.cfg.MaxSize
	if grows {
		s.db.MaxSize -= s.cfg.MaxSize / reserve
	}
	defer func() {
		s.end(err == nil, then)
		s.condition.note(err)
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		// No rollback: bbolt's would walk the damaged tree on a goroutine of its own, where nobody catches.
		if p := recover(); p != nil {
			s.wedged = true
			s.condition.fail(fmt.Errorf("%w: %v", ErrDamaged, p))
			err = s.condition.writable()
		}
	}()
	b, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("write %s: %w", s.cfg.path(dbName), err)
	}
	w, err := newWriter(b)
	if err == nil {
		err = fn(w)
	}
	if err == nil {
		err = w.finish(s.ceiling.at, s.log.at())
	}
	if err != nil {
		return errors.Join(s.explain(err), b.Rollback())
	}
	id := b.ID()
	if err := s.explain(b.Commit()); err != nil {
		return err
	}
	for _, bucket := range w.made {
		s.buckets.made(bucket, id)
	}
	s.log.append(w.record())
	return nil
}

// end notes which bbolt transaction is the true one now and lets waiting readers go on. When a commit failed
// and shows all the same, the disk may hold either state: nothing more is written.
func (s *Store) end(ok bool, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.ended.Broadcast()
	if s.wedged {
		return
	}
	id, err := dbTxID(s.db)
	if err == nil && !ok && id != s.txid {
		err = errors.New("a commit that failed is on disk all the same")
	}
	if err != nil {
		s.condition.fail(err)
	}
	s.txid = id
	if ok && then != nil {
		then()
	}
}

func dbTxID(db *bolt.DB) (id int, err error) {
	err = db.View(func(b *bolt.Tx) error {
		id = b.ID()
		return nil
	})
	return id, err
}

// explain sorts out why a commit failed. A full disk fails in the write of new pages, before the meta page names
// them: the store is as it was and may go on. The same errno from a sync is no such promise, nor is anything else.
func (s *Store) explain(err error) error {
	var perr *os.PathError
	switch {
	case err == nil:
		return nil
	case full(err) && errors.As(err, &perr) && perr.Op == "write":
		return fmt.Errorf("write %s: the disk is full; free some space there: %w", s.cfg.path(dbName), err)
	case errors.Is(err, berrors.ErrMaxSizeReached):
		return fmt.Errorf("write %s: %w of %d MiB; delete objects: %w", s.cfg.path(dbName), ErrFull, s.cfg.MaxSize>>20, err)
	case errors.Is(err, berrors.ErrKeyTooLarge), errors.Is(err, berrors.ErrValueTooLarge), errors.Is(err, berrors.ErrKeyRequired):
		return fmt.Errorf("write %s: %w", s.cfg.path(dbName), err)
	}
	s.condition.fail(fmt.Errorf("write %s: %w", s.cfg.path(dbName), err))
	return s.condition.writable()
}
