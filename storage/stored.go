package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ledge/api"
)

// Stored is one object as it is kept. What it holds is valid only inside the function that it was given to.
type Stored struct {
	tx     *Tx
	kind   *api.Kind
	key    []byte
	json   []byte
	memory api.Object // where memory holds it decoded, shared; nil: the file does
}

// Key is its namespace, a slash and its name.
func (o *Stored) Key() []byte { return o.key }

// JSON is what json.Marshal made of it, with kind and apiVersion. The bytes are lent.
func (o *Stored) JSON() []byte { return o.json }

// Object is it decoded; it belongs to the caller.
func (o *Stored) Object() (api.Object, error) {
	if o.memory != nil {
		return clone(o.memory), nil
	}
	obj, err := decodeObject(o.kind, o.json)
	if err != nil {
		o.tx.s.condition.quarantine(slot(o.kind, o.key))
	}
	return obj, err
}

// size is what it takes in the file.
func (o *Stored) size() int { return valueHeader + len(o.json) }

// Look finds one object without decoding it.
func (tx *Tx) Look(kind *api.Kind, namespace, name string, fn func(*Stored) error) error {
	key := keyOf(namespace, name)
	o, err := tx.look(kind, key)
	if err == nil {
		defer tx.s.condition.guard(&err)()
		err = fn(o)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind.Singular, key, err)
	}
	return nil
}

func (tx *Tx) look(kind *api.Kind, key []byte) (o *Stored, err error) {
	if w, ok := tx.inMemory(slot(kind, key)); ok {
		if w.obj == nil {
			return nil, ErrNotFound
		}
		return tx.fromMemory(kind, key, w), nil
	}
	defer tx.s.condition.guard(&err)()
	bucket := bucketName(kind)
	b, err := tx.bucket(bucket)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, ErrNotFound
	}
	raw := b.Get(key)
	if raw == nil {
		return nil, ErrNotFound
	}
	return tx.fromFile(kind, bucket, key, raw)
}

// inMemory is what memory holds of a slot that the file does not.
func (tx *Tx) inMemory(slot string) (w lazyWrite, ok bool) {
	if s, ok := tx.stagedFor(slot); ok {
		return lazyWrite{kind: s.kind, obj: s.obj, raw: s.raw}, true
	}
	w, ok = tx.lazy[slot]
	return w, ok
}

func (tx *Tx) fromMemory(kind *api.Kind, key []byte, w lazyWrite) *Stored {
	return &Stored{tx: tx, kind: kind, key: key, json: w.raw[valueHeader:], memory: w.obj}
}

func (tx *Tx) fromFile(kind *api.Kind, bucket, key, raw []byte) (*Stored, error) {
	payload, err := unseal(bucket, key, raw)
	if err != nil {
		tx.s.condition.quarantine(slot(kind, key))
		payload = raw[min(valueHeader, len(raw)):] // for its size
	}
	return &Stored{tx: tx, kind: kind, key: key, json: payload}, err
}

// Each gives every object of a kind in a namespace ("" for all) to fn, sorted by key, those after a key where that is not empty.
// It ends at fn's first error. Damaged values are left out; Health names them.
func (tx *Tx) Each(kind *api.Kind, namespace, after string, fn func(*Stored) error) (err error) {
	prefix := ""
	if kind.Namespaced && namespace != "" {
		prefix = namespace + "/"
	}
	m := newMemory(tx, kind, prefix, after, fn)
	defer tx.s.condition.guard(&err)()
	bucket := bucketName(kind)
	b, err := tx.bucket(bucket)
	if err != nil {
		return err
	}
	if b == nil {
		return m.upTo(nil)
	}
	c := b.Cursor()
	for k, v := c.Seek([]byte(max(prefix, after))); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
		if _, covered := m.all[string(k)]; covered || after != "" && string(k) <= after {
			continue
		}
		if err := m.upTo(k); err != nil {
			return err
		}
		o, err := tx.fromFile(kind, bucket, k, v)
		if err == nil {
			err = fn(o)
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
	}
	return m.upTo(nil)
}

// memory gives what memory holds of a kind in between what the file does.
type memory struct {
	tx   *Tx
	kind *api.Kind
	all  map[string]lazyWrite
	keys []string // of objects that are wanted and have not been given, sorted
	fn   func(*Stored) error
}

func newMemory(tx *Tx, kind *api.Kind, prefix, after string, fn func(*Stored) error) *memory {
	m := &memory{tx: tx, kind: kind, all: tx.memory(kind), fn: fn}
	for key, w := range m.all {
		if w.obj != nil && strings.HasPrefix(key, prefix) && key > after {
			m.keys = append(m.keys, key)
		}
	}
	slices.Sort(m.keys)
	return m
}

// upTo gives those before a key of the file; nil: all.
func (m *memory) upTo(key []byte) error {
	for len(m.keys) > 0 && (key == nil || m.keys[0] < string(key)) {
		k := m.keys[0]
		m.keys = m.keys[1:]
		if err := m.fn(m.tx.fromMemory(m.kind, []byte(k), m.all[k])); err != nil {
			return err
		}
	}
	return nil
}
