package storage

import (
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

// any says whether there may be something of a kind.
func (tx *Tx) any(kind *api.Kind) bool {
	for _, w := range tx.memory(kind) {
		if w.obj != nil {
			return true
		}
	}
	b := tx.b.Bucket(bucketName(kind))
	if b == nil {
		return true // damaged: a list says so
	}
	key, _ := b.Cursor().First()
	return key != nil
}
