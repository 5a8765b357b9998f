package fake

import (
	"context"
	"errors"
	"fmt"

	"ledge/runtime"
)

// Command is what a command run in a container does: it may read and write the streams of x, and must come to an end
// when ctx does. An error says that it could not be started.
type Command func(ctx context.Context, x runtime.Exec) (code int, err error)

// Exec implements runtime.Engine. The end of the container ends the command, as does the loss of the engine.
func (e *Engine) Exec(ctx context.Context, x runtime.Exec) (runtime.Exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := e.enter(x.Container, &cancel)
	if err != nil {
		return runtime.Exit{}, fmt.Errorf("exec in container %s: %w", x.Container, err)
	}
	defer e.leave(c, &cancel)
	code := 0
	if c.does.Exec != nil {
		code, err = c.does.Exec(ctx, x)
	}
	switch {
	case context.Cause(ctx) == errEnded:
		return runtime.Exit{Code: 137, Signal: 9}, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		return runtime.Exit{}, fmt.Errorf("exec in container %s: %w", x.Container, err)
	}
	return runtime.Exit{Code: code}, nil
}

// errEnded is the cause of a command's end when its container's was.
var errEnded = errors.New("the container ended")

// enter finds a running container and has its end known.
func (e *Engine) enter(id string, cancel *context.CancelCauseFunc) (*container, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return nil, err
	}
	c, ok := e.cons[id]
	switch {
	case !ok:
		return nil, runtime.ErrNotFound
	case c.status.Phase != runtime.Running:
		return nil, runtime.ErrNotRunning
	}
	c.execs[cancel] = true
	return c, nil
}

func (e *Engine) leave(c *container, cancel *context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(c.execs, cancel)
}

// endExecs is called with the lock held.
func (c *container) endExecs(why error) {
	for cancel := range c.execs {
		(*cancel)(why)
	}
}
