package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// DialIn connects to a port on the loopback addresses of another network namespace, named by the path it is pinned at.
// A socket belongs to the namespace it was made in, so the connection may be used from anywhere.
func DialIn(ctx context.Context, netns string, port uint16) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// Never unlocked: the thread has another namespace now and ends with this goroutine.
		runtime.LockOSThread()
		conn, err := dialHere(ctx, netns, port)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func dialHere(ctx context.Context, netns string, port uint16) (net.Conn, error) {
	f, err := os.Open(netns)
	if err != nil {
		return nil, fmt.Errorf("open the pod's network namespace: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the pod's network namespace: %w", err)
	}
	var errs []error
	for _, ip := range []string{"127.0.0.1", "::1"} {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
