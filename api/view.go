package api

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// View keeps a copy of what a selection picks: list, then watch, and again from the start when the watch
// breaks. It is how controllers and the agent follow the store: they wait on Changed and read List.
// The objects in a View are shared: treat them as read-only.
type View[T Object] struct {
	client Client
	kind   *Kind
	sel    Selection

	changed   chan struct{}   // capacity 1: a pending mark, never a queue
	listeners []chan struct{} // that one, and others of the same sort
	synced    chan struct{}   // closed after the first full list

	mu    sync.Mutex
	items map[types.NamespacedName]T
}

// NewView prepares a view; Run fills it.
func NewView[T Object](c Client, kind *Kind, sel Selection) *View[T] {
	changed := make(chan struct{}, 1)
	return &View[T]{client: c, kind: kind, sel: sel, changed: changed, listeners: []chan struct{}{changed},
		synced: make(chan struct{}), items: map[types.NamespacedName]T{}}
}

// Changed receives after one or more changes. One reader.
func (v *View[T]) Changed() <-chan struct{} { return v.changed }

// Tell has a channel with room for one mark receive after changes too. Call it before Run.
func (v *View[T]) Tell(ch chan struct{}) { v.listeners = append(v.listeners, ch) }

// Kind is that of its objects.
func (v *View[T]) Kind() *Kind { return v.kind }

// Empty has the view count as filled, with nothing: somebody knows that there are no such objects yet. Call it before Run.
func (v *View[T]) Empty() { close(v.synced) }

// Synced is closed once the view has been filled the first time.
func (v *View[T]) Synced() <-chan struct{} { return v.synced }

// List is what the view holds now, in no order.
func (v *View[T]) List() []T {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]T, 0, len(v.items))
	for _, it := range v.items {
		out = append(out, it)
	}
	return out
}

// Each calls do with everything that the view holds now, in no order. do must not use the view.
func (v *View[T]) Each(do func(T)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, it := range v.items {
		do(it)
	}
}

// Get finds one object.
func (v *View[T]) Get(namespace, name string) (T, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	it, ok := v.items[types.NamespacedName{Namespace: namespace, Name: name}]
	return it, ok
}

// unknown is how long a control plane that has no such objects, an older one, is left alone.
const unknown = time.Minute

// Run follows until ctx ends.
func (v *View[T]) Run(ctx context.Context) error {
	return Follower{Client: v.client, Kind: v.kind, Selection: v.sel, All: v.replace, One: v.apply, Unknown: unknown}.Run(ctx)
}

func (v *View[T]) replace(objs []Object) {
	items := make(map[types.NamespacedName]T, len(objs))
	for _, o := range objs {
		if t, ok := o.(T); ok {
			items[Key(o)] = t
		}
	}
	v.mu.Lock()
	v.items = items
	v.mu.Unlock()
	select {
	case <-v.synced:
	default:
		close(v.synced)
	}
	v.mark()
}

func (v *View[T]) apply(e Event) {
	t, ok := e.Object.(T)
	if !ok {
		return
	}
	v.mu.Lock()
	switch e.Type {
	case Added, Modified:
		v.items[Key(t)] = t
	case Deleted:
		delete(v.items, Key(t))
	}
	v.mu.Unlock()
	if e.Type != Bookmark {
		v.mark()
	}
}

func (v *View[T]) mark() {
	for _, ch := range v.listeners {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Key is an object's namespace and name.
func Key(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
