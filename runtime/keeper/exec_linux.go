package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"ledge/runtime"
)

// Exec implements runtime.Engine. The streams do not go through the keeper: the command gets the far ends of pipes
// made here, or we get its terminal.
func (c *Client) Exec(ctx context.Context, x runtime.Exec) (runtime.Exit, error) {
	p, err := plumb(x)
	if err != nil {
		return runtime.Exit{}, err
	}
	defer p.close()
	spec := specOf(x)
	for i, f := range p.child {
		spec.Files[i] = f != nil
	}
	conn, err := c.dial(ctx, request{Op: opExec, Exec: &spec}, p.child[:]...)
	if err != nil {
		return runtime.Exit{}, err
	}
	defer conn.Close()
	p.closeChild()
	// The end of our side tells the keeper to kill the command; that done, it answers.
	defer context.AfterFunc(ctx, func() {
		_ = conn.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(diesWithin))
	})()
	running, tty, err := c.execAnswer(ctx, conn)
	if err != nil {
		return runtime.Exit{}, err
	}
	if running.Exit != nil || x.TTY != (tty != nil) {
		return runtime.Exit{}, fmt.Errorf("keeper: %w: a command runs without its terminal", ErrProtocol)
	}
	p.start(tty)
	ended, _, err := c.execAnswer(ctx, conn)
	if err != nil {
		return runtime.Exit{}, err
	}
	return value(ended.Exit), p.finish()
}

func (c *Client) execAnswer(ctx context.Context, conn *net.UnixConn) (response, *os.File, error) {
	var r response
	f, err := receiveFile(conn, &r)
	switch {
	case err == nil && r.Error == "":
		if f == nil {
			return r, nil, nil
		}
		tty, err := dupFile(f)
		return r, tty, errors.Join(err, f.Close())
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil:
		err = fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, err)
	default:
		err = r.err()
	}
	if f != nil {
		_ = f.Close()
	}
	return r, nil, err
}

// exec runs a command for a brain, as long as that listens.
func (s *server) exec(ctx context.Context, c *net.UnixConn, q request, received []*os.File) {
	var files [3]*os.File
	if q.Exec == nil || !deal(files[:], q.Exec.Files[:], received) {
		s.answer(c, failure(fmt.Errorf("%w: exec with %d files", ErrProtocol, len(received))))
		return
	}
	keeper := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.wg.Go(func() {
		defer cancel()
		_, _ = c.Read(make([]byte, 1)) // ends when the brain has enough, or we close the connection
	})
	exit, err := s.e.commands.run(ctx, *q.Exec, files, func(tty *os.File) error {
		closeFiles(received) // the command has its own now
		return begun(c, response{Proto: protoVersion}, tty)
	})
	if err != nil {
		s.fail(keeper, c, err)
		return
	}
	s.answer(c, response{Proto: protoVersion, Exit: &exit})
}
