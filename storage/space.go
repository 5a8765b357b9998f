package storage

import (
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Space is what there is for objects, and what is left of it. Deletions have a reserve beside it.
type Space struct{ All, Free int }

// SpendReserve lets what the transaction writes from here on use what is kept for deletions: for writes that lead to one.
func (tx *Tx) SpendReserve() { tx.spends = true }

// Space is what this transaction leaves to the next. Pages of the file count, not values: half of a page may be air.
func (tx *Tx) Space() Space {
	db, most := tx.b.DB(), tx.s.cfg.MaxSize
	all := most - most/reserve - db.AllocSize
	stats := db.Stats()
	if stats.FreePageN+stats.PendingPageN == 0 {
		return Space{all, all} // bbolt counts at a commit, and there was none since the start
	}
	used := int(tx.b.Size()) - (stats.FreePageN+stats.PendingPageN)*db.Info().PageSize
	return Space{all, all - used - tx.weight}
}

// Held is what the values of a namespace weigh, those of objects that have none for "".
func (tx *Tx) Held(namespace string) int {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[namespace] + tx.grownBefore[namespace] + tx.grown[namespace]
}

// Share is what of the space a namespace takes: its part of all values, with the air between them.
func (tx *Tx) Share(namespace string, space Space) int {
	held, all := tx.Held(namespace), 0
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, grown := range []map[string]int{s.held, tx.grownBefore, tx.grown} {
		for _, n := range grown {
			all += n
		}
	}
	return int(int64(held) * int64(space.All-space.Free) / int64(max(all, 1)))
}

func (tx *Tx) grow(namespace string, n int) {
	if tx.grown == nil {
		tx.grown = map[string]int{}
	}
	tx.grown[namespace] += n
}

// weighed is published. The caller holds mu.
func (s *Store) weighed(tx *Tx) {
	for namespace, n := range tx.grown {
		if s.held[namespace] += n; s.held[namespace] <= 0 {
			delete(s.held, namespace)
		}
	}
}

// weigh counts what is in the file when it is opened. Values are not read for it.
func (o *opener) weigh() error {
	o.held = map[string]int{}
	return o.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if string(name) == string(metaBucket) || strings.HasPrefix(string(name), tablePrefix) {
				return nil
			}
			return b.ForEach(func(k, v []byte) error {
				namespace, _, _ := strings.Cut(string(k), "/")
				o.held[namespace] += len(v)
				return nil
			})
		})
	})
}
