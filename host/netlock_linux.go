package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// HoldNetwork keeps others of this program from choosing networks in the same network namespace until release is called.
// The lock is on the namespace itself: it has the right extent, no name, and ends with its holder.
func HoldNetwork(ctx context.Context) (release func(), err error) {
	f, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("lock the network: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the network: %w", err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock the network: another holds it: %w", ctx.Err()), f.Close())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
