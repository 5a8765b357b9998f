package storage

import (
	"fmt"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// buckets are those that the file has, each with the transaction that began it. A kind has a bucket from its first object on: the list
// of buckets is written with every commit, and should fit a page. What was once there stays until the next start.
type buckets struct {
	mu    sync.RWMutex
	since map[string]int
}

func (b *buckets) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = map[string]int{}
}

func (b *buckets) made(name []byte, tx int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since[string(name)] = tx
}

// copied are those of a copy of the file: they were there before its first reader.
func (b *buckets) copied() *buckets {
	b.mu.RLock()
	defer b.mu.RUnlock()
	c := &buckets{since: map[string]int{}}
	for name := range b.since {
		c.since[name] = 0
	}
	return c
}

// has says whether a bucket is there for a transaction.
func (b *buckets) has(name []byte, tx int) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	since, ok := b.since[string(name)]
	return ok && since <= tx
}

// bucket is that of a kind; nil while the kind has had no object. One that was there and is not has been lost by the disk.
func (tx *Tx) bucket(name []byte) (*bolt.Bucket, error) {
	b := tx.b.Bucket(name)
	if b == nil && tx.buckets.has(name, tx.b.ID()) {
		return nil, fmt.Errorf("%w: the bucket of %s is gone", ErrDamaged, name)
	}
	return b, nil
}
