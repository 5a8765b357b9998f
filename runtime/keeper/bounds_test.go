package keeper

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ledge/runtime"
)

// hangingRunner has containers that do not start: "hang" until ctx ends, "deaf" until the end of the test. All others fail at once.
type hangingRunner struct {
	*shellRunner
	release chan struct{}
}

var errTurn = errors.New("its turn came")

func (r hangingRunner) Start(ctx context.Context, _, _ string, _ runtime.Pod, c runtime.Container, _ [3]*os.File, _ *os.File) (int, error) {
	switch c.Args[0] {
	case "hang":
		<-ctx.Done()
		return 0, context.Cause(ctx)
	case "deaf":
		<-r.release
	}
	return 0, errTurn
}

// hanging runs fn in a bubble of its own, with an engine that stop ends.
func hanging(t *testing.T, fn func(t *testing.T, e *Engine, stop func())) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := hangingRunner{newShellRunner(), make(chan struct{})}
		e, err := NewEngine(Config{RunDir: dir, Runner: r, BootID: "boot", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		e.starts = newPlaces(2)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		<-e.adopted
		fn(t, e, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		close(r.release)
		synctest.Wait()
	})
}

// tried is how a start ended, and after how long.
type tried struct {
	err  error
	took time.Duration
}

// try starts a container in a pod of its own.
func try(t *testing.T, e *Engine, uid, how string) chan tried {
	t.Helper()
	if _, err := e.EnsurePod(t.Context(), runtime.Pod{UID: uid, Cgroup: "x"}); err != nil {
		t.Fatal(err)
	}
	out, began := make(chan tried, 1), time.Now()
	go func() {
		_, err := e.Start(t.Context(), runtime.Container{ID: "c-" + uid, PodUID: uid, Args: []string{how}})
		out <- tried{err, time.Since(began)}
	}()
	synctest.Wait()
	return out
}

// TestHangingStarts: starts that hang keep others waiting for a moment only, are told of, and end.
func TestHangingStarts(t *testing.T) {
	hanging(t, func(t *testing.T, e *Engine, stop func()) {
		var hung []chan tried
		for _, uid := range []string{"a", "b", "c", "d"} {
			hung = append(hung, try(t, e, uid, "hang"))
		}
		other := <-try(t, e, "other", "fail")
		if !errors.Is(other.err, errTurn) || other.took > 2*holdFor {
			t.Errorf("another pod's start: %+v", other)
		}
		time.Sleep(longest - other.took - time.Second)
		info, err := e.Info(t.Context())
		if err != nil || len(info.Late) != 4 || info.Late[0].What != runtime.Starting || info.Late[0].For < lateAfter {
			t.Errorf("told: %+v %v", info.Late, err)
		}
		for _, c := range hung {
			if r := <-c; !errors.Is(r.err, errTooLong) || r.took != longest {
				t.Errorf("a start that hangs: %+v", r)
			}
		}
		synctest.Wait() // who has answered goes off the list then
		if info, _ := e.Info(t.Context()); len(info.Late) != 0 {
			t.Errorf("still told: %+v", info.Late)
		}
		if len(e.starts.free)+len(e.starts.without) != 0 {
			t.Error("places are still held")
		}
		stop()
	})
}

// TestRemovalEndsStarts: who removes a pod does not wait for its start, and nothing begins in it meanwhile.
func TestRemovalEndsStarts(t *testing.T) {
	hanging(t, func(t *testing.T, e *Engine, stop func()) {
		hung := try(t, e, "a", "hang")
		if err := e.RemovePod(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if r := <-hung; !errors.Is(r.err, errRemoved) || r.took != 0 {
			t.Errorf("the start of a removed pod: %+v", r)
		}
		done := e.works.leave("b")
		if r := <-try(t, e, "c", "fail"); !errors.Is(r.err, errTurn) {
			t.Errorf("in another pod: %+v", r)
		}
		if _, err := e.Start(t.Context(), runtime.Container{ID: "c-b", PodUID: "b", Args: []string{"fail"}}); !errors.Is(err, errRemoved) {
			t.Errorf("in a pod that is being removed: %v", err)
		}
		done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.EnsurePod(ctx, runtime.Pod{UID: "d", Cgroup: "x"}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Start(ctx, runtime.Container{ID: "c-d", PodUID: "d", Args: []string{"hang"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("whose caller has enough: %v", err)
		}
		stop()
	})
}

// TestStuckInTheKernel: what cannot be ended costs its own pod its start, its removal an error, and the keeper a minute at its end.
func TestStuckInTheKernel(t *testing.T) {
	hanging(t, func(t *testing.T, e *Engine, stop func()) {
		var stuck []chan tried
		for _, uid := range []string{"a", "b", "c"} {
			stuck = append(stuck, try(t, e, uid, "deaf"))
		}
		for _, c := range stuck {
			if r := <-c; r.err == nil || !strings.Contains(r.err.Error(), "cannot be ended") || r.took != longest+diesWithin {
				t.Errorf("%+v", r)
			}
		}
		if r := <-try(t, e, "d", "fail"); !errors.Is(r.err, errTurn) || r.took > holdFor {
			t.Errorf("another pod's start: %+v", r)
		}
		began := time.Now()
		if err := e.RemovePod(t.Context(), "a"); err == nil || time.Since(began) > longest+diesWithin {
			t.Errorf("removal after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		stop()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the keeper ended after %v", took)
		}
	})
}

// TestEndingKeeper: a keeper that is to end gives what it starts a moment, and then ends it.
func TestEndingKeeper(t *testing.T) {
	hanging(t, func(t *testing.T, e *Engine, stop func()) {
		hung, began := try(t, e, "a", "hang"), time.Now()
		stop()
		if r := <-hung; !errors.Is(r.err, runtime.ErrUnavailable) || time.Since(began) != startsEndWithin {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
	})
}

// TestPlaces: a place that is held for long is another's, for as many as may go on without one.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(2)
		var leave []func()
		began := time.Now()
		for range 2 + mostWithout {
			l, err := p.take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		if took := time.Since(began); took != (1+mostWithout)/2*holdFor {
			t.Errorf("%d places were taken in %v", len(leave), took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*holdFor)
		defer cancel()
		if _, err := p.take(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one more: %v", err)
		}
		for _, l := range leave {
			l()
		}
		if len(p.free)+len(p.without) != 0 {
			t.Error("not all were given back")
		}
	})
}
