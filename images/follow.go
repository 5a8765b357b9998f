package images

import (
	"context"
	"errors"
	"io"
	"os"
)

// follow reads a download from the start while it grows.
func (f *download) follow(ctx context.Context) io.ReadCloser {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &follower{f: f, ctx: ctx, life: f.life, stop: context.AfterFunc(ctx, f.wake)}
}

// wake has those who wait look again. The lock is taken so that nobody is just about to wait.
func (f *download) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grown.Broadcast()
}

type follower struct {
	f    *download
	ctx  context.Context
	life int
	stop func() bool
	off  int64
}

func (r *follower) Read(p []byte) (int, error) {
	file, avail, err := r.wait()
	if err != nil {
		return 0, err
	}
	n, err := file.ReadAt(p[:min(int64(len(p)), avail)], r.off)
	r.off += int64(n)
	if errors.Is(err, io.EOF) && n > 0 {
		err = nil
	}
	return n, err
}

// wait gives how much can be read now, and from where.
func (r *follower) wait() (*os.File, int64, error) {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.n <= r.off && !f.over && f.life == r.life && r.ctx.Err() == nil {
		f.grown.Wait()
	}
	switch {
	case f.life != r.life:
		return nil, 0, errRestart
	case r.ctx.Err() != nil:
		return nil, 0, r.ctx.Err()
	case f.n > r.off:
		return f.file, f.n - r.off, nil
	case f.err != nil:
		return nil, 0, f.err
	}
	return nil, 0, io.EOF
}

func (r *follower) Close() error {
	r.stop()
	return nil
}
