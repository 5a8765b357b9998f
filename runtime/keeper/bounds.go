package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"ledge/runtime"
)

const (
	// longest is how long a start, the way of a command into its container, or a removal may take.
	longest = time.Minute
	// holdFor is how long an operation holds its place; one that takes longer leaves it to others and goes on.
	holdFor = 10 * time.Second
	// mostWithout is how many go on so.
	mostWithout = 8
	// lateAfter is when an operation is told of in Info.
	lateAfter = 30 * time.Second
	// startsEndWithin is how long a keeper that is to end waits for what it is just starting.
	startsEndWithin = 10 * time.Second
)

var (
	errTooLong = fmt.Errorf("not done after %s", longest)
	errRemoved = errors.New("its pod is being removed")
)

// operation is a start, a command on its way in, or a removal.
type operation struct {
	late  runtime.Late
	since time.Time
	end   context.CancelCauseFunc
}

// works is what is under way, and whether anything may begin.
type works struct {
	log *slog.Logger
	ops sync.WaitGroup // calls under way

	mu      sync.Mutex
	ready   bool
	under   map[*operation]bool
	leaving map[string]int // the pods that are being removed, with how often
}

func newWorks(log *slog.Logger) *works {
	return &works{log: log, under: map[*operation]bool{}, leaving: map[string]int{}}
}

// admit says whether work may begin from now on.
func (w *works) admit(ready bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = ready
}

// begin refuses work before and after Run, which waits for what has begun.
func (w *works) begin() (end func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready {
		return nil, fmt.Errorf("keeper: %w", runtime.ErrUnavailable)
	}
	w.ops.Add(1)
	return w.ops.Done, nil
}

// bounded runs fn until the caller's context ends, longest has passed, or end is called for it. fn's context is
// cancelled then, and fn has diesWithin to return. If it does not, it hangs in the kernel and is abandoned: its locks
// stay locked, which harms only its own pod.
func bounded[T any](ctx context.Context, w *works, what runtime.Late, fn func(context.Context) (T, error)) (T, error) {
	var none T
	done, err := w.begin()
	if err != nil {
		return none, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, longest, errTooLong)
	ctx, end := context.WithCancelCause(ctx)
	op := &operation{late: what, since: time.Now(), end: end}
	if err := w.enlist(op); err != nil {
		stop()
		done()
		return none, err
	}
	type result struct {
		value T
		err   error
	}
	came := make(chan result, 1)
	go func() {
		defer done()
		defer stop()
		defer w.strike(op)
		v, err := fn(ctx)
		came <- result{v, err}
	}()
	select {
	case r := <-came:
		return r.value, r.err
	case <-ctx.Done():
	}
	dies := time.NewTimer(diesWithin)
	defer dies.Stop()
	select {
	case r := <-came:
		return r.value, r.err
	case <-dies.C:
		w.log.Error("something hangs in the kernel and is left to itself", "operation", what.What, "pod", what.PodUID, "container",
			what.Container)
		return none, fmt.Errorf("%w, and it cannot be ended", context.Cause(ctx))
	}
}

// enlist makes an operation known. In a pod that is being removed nothing begins.
func (w *works) enlist(op *operation) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if op.late.What != runtime.Removing && w.leaving[op.late.PodUID] > 0 {
		return fmt.Errorf("%s: %w: %w", op.late.What, errRemoved, runtime.ErrNotFound)
	}
	w.under[op] = true
	return nil
}

func (w *works) strike(op *operation) {
	w.mu.Lock()
	delete(w.under, op)
	w.mu.Unlock()
	op.end(nil)
}

// endAll ends the operations that are so.
func (w *works) endAll(cause error, so func(runtime.Late) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for op := range w.under {
		if so(op.late) {
			op.end(cause)
		}
	}
}

// leave ends what begins in a pod and lets nothing more begin, until the pod has been removed or could not be.
func (w *works) leave(uid string) (done func()) {
	w.mu.Lock()
	w.leaving[uid]++
	w.mu.Unlock()
	w.endAll(errRemoved, func(l runtime.Late) bool { return l.PodUID == uid && l.What != runtime.Removing })
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.leaving[uid]--; w.leaving[uid] == 0 {
			delete(w.leaving, uid)
		}
	}
}

// late is what has been under way for long.
func (w *works) late() []runtime.Late {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []runtime.Late
	for op := range w.under {
		if op.late.For = time.Since(op.since); op.late.For >= lateAfter {
			out = append(out, op.late)
		}
	}
	return out
}

// places limits how many containers or commands start at a time: each needs the memory of a Go runtime for a moment.
// A start that takes longer than holdFor no longer needs it: it moves to a second count, mostWithout, and frees its
// place.
type places struct {
	free    chan struct{}
	without chan struct{}
}

func newPlaces(n int) *places {
	return &places{free: make(chan struct{}, n), without: make(chan struct{}, mostWithout)}
}

// take waits for a place, which leave gives back.
func (p *places) take(ctx context.Context) (leave func(), err error) {
	select {
	case p.free <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var mu sync.Mutex
	held := p.free // which of the two has our mark; nil: left
	timer := time.AfterFunc(holdFor, func() {
		mu.Lock()
		defer mu.Unlock()
		if held == nil {
			return
		}
		select {
		case p.without <- struct{}{}:
			<-held
			held = p.without
		default:
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		<-held
		held = nil
	}, nil
}

// within waits for a group, for d at most, and says whether it is done.
func within(d time.Duration, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
