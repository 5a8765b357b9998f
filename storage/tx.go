package storage

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	bolt "go.etcd.io/bbolt"

	"ledge/api"
)

// Tx is one transaction. It is valid only inside the function it was given to.
type Tx struct {
	s        *Store
	b        *bolt.Tx
	buckets  *buckets
	rev      uint64
	base     uint64 // what rev was at the begin
	lazy     map[string]lazyWrite
	writable bool
	durable  bool // some write must be on disk before it is acknowledged
	staged   map[string]*stagedWrite
	before   map[string]*stagedWrite // by those who were in the same group earlier
	changes  []Change
	earlier  []Change // of those who were in the same group earlier
	weight   int      // of the values staged
	last     peeked

	grown       map[string]int // what namespaces hold more by this transaction
	grownBefore map[string]int // and by those who were in the same group earlier
	spends      bool           // the reserve, from here on
}

// peeked is what was last decoded from disk: whoever changes an object has read it in the same transaction.
type peeked struct {
	slot string
	obj  api.Object
	size int
}

// stagedWrite is a write of this transaction: the last one of each key counts.
type stagedWrite struct {
	bucket, key []byte
	kind        *api.Kind  // nil: a row of a table
	obj         api.Object // nil: deleted, or a row
	raw         []byte     // what goes to disk; nil: deleted
	spends      bool       // it may use what is kept for deletions
	lazy        bool       // it may wait for a later commit
}

// stage keeps a write for the commit.
func (tx *Tx) stage(w *stagedWrite) {
	w.spends = tx.spends
	w.over(tx.staged, string(w.bucket)+"\x00"+string(w.key))
	tx.weight += len(w.key) + len(w.raw)
}

// over takes the place of what else was written to a key, and may not wait if that may not.
func (w *stagedWrite) over(all map[string]*stagedWrite, slot string) {
	if old, ok := all[slot]; ok {
		w.lazy = w.lazy && old.lazy
	}
	all[slot] = w
}

// stagedFor is what this transaction, or one it will be committed with, has done to a key.
func (tx *Tx) stagedFor(slot string) (w *stagedWrite, ok bool) {
	if w, ok = tx.staged[slot]; !ok {
		w, ok = tx.before[slot]
	}
	return w, ok
}

// take adds what another transaction did after this one.
func (tx *Tx) take(next *Tx) {
	for slot, w := range next.staged {
		w.over(tx.staged, slot)
	}
	tx.changes = append(tx.changes, next.changes...)
	for namespace, n := range next.grown {
		tx.grow(namespace, n)
	}
	tx.rev, tx.durable, tx.weight = next.rev, tx.durable || next.durable, tx.weight+next.weight
}

// Committed is the store as it was before this transaction and the others that will be committed with it.
func (tx *Tx) Committed() *Tx {
	return &Tx{s: tx.s, b: tx.b, buckets: tx.buckets, rev: tx.base, lazy: tx.lazy}
}

