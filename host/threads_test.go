package host

import (
	"os"
	"testing"
)

func TestSpareThreads(t *testing.T) {
	const many = 40 // more than a test has by itself
	SpareThreads(many)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < many {
		t.Errorf("%d threads, want %d kept for later", len(threads), many)
	}
}
