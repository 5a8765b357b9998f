// Package netns enters network namespaces.
package netns

import (
	"fmt"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// Open opens a pinned network namespace.
func Open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open network namespace %q: %w", path, err)
	}
	// Asking the kind keeps a plain file (the pin of a namespace that is gone) from being told as EINVAL later.
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		unix.Close(fd)
		return -1, fmt.Errorf("%q is not a network namespace", path)
	}
	return fd, nil
}

// Within runs f on a thread that is in the namespace fd while f runs. A thread that cannot be brought back is
// thrown away: that is why f gets a goroutine of its own.
func Within(fd int, f func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		done <- visit(fd, f) // by then nothing of the visit is open any more
	}()
	return <-done
}

// visit is called with the thread locked, and unlocks it if it is back.
func visit(fd int, f func() error) error {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer unix.Close(home)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = f()
	if unix.Setns(home, unix.CLONE_NEWNET) == nil {
		goruntime.UnlockOSThread()
	}
	return err
}
