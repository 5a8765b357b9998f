package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// rewatch is how often a directory that could not be watched, or was replaced, is tried again.
const rewatch = 20 * time.Second

// WatchDirs calls changed whenever a file in one of the directories has been written to its end, moved, made or
// removed, until ctx ends. Several changes may be told as one. A directory that is not there is watched once it is.
func WatchDirs(ctx context.Context, dirs []string, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch directories: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, 4096)
	for ctx.Err() == nil {
		for _, dir := range dirs {
			const what = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_CREATE | unix.IN_ATTRIB
			// The kernel takes the same directory twice for once. One that is not there is tried again.
			_, _ = unix.InotifyAddWatch(fd, dir, what|unix.IN_ONLYDIR)
		}
		_ = f.SetReadDeadline(time.Now().Add(rewatch))
		if ctx.Err() != nil {
			break // the deadline may have undone the one that ends us
		}
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return fmt.Errorf("watch directories: %w", err)
		case n > 0:
			changed()
		}
	}
	return nil
}
