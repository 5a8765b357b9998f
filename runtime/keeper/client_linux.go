package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// ClientConfig configures the brain's side.
type ClientConfig struct {
	RunDir string
	Log    *slog.Logger // nil: slog.Default

	// Command starts a keeper when none answers, program first; empty: somebody else does (systemd). It is started
	// in a session of its own and outlives this process.
	Command []string
	// Env of that keeper; nil: this process's without what systemd told this process alone.
	Env []string
	// Output gets its standard output and error; nil: RunDir/keeper.log.
	Output *os.File
}

// Client is the Engine that talks to a keeper. It has no connection to lose: each call makes its own, and says
// ErrUnavailable when there is no keeper just now.
type Client struct {
	cfg  ClientConfig
	log  *slog.Logger
	lent loans
}

var _ runtime.Engine = (*Client)(nil)

// New makes a client. Its methods work at once; Run should be running while containers do.
func New(cfg ClientConfig) *Client {
	c := &Client{cfg: cfg, log: cfg.Log}
	if c.log == nil {
		c.log = slog.Default()
	}
	return c
}

// dial connects and sends a request.
func (c *Client) dial(ctx context.Context, q request, files ...*os.File) (*net.UnixConn, error) {
	unavailable := func(err error) error { return fmt.Errorf("keeper: %w: %w", runtime.ErrUnavailable, err) }
	addr, done, err := socketAddr(c.cfg.RunDir)
	if err != nil {
		return nil, unavailable(err)
	}
	defer done()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", addr)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EAGAIN):
		var oe *net.OpError
		if errors.As(err, &oe) {
			err = oe.Err // its own words name a descriptor for the directory
		}
		return nil, fmt.Errorf("keeper: %w: nobody answers at %s: %w%s", runtime.ErrUnavailable, filepath.Join(c.cfg.RunDir, socketName), err,
			c.remedy())
	case err != nil:
		return nil, fmt.Errorf("keeper: %w", err)
	}
	uc := conn.(*net.UnixConn)
	q.Proto = protoVersion
	if err := send(uc, q, files...); err != nil {
		_ = uc.Close()
		return nil, unavailable(err)
	}
	return uc, nil
}

// call makes one request.
func (c *Client) call(ctx context.Context, q request) (response, error) {
	conn, err := c.dial(ctx, q)
	if err != nil {
		return response{}, err
	}
	defer conn.Close()
	number := numberOf(conn) // while the connection is open
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var r response
	if err := receive(conn, &r, false); err != nil {
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return response{}, fmt.Errorf("keeper: %w: its process%s does not answer: %w", runtime.ErrUnavailable, number, ctx.Err())
		case ctx.Err() != nil:
			return response{}, ctx.Err()
		}
		return response{}, fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, err)
	}
	return r, r.err()
}

// remedy says who has to start a keeper where this process does not.
func (c *Client) remedy() string {
	if len(c.cfg.Command) > 0 {
		return ""
	}
	return "; the service that runs `ledge keeper` has to be started"
}

// numberOf is that of the process at the other end, if it can be told.
func numberOf(conn *net.UnixConn) string {
	cred, err := peerOf(conn)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" %d", cred.Pid)
}

// callToEnd makes a request that the keeper gives up when ctx ends, and waits for it to say so: until then something may be left.
func (c *Client) callToEnd(ctx context.Context, q request) (response, error) {
	conn, err := c.dial(ctx, q)
	if err != nil {
		return response{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() {
		_ = conn.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(diesWithin + time.Second))
	})()
	var r response
	if err := receive(conn, &r, false); err != nil {
		return response{}, fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, errors.Join(err, ctx.Err()))
	}
	if err := r.err(); err != nil && ctx.Err() != nil {
		return response{}, fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return r, r.err()
}

// Info implements runtime.Engine.
func (c *Client) Info(ctx context.Context) (runtime.Info, error) {
	r, err := c.call(ctx, request{Op: opInfo})
	return value(r.Info), err
}

// EnsurePod implements runtime.Engine.
func (c *Client) EnsurePod(ctx context.Context, p runtime.Pod) (runtime.PodStatus, error) {
	r, err := c.callToEnd(ctx, request{Op: opEnsurePod, Pod: &p})
	return value(r.Pod), err
}

