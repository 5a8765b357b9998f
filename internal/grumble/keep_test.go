package grumble

import (
	"context"
	"errors"
	"slices"
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
		var steps, looks []time.Duration
		broken := errors.New("broken")
		var err error
		done := make(chan error, 1)
		go func() {
			done <- Keep(ctx, wake, 100*time.Millisecond, "cannot", func(_ context.Context, everything bool) error {
				if steps = append(steps, time.Since(began)); everything {
					looks = append(looks, time.Since(began))
				}
				return err
			})
		}()
		expect := func(what string, got *[]time.Duration, want ...time.Duration) {
			t.Helper()
			if synctest.Wait(); !slices.Equal(*got, want) {
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
		time.Sleep(2*time.Minute - 900*time.Millisecond) // the timer counts from the last step
		expect("minutes", &steps, time.Minute-900*time.Millisecond, 2*time.Minute-900*time.Millisecond)
		looks, err = nil, broken
		time.Sleep(time.Minute + 7*time.Second)
		expect("failures", &looks, time.Minute, 61*time.Second, 63*time.Second, 67*time.Second)
		steps, err = nil, nil
		time.Sleep(8 * time.Second)
		expect("it goes again", &steps, 8*time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
