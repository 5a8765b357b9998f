package storage

import (
	"context"
	"encoding/json"
	"sort"
	"strconv"
	"sync"

	"ledge/api"
)

// Change is one published write. The objects are shared: readers must not change them.
type Change struct {
	Rev    uint64
	Kind   *api.Kind
	Type   api.EventType
	Object api.Object // for Deleted: the last state, with the revision of the deletion
	Old    api.Object // before the change; nil for Added, and when it could not be read

	size int // on disk, what it weighs in the ring
	json *encoding
}

// encoding is the JSON of a change's object, made once for all who send it.
type encoding struct {
	once sync.Once
	data []byte
	err  error
}

// JSON is the object of a change as it is stored. It is shared: nobody may change it.
func (c Change) JSON() ([]byte, error) {
	e := c.json
	if e == nil {
		return json.Marshal(c.Object)
	}
	e.once.Do(func() {
		if e.data == nil {
			e.data, e.err = json.Marshal(c.Object)
		}
	})
	return e.data, e.err
}

// ring keeps the last changes, up to a number and a weight. Readers hold a position; there is no queue for each
// reader, so a slow reader costs nothing; it gets an error once it has been lapped. Readers of one kind are not woken
// for another: most changes are renewals of leases, one for each board every ten seconds, and most readers are boards
// that follow their pods.
type ring struct {
	mu     sync.Mutex
	buf    []Change
	next   uint64                 // position of the next change; buf holds [first, next)
	first  uint64                 // oldest position still held
	floor  uint64                 // changes up to this revision are not held
	size   int                    // weight of what is held
	plain  uint64                 // changes before this position hold no JSON
	json   int                    // weight of that of the others
	limit  int                    // of size; the newest change stays whatever it weighs
	kinds  map[*api.Kind]*waiters // under nil those who read of all kinds
	closed bool
}

// waiters are the readers of a kind.
type waiters struct {
	wake chan struct{} // closed at the next change of the kind; nil while nobody waits
	lost uint64        // every change of the kind before this position is not held
	any  []func()      // to be called at the next change of the kind
}

func newRing(entries, bytes int, floor uint64) *ring {
	return &ring{buf: make([]Change, entries), limit: bytes, floor: floor, kinds: map[*api.Kind]*waiters{}}
}

func (r *ring) of(kind *api.Kind) *waiters {
	w := r.kinds[kind]
	if w == nil {
		w = &waiters{}
		r.kinds[kind] = w
	}
	return w
}

func (w *waiters) rouse() {
	if w.wake != nil {
		close(w.wake)
		w.wake = nil
	}
}

func (r *ring) at(pos uint64) *Change { return &r.buf[pos%uint64(len(r.buf))] }

func (r *ring) publish(changes []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if before := r.made(c.Kind, c.Old); before != nil {
			c.Old = before
		}
		if r.next-r.first == uint64(len(r.buf)) {
			r.drop()
		}
		*r.at(r.next) = c
		r.next++
		r.size += c.size
		r.json += c.size
		r.forget()
		for r.size > r.limit && r.next-r.first > 1 {
			r.drop()
		}
		r.of(nil).rouse()
		w := r.of(c.Kind)
		w.rouse()
		for _, do := range w.any {
			do()
		}
		w.any = nil
	}
}

// jsonKept is how many bytes the newest changes may hold of JSON, beside their objects: those who watch are nearly always that far.
const jsonKept = 256 << 10

// forget lets go of the JSON of older changes.
func (r *ring) forget() {
	for r.plain = max(r.plain, r.first); r.json > jsonKept && r.plain < r.next; r.plain++ {
		c := r.at(r.plain)
		r.json -= c.size
		c.json = nil
	}
}

// whenAny has do called at the next change of a kind.
func (r *ring) whenAny(kind *api.Kind, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.of(kind)
	w.any = append(w.any, do)
}

// made is the very state of an object as a change that is still held made it: what a writer decoded anew need not be
// kept beside it.
func (r *ring) made(kind *api.Kind, obj api.Object) api.Object {
	if obj == nil {
		return nil
	}
	rev, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil
	}
	n := int(r.next - r.first)
	i := sort.Search(n, func(i int) bool { return r.at(r.first+uint64(i)).Rev >= rev })
	if i == n {
		return nil
	}
	if c := r.at(r.first + uint64(i)); c.Rev == rev && c.Kind == kind && c.Type != api.Deleted {
		return c.Object
	}
	return nil
}

func (r *ring) drop() {
	oldest := r.at(r.first)
	r.floor, r.size = oldest.Rev, r.size-oldest.size
	if r.plain <= r.first {
		r.plain, r.json = r.first+1, r.json-oldest.size
	}
	r.of(oldest.Kind).lost, r.of(nil).lost = r.first+1, r.first+1
	*oldest = Change{} // let go of the objects
	r.first++
}

func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		for _, w := range r.kinds {
			w.rouse()
		}
	}
}

// Watch reads the changes of one kind, or of all, in order.
type Watch struct {
	ring *ring
	kind *api.Kind
	pos  uint64
}

// Watch begins after a revision; without a kind it reads of all. ErrGone: changes after it are no longer held, or it was never handed out.
func (s *Store) Watch(kind *api.Kind, after uint64) (*Watch, error) {
	rev := s.rev.Load()
	r := s.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if after < r.floor || after > rev {
		return nil, ErrGone
	}
	n := int(r.next - r.first)
	i := sort.Search(n, func(i int) bool { return r.at(r.first+uint64(i)).Rev > after })
	return &Watch{ring: r, kind: kind, pos: r.first + uint64(i)}, nil
}

// Next waits for the next change; one that is there already is delivered even when ctx has ended. ErrGone: the
// reader was lapped, or the store closed. Not for concurrent use.
func (w *Watch) Next(ctx context.Context) (Change, error) {
	for {
		c, wake, err := w.Poll()
		if err != nil || wake == nil {
			return c, err
		}
		select {
		case <-ctx.Done():
			return Change{}, ctx.Err()
		case <-wake:
		}
	}
}

// Poll is Next without waiting: where there is no next change, wake is closed at it.
func (w *Watch) Poll() (c Change, wake <-chan struct{}, err error) {
	r := w.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.of(w.kind)
	if w.pos < of.lost {
		return Change{}, nil, ErrGone
	}
	w.pos = max(w.pos, r.first)
	for w.pos < r.next {
		c := r.at(w.pos)
		w.pos++
		if c.Kind == w.kind || w.kind == nil {
			return *c, nil, nil
		}
	}
	if r.closed {
		return Change{}, nil, ErrGone
	}
	if of.wake == nil {
		of.wake = make(chan struct{})
	}
	return Change{}, of.wake, nil
}

// Close ends the watch. It holds nothing that needs freeing; the method is here so that callers need not know.
func (w *Watch) Close() {}
