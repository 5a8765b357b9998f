package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// One at a time, and whoever waits too long is told.
func TestHoldNetwork(t *testing.T) {
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 4 {
		wg.Go(func() {
			for range 5 {
				release, err := HoldNetwork(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold it", n)
				}
				inside.Add(-1)
				release()
			}
		})
	}
	wg.Wait()
	release, err := HoldNetwork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := HoldNetwork(over); !errors.Is(err, context.Canceled) {
		t.Errorf("held already: %v", err)
	}
}
