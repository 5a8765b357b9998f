// Package netns enters network namespaces. It is the only room beside runtime/libct that has a thread of this process enter a namespace.
//
// Such a thread ends with its goroutine, or comes back. The first thread of the process can do neither for certain: Go parks it instead of
// ending it, and /proc/self, where the whole process reads its mounts, its network and its cgroups, is that thread. So it never enters one.
// In the program libct keeps it for main, and nothing here meets it; a test or a tool without libct depends on what Apart does.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	goruntime "runtime"
	"strconv"

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

// Apart runs f on a thread that is not the first and belongs to f alone. It ends with f, whatever namespace it is in by then, unless f
// has brought it back and unlocked it.
func Apart(f func() error) error {
	err := errors.New("it did not return") // what ends a test's goroutine does so
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			err = f()
			return
		}
		defer goruntime.UnlockOSThread()
		err = Apart(f) // on another thread: this one is held meanwhile
	}()
	<-done
	return err
}

// InNew runs f in a new network namespace, which is gone afterwards if f did not pin it.
func InNew(f func() error) error {
	return Apart(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return f()
	})
}

// At runs f in a pinned network namespace; "" is the one that the caller is in.
func At(path string, f func() error) error {
	if path == "" {
		return f()
	}
	fd, err := Open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return Within(fd, f)
}

// Within runs f on a thread that is in the namespace fd while f runs. A thread that cannot be brought back is thrown away.
func Within(fd int, f func() error) error {
	return Apart(func() error { return visit(fd, f) }) // which returns when nothing of the visit is open any more
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

// Dial connects to a port on the loopback addresses of the network namespace that is pinned at path. A socket belongs to the namespace it
// was made in, so the connection may be used from anywhere.
func Dial(ctx context.Context, path string, port uint16) (net.Conn, error) {
	fd, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var conn net.Conn
	err = Within(fd, func() error {
		var errs []error
		for _, ip := range []string{"127.0.0.1", "::1"} {
			var d net.Dialer
			var err error
			if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port)))); err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
}