// RemovePod implements runtime.Engine.
func (c *Client) RemovePod(ctx context.Context, uid string) error {
	_, err := c.callToEnd(ctx, request{Op: opRemovePod, ID: uid})
	return err
}

// Start implements runtime.Engine.
func (c *Client) Start(ctx context.Context, con runtime.Container) (runtime.Status, error) {
	r, err := c.callToEnd(ctx, request{Op: opStart, Container: &con})
	return value(r.Status), err
}

// Signal implements runtime.Engine.
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	_, err := c.call(ctx, request{Op: opSignal, ID: id, Signal: int(sig)})
	return err
}

// Remove implements runtime.Engine.
func (c *Client) Remove(ctx context.Context, id string) error {
	_, err := c.callToEnd(ctx, request{Op: opRemove, ID: id})
	return err
}

// Limit implements runtime.Limiter.
func (c *Client) Limit(ctx context.Context, at runtime.Place, r runtime.Resources) error {
	_, err := c.call(ctx, request{Op: opLimit, Place: &at, Resources: &r})
	return err
}

// List implements runtime.Engine.
func (c *Client) List(ctx context.Context) (runtime.State, error) {
	r, err := c.call(ctx, request{Op: opList})
	return value(r.State), err
}

// Watch implements runtime.Engine. It ends with ErrUnavailable when the keeper goes away; the caller watches again.
func (c *Client) Watch(ctx context.Context, fn func(runtime.Status)) error {
	conn, err := c.dial(ctx, request{Op: opWatch})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for {
		var r response
		err := receive(conn, &r, false)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, err)
		case r.Error != "":
			return r.err()
		case r.Status != nil:
			fn(*r.Status)
		}
	}
}

// Shutdown ends the keeper; its containers go on.
func (c *Client) Shutdown(ctx context.Context) error { return c.end(ctx, opShutdown) }

// Reset kills and removes every pod and container, and then ends the keeper.
func (c *Client) Reset(ctx context.Context) error { return c.end(ctx, opReset) }

// end makes a request after which the keeper's process ends, and waits for that.
func (c *Client) end(ctx context.Context, op string) error {
	conn, err := c.dial(ctx, request{Op: op})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	p, perr := peerProcess(conn)
	if perr == nil {
		defer p.fd.Close()
	}
	var r response
	if err := receive(conn, &r, false); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, err)
	}
	if err := r.err(); err != nil || perr != nil {
		return err
	}
	defer context.AfterFunc(ctx, p.stop)()
	if p.ended() != nil {
		return ctx.Err()
	}
	return nil
}

// peerProcess takes hold of the process that listens at the other end.
func peerProcess(conn *net.UnixConn) (*process, error) {
	cred, err := peerOf(conn)
	if err != nil {
		return nil, err
	}
	return openProcess(int(cred.Pid), 0)
}

func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var gerr error
	err = rc.Control(func(fd uintptr) { cred, gerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, gerr)
}

// Process says which process the keeper is, and what its engine says of itself.
func (c *Client) Process(ctx context.Context) (pid int, info runtime.Info, err error) {
	conn, err := c.dial(ctx, request{Op: opInfo})
	if err != nil {
		return 0, runtime.Info{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	cred, err := peerOf(conn)
	if err != nil {
		return 0, runtime.Info{}, err
	}
	var r response
	if err := receive(conn, &r, false); err != nil {
		return 0, runtime.Info{}, fmt.Errorf("keeper: %w: it hung up: %w", runtime.ErrUnavailable, err)
	}
	return int(cred.Pid), value(r.Info), r.err()
}

// WaitReady waits until a keeper answers.
func (c *Client) WaitReady(ctx context.Context) (runtime.Info, error) {
	for {
		info, err := c.Info(ctx)
		if err == nil || !errors.Is(err, runtime.ErrUnavailable) {
			return info, err
		}
		if serr := sleep(ctx, 10*time.Millisecond); serr != nil {
			return runtime.Info{}, errors.Join(serr, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
