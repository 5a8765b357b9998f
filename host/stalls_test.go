package host

import (
	"context"
	"errors"
	"io/fs"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// TestWatchStalls has more threads than processors, so that some have to wait, until the kernel says so.
func TestWatchStalls(t *testing.T) {
	h := New(Config{})
	if _, err := h.Pressure("cpu"); err != nil {
		t.Skipf("this kernel does not tell: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(60*time.Second))
	defer cancel()
	var fired, over atomic.Bool
	var spinning sync.WaitGroup
	for range 3 * goruntime.NumCPU() {
		spinning.Go(func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			for !over.Load() {
			}
		})
	}
	defer spinning.Wait()
	defer over.Store(true)
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(4*goruntime.NumCPU() + 4)) // or they would take turns in few threads
	err := h.WatchStalls(ctx, []string{"memory", "io", "cpu"}, func(resource string) {
		if resource == "cpu" {
			fired.Store(true)
			cancel()
		}
	})
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("only root is told: %v", err)
	}
	if err != nil || !fired.Load() {
		t.Errorf("told: %v, and ended with %v", fired.Load(), err)
	}
}

func TestWatchStallsWithout(t *testing.T) {
	if err := New(Config{Proc: t.TempDir()}).WatchStalls(t.Context(), []string{"memory"}, func(string) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("on a kernel that cannot tell: %v", err)
	}
}
