package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	bolt "go.etcd.io/bbolt"
)

// tally counts and sums what is in the file, key and checksum of every value outside the meta bucket. It is kept in
// the meta bucket, which bbolt writes at every commit anyway, so it costs no page. A checksum per value cannot
// see an entry that is gone, or a page that is an older version of itself (a write the card forgot): the tally does.
type tally struct{ count, sum uint64 }

func (t *tally) add(bucket, key, raw []byte) {
	t.count++
	t.sum += entryHash(bucket, key, raw)
}

func (t *tally) drop(bucket, key, raw []byte) {
	t.count--
	t.sum -= entryHash(bucket, key, raw)
}

// entryHash takes a value's header for its content: a damaged payload leaves the tally as it is, so that damage to
// single values can be told from damage to the tree.
func entryHash(bucket, key, raw []byte) uint64 {
	h := fnv.New64a()
	for _, part := range [][]byte{bucket, {0}, key, {0}, raw[:min(len(raw), valueHeader)]} {
		_, _ = h.Write(part) // a hash never fails
	}
	return h.Sum64()
}

func (t *tally) encode() []byte { return append(number(t.count), number(t.sum)...) }

func readTally(tx *bolt.Tx) (tally, error) {
	payload, err := metaValue(tx, tallyKey, 16)
	if err != nil {
		return tally{}, err
	}
	return tally{count: binary.BigEndian.Uint64(payload), sum: binary.BigEndian.Uint64(payload[8:])}, nil
}

// writer is the one way to change values: it keeps the tally.
type writer struct {
	tx     *bolt.Tx
	t      tally
	before tally
	done   []change // for the log
	above  uint64   // the count of commits is to be above it
	made   [][]byte // buckets that the transaction begins
}

func newWriter(tx *bolt.Tx) (*writer, error) {
	t, err := readTally(tx)
	return &writer{tx: tx, t: t, before: t}, err
}

func (w *writer) put(bucket, key, raw []byte) error {
	b := w.tx.Bucket(bucket)
	if b == nil {
		var err error
		if b, err = w.tx.CreateBucket(bucket); err != nil {
			return fmt.Errorf("bucket %s: %w", bucket, err)
		}
		w.made = append(w.made, bucket)
	}
	if old := b.Get(key); old != nil {
		w.t.drop(bucket, key, old)
	}
	w.t.add(bucket, key, raw)
	w.done = append(w.done, change{bucket, key, raw})
	return b.Put(key, raw)
}

func (w *writer) delete(bucket, key []byte) error {
	b := w.tx.Bucket(bucket)
	if b == nil {
		return nil
	}
	old := b.Get(key)
	if old == nil {
		return nil
	}
	w.t.drop(bucket, key, old)
	w.done = append(w.done, change{bucket, key, nil})
	return b.Delete(key)
}

// record is the transaction as the log has it.
func (w *writer) record() record { return record{before: w.before, after: w.t, changes: w.done} }

// finish writes what stands beside the values.
func (w *writer) finish(ceiling, log uint64) error {
	meta := w.tx.Bucket(metaBucket)
	if log > 0 {
		if err := meta.Put(logKey, seal(metaBucket, logKey, number(log))); err != nil {
			return err
		}
	}
	if err := meta.Put(ceilingKey, seal(metaBucket, ceilingKey, number(ceiling))); err != nil {
		return err
	}
	n, _ := readCount(w.tx)
	if err := meta.Put(countKey, seal(metaBucket, countKey, append(number(max(n, w.above)+1), w.t.encode()...))); err != nil {
		return err
	}
	return meta.Put(tallyKey, seal(metaBucket, tallyKey, w.t.encode()))
}

// readCount is how many commits led to what is in a file; 0 where no version that counts has written there. It says which of two files
// of one store is the older: neither compaction nor a snapshot begins anew. It is not sure where a version that does not count wrote last.
func readCount(tx *bolt.Tx) (n uint64, sure bool) {
	payload, err := metaValue(tx, countKey, 24)
	if err != nil {
		return 0, false
	}
	now, err := readTally(tx)
	return binary.BigEndian.Uint64(payload), err == nil && bytes.Equal(payload[8:], now.encode())
}
