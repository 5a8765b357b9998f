package testrun

import (
	"runtime/debug"
	"testing"
	"time"
)

var held []byte

// TestHeapGrowth: what is held for a moment is seen, and what was held before does not count.
func TestHeapGrowth(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	const size = 8 << 20
	got := HeapGrowth(func() {
		held = make([]byte, size)
		time.Sleep(20 * time.Millisecond)
	})
	if got < size*9/10 || got > 2*size { // what is collected meanwhile was counted before
		t.Errorf("the heap grew by %d, want %d", got, size)
	}
	if got := HeapGrowth(func() { time.Sleep(5 * time.Millisecond) }); got > size/2 {
		t.Errorf("nothing is %d", got)
	}
	held = nil
}
