package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// The keeper holds files for the brain too, such as sockets at which others ask: what arrives while the brain is restarted waits in
// them. The brain lends them again to a keeper that was restarted itself.

const (
	mostLent     = 8  // names
	longestLent  = 64 // bytes of one
	filesOfALoan = maxFiles
)

// loans are the lent files by name, as bare descriptors: as os.Files they would wake this process for everything that arrives in them.
type loans struct {
	mu  sync.Mutex
	fds map[string][]int
}

// put replaces the files that are lent under a name by copies of these. No files end the loan.
func (l *loans) put(name string, files []*os.File) error {
	if len(files) > filesOfALoan {
		return fmt.Errorf("%w: %d files are lent at once, the most is %d", ErrProtocol, len(files), filesOfALoan)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fds[name] == nil && len(files) > 0 && (len(l.fds) >= mostLent || name == "" || len(name) > longestLent) {
		return fmt.Errorf("%w: no room for what is lent as %.64q", ErrProtocol, name)
	}
	var own, fds []int
	err := withFiles(files, &fds, func() (err error) {
		own, err = copies(fds)
		return err
	})
	if err != nil {
		return fmt.Errorf("hold what is lent as %q: %w", name, err)
	}
	closeAll(l.fds[name])
	if delete(l.fds, name); len(own) == 0 {
		return nil
	}
	if l.fds == nil {
		l.fds = map[string][]int{}
	}
	l.fds[name] = own
	return nil
}

// get gives copies, which are the caller's to close.
func (l *loans) get(name string) (files []*os.File, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, err := copies(l.fds[name])
	for _, fd := range own {
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	return files, err
}

func copies(fds []int) (out []int, err error) {
	for _, fd := range fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, dup)
	}
	return out, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// names are the names under which files are lent.
func (l *loans) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.fds))
}

func (l *loans) close() {
	for _, name := range l.names() {
		_ = l.put(name, nil) // nothing can go wrong with none
	}
}

// Lend has the keeper, and each keeper after it, hold copies of files under a name, also after this process has ended. No files end the
// loan. If there is no keeper, or it is too old to lend, Lend returns an error and tries again with the next keeper.
func (c *Client) Lend(ctx context.Context, name string, files []*os.File) error {
	if err := c.lent.put(name, files); err != nil {
		return err
	}
	return c.lend(ctx, name, files)
}

func (c *Client) lend(ctx context.Context, name string, files []*os.File) error {
	conn, err := c.dial(ctx, request{Op: opLend, ID: name}, files...)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var r response
	if err := receive(conn, &r, false); err != nil {
		return fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, errors.Join(err, ctx.Err()))
	}
	return r.err()
}

// lendAll lends to a keeper that has just come.
func (c *Client) lendAll(ctx context.Context) {
	for _, name := range c.lent.names() {
		files, err := c.lent.get(name)
		if err == nil && len(files) > 0 {
			err = c.lend(ctx, name, files)
		}
		closeFiles(files)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("the keeper does not hold what outlives the brain", "name", name, "err", err)
		}
	}
}

// Lent returns the files that this process, or one before it, has lent under a name.
func (c *Client) Lent(ctx context.Context, name string) ([]*os.File, error) {
	conn, err := c.dial(ctx, request{Op: opLent, ID: name})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var r response
	files, err := receiveFiles(conn, &r, false)
	if err != nil {
		return nil, fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, errors.Join(err, ctx.Err()))
	}
	if err := r.err(); err != nil {
		closeFiles(files)
		return nil, err
	}
	return files, nil
}