// Pending are the changes since then, the transaction's own included. The objects are shared.
func (tx *Tx) Pending() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for _, list := range [][]Change{tx.earlier, tx.changes} {
			for _, c := range list {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Revision is the newest revision this transaction sees, its own writes included.
func (tx *Tx) Revision() uint64 { return tx.rev }

func keyOf(namespace, name string) []byte { return []byte(namespace + "/" + name) }

// slot is the key of an object among all kinds.
func slot(kind *api.Kind, key []byte) string { return string(bucketName(kind)) + "\x00" + string(key) }

func bucketName(kind *api.Kind) []byte {
	if kind.Group == "" {
		return []byte(kind.Resource)
	}
	return []byte(kind.Resource + "." + kind.Group)
}

// Get reads one object. It belongs to the caller.
func (tx *Tx) Get(kind *api.Kind, namespace, name string) (api.Object, error) {
	obj, err := tx.read(kind, keyOf(namespace, name))
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", kind.Singular, namespace, name, err)
	}
	return obj, nil
}

func (tx *Tx) read(kind *api.Kind, key []byte) (api.Object, error) {
	obj, _, err := tx.peek(kind, key)
	if err == nil {
		obj = clone(obj)
	}
	return obj, err
}

// peek finds an object, shared, and its size.
func (tx *Tx) peek(kind *api.Kind, key []byte) (obj api.Object, size int, err error) {
	defer tx.s.condition.guard(&err)()
	here := slot(kind, key)
	if _, memory := tx.inMemory(here); !memory && tx.last.slot == here {
		return tx.last.obj, tx.last.size, nil
	}
	o, err := tx.look(kind, key)
	switch {
	case o == nil:
		return nil, 0, err
	case err != nil:
		return nil, o.size(), err
	case o.memory != nil:
		return o.memory, o.size(), nil
	}
	if obj, err = o.Object(); err == nil {
		tx.last = peeked{here, obj, o.size()}
	}
	return obj, o.size(), err
}

func clone(obj api.Object) api.Object {
	c, ok := obj.DeepCopyObject().(api.Object)
	if !ok {
		panic(fmt.Sprintf("ledge bug: a copy of %T is no object", obj))
	}
	return c
}

// List reads every object of a kind in a namespace ("" for all), sorted by namespace and name. Damaged values are
// left out; Health names them.
func (tx *Tx) List(kind *api.Kind, namespace string) ([]api.Object, error) {
	out := []api.Object{}
	err := tx.Each(kind, namespace, "", func(o *Stored) error {
		obj, err := o.Object()
		if err == nil {
			out = append(out, obj)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	return out, nil
}

// memory is what memory holds of a kind that the file does not, by key. Without an object it is deleted.
func (tx *Tx) memory(kind *api.Kind) map[string]lazyWrite {
	out := map[string]lazyWrite{}
	mine := string(bucketName(kind)) + "\x00"
	for k, w := range tx.lazy {
		if key, ok := strings.CutPrefix(k, mine); ok {
			out[key] = w
		}
	}
	for _, staged := range []map[string]*stagedWrite{tx.before, tx.staged} {
		for k, w := range staged {
			if key, ok := strings.CutPrefix(k, mine); ok {
				out[key] = lazyWrite{kind: w.kind, obj: w.obj, raw: w.raw}
			}
		}
	}
	return out
}

// Put writes an object and gives it a revision of its own.
func (tx *Tx) Put(kind *api.Kind, obj api.Object) error {
	tx.durable = true
	return tx.put(kind, obj, false)
}

// PutLazy writes an object whose loss in a power cut is harmless: true at once, on disk with the next commit that comes two seconds
// later or more, at Close, or after LazyInterval.
func (tx *Tx) PutLazy(kind *api.Kind, obj api.Object) error { return tx.put(kind, obj, true) }

func (tx *Tx) put(kind *api.Kind, obj api.Object, lazy bool) error {
	if !tx.writable {
		return errors.New("ledge bug: write outside Update")
	}
	key := keyOf(obj.GetNamespace(), obj.GetName())
	old, oldSize, err := tx.peek(kind, key)
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDamaged) {
		return err
	}
	was := obj.GetResourceVersion()
	obj.SetResourceVersion(strconv.FormatUint(tx.rev+1, 10))
	kept := clone(obj)
	kind.Stamp(kept)
	raw, err := encodeObject(kind, key, kept)
	if err != nil {
		obj.SetResourceVersion(was)
		return err
	}
	tx.rev++
	tx.stage(&stagedWrite{bucket: bucketName(kind), key: key, kind: kind, obj: kept, raw: raw, lazy: lazy})
	tx.grow(obj.GetNamespace(), len(raw)-oldSize)
	ch := Change{Rev: tx.rev, Kind: kind, Type: api.Added, Object: kept, size: len(raw), json: &encoding{data: raw[valueHeader:]}}
	if old != nil {
		ch.Type, ch.Old, ch.size = api.Modified, old, ch.size+oldSize
	}
	tx.changes = append(tx.changes, ch)
	return nil
}

// Delete removes an object and returns its last state, under the revision of its deletion. Of a damaged object
// that is its name alone: deleting it is how an operator gets rid of it.
func (tx *Tx) Delete(kind *api.Kind, namespace, name string) (api.Object, error) {
	if !tx.writable {
		return nil, errors.New("ledge bug: write outside Update")
	}
	key := keyOf(namespace, name)
	old, size, err := tx.peek(kind, key)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, fmt.Errorf("%s %s/%s: %w", kind.Singular, namespace, name, err)
	}
	var gone api.Object
	if err == nil {
		gone = clone(old)
	} else {
		old, gone = nil, kind.New()
		gone.SetNamespace(namespace)
		gone.SetName(name)
		kind.Stamp(gone)
	}
	tx.durable = true
	tx.stage(&stagedWrite{bucket: bucketName(kind), key: key, kind: kind})
	tx.grow(namespace, -size)
	tx.rev++
	gone.SetResourceVersion(strconv.FormatUint(tx.rev, 10))
	tx.changes = append(tx.changes, Change{Rev: tx.rev, Kind: kind, Type: api.Deleted, Object: gone, Old: old, size: 2 * size,
		json: &encoding{}})
	return clone(gone), nil
}
