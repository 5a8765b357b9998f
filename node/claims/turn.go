package claims

import (
	"context"
	"sync"
	"time"
)

// How long is waited for a disk. A call to one that is broken may return after minutes, or never, and nothing ends it.
const (
	passIn  = 5 * time.Second  // for a pass: it goes on, and the next one does not wait for it
	askIn   = 2 * time.Second  // for an answer to somebody who waits for it
	leaveIn = 2 * time.Second  // at the end
	muteIn  = 30 * time.Second // then it does not answer: a stick that writes what it has cached may take some
)

// turn is work of one kind on a disk, of which one is done at a time.
type turn struct {
	taken chan struct{} // capacity 1

	mu    sync.Mutex
	since time.Time // zero: nothing is done
}

func newTurn() *turn { return &turn{taken: make(chan struct{}, 1)} }

func (t *turn) set(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = since
}

// over says whether what is done takes longer than that.
func (t *turn) over(limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.since.IsZero() && time.Since(t.since) >= limit
}

// within does fn, and waits for it for no longer than limit. false: it is still at it, or what came before it is.
func within[T any](t *turn, limit time.Duration, fn func() T) (out T, ok bool) {
	if t.over(limit) {
		return out, false
	}
	end := time.NewTimer(limit)
	defer end.Stop()
	select {
	case t.taken <- struct{}{}:
	case <-end.C:
		return out, false
	}
	t.set(time.Now())
	done := make(chan T, 1)
	go func() {
		v := fn()
		t.set(time.Time{})
		<-t.taken
		done <- v
	}()
	select {
	case v := <-done:
		return v, true
	case <-end.C:
		return out, false
	}
}

// leaveStuck does fn, which ends with ctx. Where a disk keeps it from that, it is left behind.
func leaveStuck(ctx context.Context, fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(leaveIn):
	}
}

// mute says whether a disk does not answer. The Disks are locked.
func (o *disk) mute() bool { return !o.since.IsZero() && time.Since(o.since) >= muteIn }

func (o *disk) isMute() bool {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	return o.mute()
}

// work does something of a pass at its place.
func (p place) work(fn func() error) error {
	if p.on == nil {
		return fn()
	}
	p.on.begin(time.Now())
	defer p.on.begin(time.Time{})
	return fn()
}

func (o *disk) begin(at time.Time) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.since = at
}
