package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	reclaimWithin = time.Second
	// reclaimChunk is what the kernel is asked for at once: it cannot be interrupted in between, and a swap file on a slow
	// card takes a few megabytes a second.
	reclaimChunk = 1 << 20
)

// Reclaim has the kernel take memory away from a cgroup, for a second at most: page cache is dropped, and the rest goes to
// swap or zram where there is one. It gives how many bytes that were; fewer than wanted is no error. A kernel that cannot
// be asked, as with cgroup v1, gives fs.ErrNotExist.
func (h *Host) Reclaim(ctx context.Context, cgroup string, want int64) (freed int64, err error) {
	path := filepath.Join(h.cfg.Sys, "fs/cgroup", cgroup, "memory.reclaim")
	// Plain system calls: EAGAIN says here that nothing is left to take, and Go would wait for better times.
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &fs.PathError{Op: "reclaim memory", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for end := time.Now().Add(reclaimWithin); freed < want && time.Now().Before(end) && ctx.Err() == nil; {
		n := min(want-freed, reclaimChunk)
		_, err := unix.Write(fd, strconv.AppendInt(nil, n, 10))
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return freed, nil
		case err != nil:
			return freed, fmt.Errorf("reclaim memory of %s: %w", cgroup, err)
		default:
			freed += n
		}
	}
	return freed, nil
}
