package keeper

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An attacher may hold a stream up for patience in all, and gets back a tenth of the time that passes: one that takes a
// burst a little too slowly loses nothing, and one that takes nothing is soon let go. What they are given is in the log
// by then.
const (
	patience = 2 * time.Second
	regained = 10
)

// taps are those who get a copy of a stream.
type taps struct {
	mu    sync.Mutex
	list  []*tap
	early *early // what the first of them is to get; nil: nothing is kept
}

// tap is one of them: the end of a pipe to write to, non-blocking. slow is called when it is let go for that.
type tap struct {
	f    *os.File
	slow func()

	// Of the goroutine that reads the stream.
	spent time.Duration // of patience
	last  time.Time     // when that was looked at
}

// add gives a copy of the stream to one more, after what was kept for the first. That is written with the mutex held: what the container
// says meanwhile comes after it.
func (t *taps) add(one *tap) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := one.write(t.takeEarly()); err != nil {
		return err
	}
	t.list = append(t.list, one)
	return nil
}

// remove closes the pipe, also while it is being written to.
func (t *taps) remove(one *tap) {
	t.mu.Lock()
	t.list = slices.DeleteFunc(t.list, func(o *tap) bool { return o == one })
	t.mu.Unlock()
	_ = one.f.Close()
}

// give copies what was read to everyone.
func (t *taps) give(b []byte) {
	t.mu.Lock()
	if t.early != nil && !t.early.keep(b) {
		t.takeEarly()
	}
	list := slices.Clone(t.list)
	t.mu.Unlock()
	for _, one := range list {
		switch err := one.write(b); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.remove(one)
			one.slow()
		default: // nobody reads there any more
			t.remove(one)
		}
	}
}

// write waits only if it must, and only while there is patience.
func (t *tap) write(b []byte) error {
	n, err := writeNow(t.f, b)
	if err != nil || n == len(b) {
		return err
	}
	now := time.Now()
	t.spent = max(0, t.spent-now.Sub(t.last)/regained)
	defer func() {
		t.last = time.Now()
		t.spent += t.last.Sub(now)
	}()
	if err := t.f.SetWriteDeadline(now.Add(patience - t.spent)); err != nil {
		return err
	}
	_, err = t.f.Write(b[n:])
	return err
}

// writeNow writes what there is room for.
func writeNow(f *os.File, b []byte) (n int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var werr error
	err = rc.Control(func(fd uintptr) {
		for n < len(b) {
			var m int
			if m, werr = unix.Write(int(fd), b[n:]); werr == unix.EINTR {
				continue
			}
			if werr != nil {
				break
			}
			n += m
		}
	})
	if werr == unix.EAGAIN {
		werr = nil
	}
	return max(0, n), errors.Join(err, werr)
}
