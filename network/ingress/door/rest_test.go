package door

import (
	"context"
	"runtime"
	"testing"
	"time"

	"ledge/internal/testrun"
)

var ballast [][]byte

// TestGiveBack: what many requests took does not stay with the pod.
func TestGiveBack(t *testing.T) {
	const size = 64 << 20
	kept := func() uint64 { // of the heap, by the kernel's count
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapSys - m.HeapReleased
	}
	for range size >> 20 {
		ballast = append(ballast, make([]byte, 1<<20))
	}
	full := kept()
	ballast = nil
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- giveBack(ctx, time.Millisecond) }()
	testrun.Until(t, 10*time.Second, "it is given back", func() bool { return kept()+size/2 < full })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
