package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"ledge/runtime"
)

var _ runtime.Attacher = (*Engine)(nil)

// attachSpec is a runtime.Attach without its streams: pipes for the output travel as files, and the container's input
// comes back as one, so that only output goes through the keeper, which must read it anyway.
type attachSpec struct {
	Container string
	Stdin     bool
	// Files tells which of standard output and error come along.
	Files [2]bool
}

// Attach implements runtime.Attacher.
func (e *Engine) Attach(ctx context.Context, x runtime.Attach) error {
	p, err := plumb(runtime.Exec{Stdout: x.Stdout, Stderr: x.Stderr, Resize: x.Resize})
	if err != nil {
		return err
	}
	defer p.close()
	p.x.Stdin = x.Stdin
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	err = e.attach(ctx, attachSpec{Container: x.Container, Stdin: x.Stdin != nil}, [2]*os.File(p.child[1:]), ended,
		func(in *os.File, tty bool) error {
			p.join(in, tty, func() { close(ended) })
			p.onError(cancel)
			return nil
		})
	if err != nil {
		return err
	}
	return p.drain()
}

// onError calls fn with the first error of each writer.
func (p *plumbing) onError(fn func(error)) {
	for _, o := range p.outs {
		go func() {
			if <-o.done; o.err != nil {
				fn(o.err)
			}
		}()
	}
}

// attach joins files to the output of a container. When that is done it calls joined with the file that takes the input, which joined then
// owns; nil if there is no input. A terminal is always handed over, because the caller may set its size. ended closes when there is no more
// input.
func (e *Engine) attach(ctx context.Context, x attachSpec, files [2]*os.File, ended <-chan struct{},
	joined func(in *os.File, tty bool) error) error {
	end, err := e.works.begin()
	if err != nil {
		return err
	}
	defer end()
	fail := func(err error) error { return fmt.Errorf("attach to container %s: %w", x.Container, err) }
	c, ok := e.held.container(x.Container)
	if !ok {
		return fail(runtime.ErrNotFound)
	}
	spec := c.rec.Container
	if x.Stdin && !spec.Stdin {
		return fail(runtime.ErrNoStdin)
	}
	slow := make(chan struct{})
	in, leave, err := c.join(files, x.Stdin, sync.OnceFunc(func() { close(slow) }))
	if errors.Is(err, runtime.ErrNotRunning) {
		// Who is told so reads the log instead (kubectl run -i): it is complete first.
		select {
		case <-c.done:
		case <-e.quit:
			err = runtime.ErrUnavailable
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fail(err)
	}
	defer leave()
	if err := joined(in, spec.TTY); err != nil {
		return fail(err)
	}
	once := spec.StdinOnce && !spec.TTY
	if x.Stdin && once {
		defer e.endStdin(c)
	}
	for {
		select {
		case <-c.done: // and its output has been passed on
			return nil
		case <-ended:
			if !once {
				return nil
			}
			e.endStdin(c)
			ended = nil
		case <-slow:
			return fail(runtime.ErrTooSlow)
		case <-e.quit:
			return fail(runtime.ErrUnavailable)
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
}

// endStdin lets go of a container's input, so that it ends when the attacher has let go of it too.
func (e *Engine) endStdin(c *container) {
	if f := c.dropStdin(); f != nil {
		e.lot.remove(parkName(c.rec.Container.ID, nameStdin))
		_ = f.Close()
	}
}
