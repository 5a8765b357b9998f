package keeper

import (
	"context"
	"fmt"
	"net"
	"os"

	"ledge/runtime"
)

var _ runtime.Attacher = (*Client)(nil)

// Attach implements runtime.Attacher. Over the connection we say, by a byte, that the input has ended, and by its end
// that we have enough.
func (c *Client) Attach(ctx context.Context, x runtime.Attach) error {
	p, err := plumb(runtime.Exec{Stdout: x.Stdout, Stderr: x.Stderr, Resize: x.Resize})
	if err != nil {
		return err
	}
	defer p.close()
	p.x.Stdin = x.Stdin
	spec := attachSpec{Container: x.Container, Stdin: x.Stdin != nil, Files: [2]bool{x.Stdout != nil, x.Stderr != nil}}
	conn, err := c.dial(ctx, request{Op: opAttach, Attach: &spec}, p.child[1:]...)
	if err != nil {
		return err
	}
	defer conn.Close()
	p.closeChild()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	answer := func() (response, *os.File, error) {
		r, f, err := c.execAnswer(ctx, conn)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return r, f, err
	}
	joined, in, err := answer()
	if err != nil {
		return err
	}
	if joined.TTY && in == nil {
		return fmt.Errorf("keeper: %w: a terminal did not come along", ErrProtocol)
	}
	p.join(in, joined.TTY, func() { _, _ = conn.Write([]byte{0}) })
	p.onError(cancel)
	if _, _, err := answer(); err != nil {
		return err
	}
	return p.drain()
}

// attach has a brain join a container's streams, as long as that listens.
func (s *server) attach(ctx context.Context, c *net.UnixConn, q request, received []*os.File) {
	var files [2]*os.File
	if q.Attach == nil || !deal(files[:], q.Attach.Files[:], received) {
		s.answer(c, failure(fmt.Errorf("%w: attach with %d files", ErrProtocol, len(received))))
		return
	}
	keeper := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	s.wg.Go(func() {
		defer cancel()
		b := make([]byte, 1)
		if n, _ := c.Read(b); n == 1 {
			close(ended)
			_, _ = c.Read(b)
		}
	})
	err := s.e.attach(ctx, *q.Attach, files, ended, func(in *os.File, tty bool) error {
		closeFiles(received) // the streams have copies
		return begun(c, response{Proto: protoVersion, TTY: tty}, in)
	})
	if err != nil {
		s.fail(keeper, c, err)
		return
	}
	s.answer(c, response{Proto: protoVersion})
}
