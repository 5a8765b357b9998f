package host

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// IdleThread gives the calling goroutine a thread of its own that gets the disk and the processor when nobody else
// wants them. The thread ends with the goroutine: there is no way back.
func IdleThread() error {
	runtime.LockOSThread()
	const whoProcess, classIdle = 1, 3 << 13 // linux/ioprio.h
	if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, 0, classIdle); errno != 0 {
		return fmt.Errorf("lower the priority of disk access: %w", errno)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil { // of this thread only, on Linux
		return fmt.Errorf("lower the priority of a thread: %w", err)
	}
	return nil
}
