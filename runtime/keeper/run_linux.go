package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// ErrRunning says that another keeper owns the run directory.
var ErrRunning = errors.New("another keeper runs on this directory")

// Run is the keeper process. It serves until ctx ends or a client shuts it down, and leaves the containers alone;
// after a Reset nothing is left. The process becomes a child subreaper and has its orphans reaped, so it must have
// no children of its own.
func Run(ctx context.Context, cfg Config) error {
	e, err := NewEngine(cfg)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.RunDir, 0o700); err != nil {
		return fmt.Errorf("keeper: make the run directory: %w", err)
	}
	lock, err := lockDir(cfg.RunDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keeper: become a subreaper: %w", err)
	}
	l, err := listen(cfg.RunDir)
	if err != nil {
		return fmt.Errorf("keeper: listen: %w", err)
	}
	defer l.Close()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var cleared atomic.Bool
	s := &server{e: e, log: cfg.log(), trust: cfg.Trust, stop: stop, reset: func() { cleared.Store(true) },
		slots: make(chan struct{}, maxConns)}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { e.reaper.run(ctx); return nil })
	g.Go(func() error { return e.Run(ctx) })
	g.Go(func() error { return s.serve(ctx, l) })
	err = g.Wait()
	_ = os.Remove(filepath.Join(cfg.RunDir, socketName))
	if err == nil && cleared.Load() {
		for _, f := range []string{"boot_id", "pods", "containers", "keeper.lock"} {
			err = errors.Join(err, os.Remove(filepath.Join(cfg.RunDir, f)))
		}
	}
	return err
}

// lockDir takes the run directory, for as long as the file is open.
func lockDir(runDir string) (*os.File, error) {
	path := filepath.Join(runDir, "keeper.lock")
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("keeper: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("keeper: %s: %w", runDir, ErrRunning)
			}
			return nil, fmt.Errorf("keeper: lock %s: %w", runDir, err)
		}
		// A keeper that was reset removes the file last of all; a lock on that one would be worth nothing.
		mine, err := f.Stat()
		if named, nerr := os.Stat(path); err == nil && nerr == nil && os.SameFile(mine, named) {
			return f, nil
		}
		_ = f.Close()
	}
}

// reset removes everything the engine holds, and what it needed itself.
func (e *Engine) reset(ctx context.Context) error {
	state, err := e.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range state.Pods {
		errs = append(errs, e.RemovePod(ctx, p.Pod.UID))
	}
	for _, c := range state.Containers {
		errs = append(errs, e.Remove(ctx, c.ID)) // those whose pod was not known
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if err := e.cfg.Runner.Clear(); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}
