package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// stallWindows are what the kernel is asked to watch. Shorter windows than two seconds are refused by some kernels.
var stallWindows = []time.Duration{500 * time.Millisecond, 2 * time.Second}

// stallShares are the hundredths of a window that tasks have to lose in it: memory is missed little, whereas a processor and a
// card are waited for on every board now and then.
var stallShares = map[string]int64{"memory": 10, "io": 20, "cpu": 50}

// WatchStalls calls stalled whenever tasks lose time for want of one of "memory", "io" and "cpu", until ctx ends; at most once in
// a window for each. A kernel that cannot tell gives fs.ErrNotExist.
func (h *Host) WatchStalls(ctx context.Context, resources []string, stalled func(resource string)) error {
	var fds []unix.PollFd
	defer func() {
		for _, f := range fds {
			unix.Close(int(f.Fd))
		}
	}()
	for _, resource := range resources {
		fd, err := stallTrigger(h.cfg.Proc, resource)
		if err != nil {
			return fmt.Errorf("watch %s pressure: %w", resource, err)
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLPRI})
	}
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch pressure: %w", err)
	}
	fds = append(fds, unix.PollFd{Fd: int32(end), Events: unix.POLLIN})
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		_, _ = unix.Write(end, binary.NativeEndian.AppendUint64(nil, 1)) // an eventfd takes it
	})
	defer func() {
		if !stop() {
			<-told // or it would write to a descriptor that is another's by then
		}
	}()
	for ctx.Err() == nil {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR) || ctx.Err() != nil:
			continue
		case err != nil:
			return fmt.Errorf("watch pressure: %w", err)
		}
		for i, resource := range resources {
			switch {
			case fds[i].Revents&unix.POLLERR != 0:
				return fmt.Errorf("watch %s pressure: the kernel has dropped the trigger", resource)
			case fds[i].Revents&unix.POLLPRI != 0:
				stalled(resource)
			}
		}
	}
	return nil
}

// stallTrigger opens a descriptor that can be polled, with the shortest window the kernel takes.
func stallTrigger(proc, resource string) (int, error) {
	var errs []error
	for _, window := range stallWindows {
		fd, err := unix.Open(filepath.Join(proc, "pressure", resource), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EOPNOTSUPP) { // compiled in, and switched off
			err = os.ErrNotExist
		}
		if err != nil {
			return -1, err
		}
		us := window.Microseconds()
		trigger := fmt.Sprintf("some %d %d", us*stallShares[resource]/100, us)
		if _, err = unix.Write(fd, append([]byte(trigger), 0)); err == nil {
			return fd, nil
		}
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = os.ErrNotExist
		}
		errs = append(errs, fmt.Errorf("%q: %w", trigger, err))
		unix.Close(fd)
	}
	return -1, errors.Join(errs...)
}
