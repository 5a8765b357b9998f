package local

import (
	"ledge/api"
	"ledge/storage"
)

// tail follows the changes of a kind in the store's ring, whenever somebody asks, and needs no goroutine for it.
type tail struct {
	watch *storage.Watch
	next  *storage.Change // read from the ring, and not taken yet
	wake  <-chan struct{} // closed at the next change; nil: not known
}

// follow begins after a revision.
func follow(store *storage.Store, kind *api.Kind, after uint64) (*tail, error) {
	w, err := store.Watch(kind, after)
	if err != nil {
		return nil, err
	}
	return &tail{watch: w}, nil
}

// take gives each change up to a revision to do; !ok: some are lost, and all must be read anew.
func (t *tail) take(until uint64, do func(storage.Change)) (ok bool) {
	for {
		if t.next == nil {
			ch, wake, err := t.watch.Poll()
			if t.wake = wake; err != nil || wake != nil {
				return err == nil
			}
			t.next = &ch
		}
		if t.next.Rev > until {
			return true
		}
		do(*t.next)
		t.next = nil
	}
}

// quiet says that nothing has happened since the last take.
func (t *tail) quiet() bool {
	select {
	case <-t.wake:
		return false
	default:
		return t.wake != nil && t.next == nil
	}
}
