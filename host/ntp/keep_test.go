package ntp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is what a Keeper sees and does.
type world struct {
	mu       sync.Mutex
	servers  []string
	names    map[string][]string
	offset   map[string]time.Duration // by address
	refuses  map[string]bool
	asked    []string
	adjusted []time.Duration
	stubborn error // of the clock
}

func (w *world) keeper() *Keeper {
	return New(Config{
		Servers: func() []string { return w.servers },
		Resolve: func(_ context.Context, name string) ([]string, error) {
			if list, ok := w.names[name]; ok {
				return list, nil
			}
			return nil, fmt.Errorf("%s: no such host", name)
		},
		Ask: func(_ context.Context, at string, _ time.Time) (Answer, error) {
			w.mu.Lock()
			w.asked = append(w.asked, at)
			off, ok := w.offset[at]
			w.mu.Unlock()
			if w.refuses[at] {
				return Answer{}, ErrRefused
			}
			if !ok {
				time.Sleep(patience)
				return Answer{}, errors.New("no answer")
			}
			return Answer{Offset: off, Delay: time.Millisecond}, nil
		},
		Adjust: func(off, within time.Duration) (bool, error) {
			if within != time.Millisecond/2 {
				return false, fmt.Errorf("within %v", within)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.adjusted = append(w.adjusted, off)
			return true, w.stubborn
		},
	})
}

func (w *world) run(t *testing.T, fn func()) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.keeper().Run(ctx) }()
		synctest.Wait()
		fn()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// after is what has been asked and adjusted when so much time has passed.
func (w *world) after(d time.Duration) (asked []string, adjusted []time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked), slices.Clone(w.adjusted)
}

// TestKeeper: one after the other is asked until one answers, and that one again after a while.
func TestKeeper(t *testing.T) {
	w := &world{servers: []string{"gone", "dead", "good:1234"}, offset: map[string]time.Duration{"10.0.0.2:1234": time.Hour},
		names: map[string][]string{"dead": {"10.0.0.1", "fd00::1"}, "good": {"10.0.0.2"}}}
	w.run(t, func() {
		asked, _ := w.after(time.Minute)
		if want := []string{"10.0.0.1:123", "[fd00::1]:123", "10.0.0.2:1234"}; !slices.Equal(asked, want) {
			t.Errorf("asked %q", asked)
		}
		_, adjusted := w.after(3 * steady)
		if n := len(adjusted); n < 3 || n > 4 || adjusted[0] != time.Hour {
			t.Errorf("adjusted %v", adjusted)
		}
	})
}

// TestKeeperWaits: a board whose network is not there yet asks soon again, one that never had any seldom, and a server that
// comes later is found.
func TestKeeperWaits(t *testing.T) {
	w := &world{servers: []string{"10.0.0.1"}, names: map[string][]string{"10.0.0.1": {"10.0.0.1"}}}
	w.run(t, func() {
		soon, _ := w.after(time.Minute)
		all, _ := w.after(24 * time.Hour)
		if day := len(all) - len(soon); len(soon) < 4 || len(soon) > 7 || day < 200 || day > 300 {
			t.Errorf("asked %d times in the first minute, %d in the day after", len(soon), day)
		}
		w.mu.Lock()
		w.offset = map[string]time.Duration{"10.0.0.1:123": 0}
		w.mu.Unlock()
		if _, adjusted := w.after(2 * lastWait); len(adjusted) != 1 {
			t.Errorf("adjusted %v", adjusted)
		}
	})
}

// TestKeeperRefused: a server that refuses is left alone, and asked again an hour later.
func TestKeeperRefused(t *testing.T) {
	const refuser = "10.0.0.1:123"
	w := &world{servers: []string{"a", "b"}, names: map[string][]string{"a": {"10.0.0.1"}, "b": {"10.0.0.2"}},
		refuses: map[string]bool{refuser: true}, offset: map[string]time.Duration{"10.0.0.2:123": 0}}
	times := func(asked []string) (n int) {
		for _, at := range asked {
			if at == refuser {
				n++
			}
		}
		return n
	}
	w.run(t, func() {
		asked, adjusted := w.after(refusal - time.Minute)
		if times(asked) != 1 || len(adjusted) < 3 {
			t.Errorf("asked %q, adjusted %v", asked, adjusted)
		}
		if asked, _ := w.after(2 * steady); times(asked) != 2 {
			t.Errorf("asked %q", asked)
		}
	})
}

// TestKeeperStubborn: a clock that cannot be set is a failure as others are.
func TestKeeperStubborn(t *testing.T) {
	w := &world{servers: []string{"a"}, names: map[string][]string{"a": {"10.0.0.1"}}, offset: map[string]time.Duration{"10.0.0.1:123": 0},
		stubborn: errors.New("not permitted")}
	w.run(t, func() {
		if _, adjusted := w.after(time.Minute); len(adjusted) < 4 || len(adjusted) > 8 {
			t.Errorf("%d times", len(adjusted))
		}
	})
}
