package keeper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"ledge/runtime"
)

// watcher is one caller of Watch: the containers that changed since it was last told. States that follow each
// other faster than it listens are told as one, the last.
type watcher struct {
	dirty map[string]bool
	wake  chan struct{}
}

// changed is called with e.mu held.
func (e *Engine) changed(id string) {
	for w := range e.watch {
		w.dirty[id] = true
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Watch implements runtime.Engine.
func (e *Engine) Watch(ctx context.Context, fn func(runtime.Status)) error {
	end, err := e.begin()
	if err != nil {
		return err
	}
	defer end()
	w := &watcher{dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
	e.mu.Lock()
	for id := range e.con {
		w.dirty[id] = true
	}
	e.watch[w] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.watch, w)
		e.mu.Unlock()
	}()
	for {
		e.mu.Lock()
		ids := slices.Sorted(maps.Keys(w.dirty))
		w.dirty = map[string]bool{}
		var list []runtime.Status
		for _, id := range ids {
			if c, ok := e.con[id]; ok {
				list = append(list, copyStatus(c.rec.Status))
			}
		}
		e.mu.Unlock()
		for _, st := range list {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fn(st)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-e.quit:
			return fmt.Errorf("watch containers: %w", runtime.ErrUnavailable)
		}
	}
}

// keyed is a mutex per key.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	slot chan struct{}
	refs int
}

// lock waits for the key, or for ctx to end.
func (k *keyed) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyLock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &keyLock{slot: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.refs++
	k.mu.Unlock()
	release := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(k.locks, key)
		}
	}
	select {
	case l.slot <- struct{}{}:
		return func() { <-l.slot; release() }, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}
