package storage

import (
	"fmt"
)

// Writers that would wait for each other's commits share one: ten writes in one transaction cost the card little more
// than one write. Each writer runs its function in turn, on the state that the writers before it have left, and waits
// for the commit of the group. The last writer in the queue commits, so that a lone writer never waits for others.
type group struct {
	tx      *Tx // what its members have written so far
	members int
	queued  int           // how many were waiting when it was begun: whoever comes later may have to be the next group's
	done    chan struct{} // closed when err is known
	err     error
}

// groupWeight is how many bytes of values a group may have and still take members: the log and bbolt want no huge transactions.
const groupWeight = 256 << 10

func (g *group) full() bool { return g.members >= g.queued || g.tx.weight > groupWeight }

// queue waits for the turn to write. The holder ends its turn with pass, or commits the open group with lockAlone.
func (s *Store) queue() {
	s.waiting.Add(1)
	s.writing.Lock()
	s.waiting.Add(-1)
}

// lockAlone takes writing for those who are no part of a group. They see no half of one: it is committed first.
func (s *Store) lockAlone() {
	s.queue()
	s.commitGroup()
}

// pass commits the open group unless somebody comes after who will, and lets the next one in. It holds for a function
// that panicked too: its neighbours have done nothing wrong.
func (s *Store) pass() {
	defer s.writing.Unlock()
	if g := s.open; g != nil && (s.waiting.Load() == 0 || g.full()) {
		s.commitGroup()
	}
}

func (s *Store) commitGroup() {
	g := s.open
	if g == nil {
		return
	}
	s.open = nil
	defer close(g.done)
	g.err = s.commit(g.tx)
}

// Update changes the store: fn's writes are committed together, then published. If fn or the commit fails nothing
// has happened. fn must not write in another transaction, and must begin anew when it is called again: a commit that it
// shared may fail because of another writer, and is then made again without the others. It may begin one that reads, and sees what is
// committed: as long as fn has the turn to write nothing is being committed, so that neither waits for the other.
func (s *Store) Update(fn func(*Tx) error) error {
	g, err := s.join(fn)
	if g == nil {
		return err
	}
	<-g.done // an error of fn too may be about what the others wrote
	switch {
	case g.err == nil:
		return err
	case g.members == 1:
		return g.err
	}
	return s.updateAlone(fn)
}

// join runs fn in the open group, or in one that it begins.
func (s *Store) join(fn func(*Tx) error) (*group, error) {
	s.queue()
	defer s.pass()
	if err := s.condition.writable(); err != nil {
		return nil, err
	}
	if s.open == nil {
		s.open = &group{
			tx:     &Tx{s: s, rev: s.rev.Load(), staged: map[string]*stagedWrite{}},
			queued: 1 + int(s.waiting.Load()), done: make(chan struct{}),
		}
	}
	g := s.open
	g.members++
	if s.cfg.Rehearse {
		_, _ = s.attempt(fn, g.tx)
	}
	tx, err := s.attempt(fn, g.tx)
	if err == nil {
		g.tx.take(tx)
	}
	return g, err
}

// attempt runs fn on what is true once before has happened, and collects its writes.
func (s *Store) attempt(fn func(*Tx) error, before *Tx) (tx *Tx, err error) {
	tx, err = s.begin()
	if err != nil {
		return nil, fmt.Errorf("write store: %w", err)
	}
	tx.writable, tx.staged = true, map[string]*stagedWrite{}
	if before != nil {
		tx.rev, tx.before, tx.earlier, tx.grownBefore = before.rev, before.staged, before.changes, before.grown
	}
	defer func() {
		tx.writable = false
		if rerr := tx.b.Rollback(); err == nil && rerr != nil {
			err = fmt.Errorf("write store: %w", rerr)
		}
	}()
	return tx, fn(tx)
}

func (s *Store) updateAlone(fn func(*Tx) error) error {
	s.lockAlone()
	defer s.writing.Unlock()
	if err := s.condition.writable(); err != nil {
		return err
	}
	tx, err := s.attempt(fn, nil)
	if err != nil {
		return err
	}
	return s.commit(tx)
}
