package host

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestIdleThread: what is done there gets the disk and the processor last, and nobody else does.
func TestIdleThread(t *testing.T) {
	get := func(tid int) (class, nice int) {
		prio, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, 1, uintptr(tid), 0)
		if errno != 0 {
			t.Fatal(errno)
		}
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if err != nil {
			t.Fatal(err)
		}
		return int(prio >> 13), 20 - raw
	}
	const idle = 3
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := IdleThread(); err != nil {
			t.Error(err)
			return
		}
		if class, nice := get(0); class != idle || nice != 19 {
			t.Errorf("class %d, nice %d", class, nice)
		}
	})
	wg.Wait()
	if class, nice := get(0); class == idle || nice == 19 {
		t.Errorf("another thread has class %d, nice %d", class, nice)
	}
}
