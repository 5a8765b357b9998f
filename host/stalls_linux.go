package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stallTriggers are what the kernel is asked to tell: tasks that lost so many microseconds of such a window. Shorter
// windows than two seconds are refused by some kernels.
var stallTriggers = []string{"some 50000 500000", "some 200000 2000000"}

// WatchStalls calls stalled whenever tasks lose time for want of "memory", "cpu" or "io", until ctx ends; at most once in
// a window. A kernel that cannot tell gives fs.ErrNotExist.
func (h *Host) WatchStalls(ctx context.Context, resource string, stalled func()) error {
	fd, err := h.stallTrigger(resource)
	if err != nil {
		return fmt.Errorf("watch %s pressure: %w", resource, err)
	}
	defer unix.Close(fd)
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s pressure: %w", resource, err)
	}
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		_, _ = unix.Write(end, binary.NativeEndian.AppendUint64(nil, 1)) // an eventfd takes it
	})
	defer unix.Close(end)
	defer func() {
		if !stop() {
			<-told // or it would write to a descriptor that is another's by then
		}
	}()
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}, {Fd: int32(end), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR) || ctx.Err() != nil:
		case err != nil:
			return fmt.Errorf("watch %s pressure: %w", resource, err)
		case fds[0].Revents&unix.POLLERR != 0:
			return fmt.Errorf("watch %s pressure: the kernel has dropped the trigger", resource)
		case fds[0].Revents&unix.POLLPRI != 0:
			stalled()
		}
	}
	return nil
}

// stallTrigger opens a descriptor that can be polled, with the shortest window the kernel takes.
func (h *Host) stallTrigger(resource string) (int, error) {
	var errs []error
	for _, trigger := range stallTriggers {
		fd, err := unix.Open(filepath.Join(h.cfg.Proc, "pressure", resource), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EOPNOTSUPP) { // compiled in, and switched off
			err = os.ErrNotExist
		}
		if err != nil {
			return -1, err
		}
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
