package keeper

import (
	"context"
	"fmt"
	"sync"

	"ledge/runtime"
)

// Watch implements runtime.Engine.
func (e *Engine) Watch(ctx context.Context, fn func(runtime.Status)) error {
	end, err := e.works.begin()
	if err != nil {
		return err
	}
	defer end()
	w := e.held.join()
	defer e.held.leave(w)
	for {
		for _, st := range e.held.news(w) {
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
