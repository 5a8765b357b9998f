package storage

import (
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// Space is what there is for objects, and what is left of it. Deletions have a reserve beside it.
type Space struct{ All, Free int }

// SpendReserve lets what the transaction writes from here on use what is kept for deletions: for writes that lead to one.
func (tx *Tx) SpendReserve() { tx.spends = true }

// Weight is how many bytes the values have that the transaction writes.
func (tx *Tx) Weight() int { return tx.weight }

// Space is what this transaction leaves to the next. Pages of the file count, not values: half of a page may be air.
func (tx *Tx) Space() Space {
	db, most := tx.b.DB(), tx.s.cfg.MaxSize
	all := most - most/reserve - db.AllocSize
	free := int(freeSize(db))
	if free == 0 {
		return Space{all, all} // bbolt counts at a commit, and there was none since the start
	}
	used := int(tx.b.Size()) - free
	return Space{all, all - used - tx.weight}
}

// Held is what the values of a namespace weigh, those of objects that have none for "".
func (tx *Tx) Held(namespace string) int {
	return tx.s.held.of(namespace) + tx.grownBefore[namespace] + tx.grown[namespace]
}

// Share is what of the space a namespace takes: its part of all values, with the air between them.
func (tx *Tx) Share(namespace string, space Space) int {
	held, all := tx.Held(namespace), tx.s.held.all()
	for _, grown := range []map[string]int{tx.grownBefore, tx.grown} {
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

// weights is how many bytes there are of each namespace.
type weights struct {
	mu sync.Mutex
	by map[string]int
}

// add counts what came, and went.
func (w *weights) add(grown map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for namespace, n := range grown {
		if w.by[namespace] += n; w.by[namespace] <= 0 {
			delete(w.by, namespace)
		}
	}
}

func (w *weights) of(namespace string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[namespace]
}

func (w *weights) all() (sum int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.by {
		sum += n
	}
	return sum
}

// weigh counts what is in the file when it is opened. Values are not read for it.
func (o *opener) weigh() error {
	o.held.by = map[string]int{}
	return o.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if string(name) == string(metaBucket) || strings.HasPrefix(string(name), tablePrefix) {
				return nil
			}
			return b.ForEach(func(k, v []byte) error {
				namespace, _, _ := strings.Cut(string(k), "/")
				o.held.by[namespace] += len(v)
				return nil
			})
		})
	})
}
