package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Victim is a process that the kernel has killed because the machine, not some cgroup, ran out of memory.
type Victim struct {
	Name string
	PID  int
}

// WatchOOM calls fn for every process that the kernel kills from now on because the machine has no memory left, as it writes
// to its log, until ctx ends.
func (h *Host) WatchOOM(ctx context.Context, fn func(Victim)) error {
	return watchLog(ctx, func(record []byte) {
		if v, ok := victim(record); ok {
			fn(v)
		}
	})
}

// watchLog calls fn for each record that the kernel's log gets from now on, until ctx ends.
func watchLog(ctx context.Context, fn func(record []byte)) error {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("watch the kernel's log: %w", err)
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil { // what was before is history
		return fmt.Errorf("watch the kernel's log: %w", errors.Join(err, f.Close()))
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer func() {
		if stop() {
			_ = f.Close()
		}
	}()
	record := make([]byte, 8<<10) // the longest the kernel gives
	for {
		n, err := f.Read(record)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EPIPE): // it wrote faster than this reads
		case err != nil:
			return fmt.Errorf("watch the kernel's log: %w", err)
		default:
			fn(record[:n])
		}
	}
}

// victim finds one in a record of the kernel's log: "6,1234,5678901,-;Out of memory: Killed process 99 (name) total-vm:...".
// Those of a cgroup begin with other words.
func victim(record []byte) (Victim, bool) {
	_, text, _ := bytes.Cut(record, []byte{';'})
	rest, ok := bytes.CutPrefix(text, []byte("Out of memory: Killed process "))
	if !ok {
		return Victim{}, false
	}
	pid, name, _ := bytes.Cut(rest, []byte(" ("))
	if end := bytes.LastIndex(name, []byte(") total-vm:")); end >= 0 {
		name = name[:end]
	} else if end := bytes.LastIndexByte(name, ')'); end >= 0 {
		name = name[:end]
	}
	n, err := strconv.Atoi(string(pid))
	return Victim{Name: string(name), PID: n}, err == nil
}
