package storage

import (
	"bytes"
	"strings"
	"sync"

	"ledge/api"
)

// WhenAny calls do once, when there is something of a kind, and says whether there is nothing yet. do must not block: a
// commit waits for it.
func (s *Store) WhenAny(kind *api.Kind, do func()) (none bool) {
	once := sync.OnceFunc(do)
	s.ring.whenAny(kind, once) // first: what comes while we look is not missed
	err := s.View(func(tx *Tx) error {
		none = !tx.any(kind)
		return nil
	})
	if err != nil || !none {
		once()
		return false
	}
	return true
}

// Any says whether there is anything of a kind in a namespace. It decodes nothing.
func (tx *Tx) Any(kind *api.Kind, namespace string) (any bool, err error) {
	prefix := keyOf(namespace, "")
	mine := string(bucketName(kind)) + "\x00" + string(prefix)
	for _, staged := range []map[string]*stagedWrite{tx.before, tx.staged} {
		for k, w := range staged {
			if w.obj != nil && strings.HasPrefix(k, mine) {
				return true, nil
			}
		}
	}
	for k := range tx.lazy {
		if !kind.Lazy {
			break // what is written lazily of it is on disk already, as it was before
		}
		if w, ok := tx.stagedFor(k); strings.HasPrefix(k, mine) && (!ok || w.obj != nil) {
			return true, nil
		}
	}
	defer tx.s.condition.guard(&err)()
	b, err := tx.bucket(bucketName(kind))
	if err != nil || b == nil {
		return false, err
	}
	c := b.Cursor()
	for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if w, ok := tx.stagedFor(slot(kind, k)); !ok || w.obj != nil {
			return true, nil
		}
	}
	return false, nil
}

// any says whether there may be something of a kind.
func (tx *Tx) any(kind *api.Kind) bool {
	for _, w := range tx.memory(kind) {
		if w.obj != nil {
			return true
		}
	}
	b, err := tx.bucket(bucketName(kind))
	if err != nil {
		return true // a list says so
	}
	if b == nil {
		return false
	}
	key, _ := b.Cursor().First()
	return key != nil
}
