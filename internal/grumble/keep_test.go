package grumble

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeep: changes that come close together are one step, each minute has a look at everything, and failures are tried again ever more
// rarely, until all is well.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wake, began := make(chan struct{}, 1), time.Now()
		var mu sync.Mutex // of what follows, and began
		var steps, looks []time.Duration
		broken := errors.New("broken")
		var err error
		from := func(with error) { // here everything counts anew
			mu.Lock()
			defer mu.Unlock()
			steps, looks, err = nil, nil, with
		}
		done := make(chan error, 1)
		go func() {
			done <- Keep(ctx, wake, 100*time.Millisecond, "cannot", func(_ context.Context, everything bool) error {
				mu.Lock()
				defer mu.Unlock()
				if steps = append(steps, time.Since(began)); everything {
					looks = append(looks, time.Since(began))
				}
				return err
			})
		}()
		expect := func(what string, got *[]time.Duration, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(*got, want) {
				t.Errorf("%s: at %v, want %v", what, *got, want)
			}
			*got, began = nil, time.Now()
		}
		for range 3 {
			select {
			case wake <- struct{}{}:
			default:
			}
			synctest.Wait()
		}
		time.Sleep(time.Second)
		expect("changes", &steps, 0, 100*time.Millisecond)
		expect("looks", &looks)
		time.Sleep(2*time.Minute - time.Second)
		expect("minutes", &steps, 59*time.Second, 119*time.Second)
		from(nil)
		for range 9 { // which wakes it more often than a look is due
			time.Sleep(20 * time.Second)
			wake <- struct{}{}
		}
		time.Sleep(time.Second)
		expect("looks among wakes", &looks, time.Minute, 2*time.Minute, 3*time.Minute)
		from(broken)
		time.Sleep(67 * time.Second)
		expect("failures", &looks, 59*time.Second, time.Minute, 62*time.Second, 66*time.Second)
		from(nil)
		wake <- struct{}{}
		expect("a change after a failure looks at everything", &looks, 0)
		from(nil)
		time.Sleep(time.Minute)
		expect("it goes again", &steps, time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
