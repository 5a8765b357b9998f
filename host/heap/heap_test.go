package heap

import (
	"math"
	"testing"
)

// TestHeapRoom: a bad minute gets little room, and what stays gets all of it in the next one.
func TestHeapRoom(t *testing.T) {
	const mib = 1 << 20
	c := &collector{least: math.MaxUint64}
	c.minute() // before anything was seen
	for _, tc := range []struct{ live, want uint64 }{{2, 20}, {10, 20}, {24, 30}, {80, 90}, {3, 20}} {
		if got := c.heap(tc.live * mib); got != tc.want*mib {
			t.Errorf("with %d MiB alive %d MiB", tc.live, got/mib)
		}
	}
	c.minute()
	if got := c.heap(30 * mib); got != 36*mib {
		t.Errorf("after a bad minute %d MiB", got/mib)
	}
	c.minute()
	if got := c.heap(30 * mib); got != 50*mib {
		t.Errorf("when it stays %d MiB", got/mib)
	}
}
