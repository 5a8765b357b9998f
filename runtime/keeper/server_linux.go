package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

const (
	socketName = "keeper.sock"
	maxConns   = 256
	// A caller that does not send its request, or does not take the answer, is let go.
	requestWithin = 10 * time.Second
	answerWithin  = 10 * time.Second
)

// server answers on the socket.
type server struct {
	e     *Engine
	log   *slog.Logger
	trust func(net.Conn) error // nil: every root
	stop  func()               // ends the keeper
	reset func()               // remembers that everything is to be removed at the end
	slots chan struct{}
	lent  loans // by the brain
	wg    sync.WaitGroup
}

// socketAddr gives an address that is short enough for a socket, whatever the directory: 108 bytes is all there is.
func socketAddr(runDir string) (addr string, done func(), err error) {
	dir, err := os.OpenFile(runDir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName), func() { _ = dir.Close() }, nil
}

// listen makes the socket, for root alone. The lock on the run directory says that an old one is nobody's.
func listen(runDir string) (*net.UnixListener, error) {
	addr, done, err := socketAddr(runDir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(addr); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would use the address, which is gone by then
	// The directory is 0700, so nobody could have come in between.
	if err := os.Chmod(filepath.Join(runDir, socketName), 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serve answers until ctx ends.
func (s *server) serve(ctx context.Context, l *net.UnixListener) error {
	defer func() {
		if !within(longest, &s.wg) { // by then the engine has given up too
			s.log.Error("the keeper ends before it has answered everybody")
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return nil
		}
		if err != nil {
			// Out of descriptors, or a caller that hung up while waiting.
			s.log.Warn("a connection could not be accepted", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case s.slots <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		s.wg.Go(func() {
			defer func() { <-s.slots }()
			defer c.Close()
			s.handle(ctx, c)
		})
	}
}

// peerIsRoot asks the kernel who is at the other end. Whoever talks to the keeper can run anything as root.
func peerIsRoot(c *net.UnixConn) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	_ = rc.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && cred.Uid == 0
	})
	return ok
}

func (s *server) handle(ctx context.Context, c *net.UnixConn) {
	if !peerIsRoot(c) {
		s.log.Warn("somebody who is not root was turned away")
		return
	}
	if s.trust != nil {
		if err := s.trust(c); err != nil {
			s.log.Warn("somebody who is root, but not of this board, was turned away", "err", err)
			return
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(requestWithin))
	var q request
	files, err := receiveFiles(c, &q, true)
	defer func() { closeFiles(files) }()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			s.answer(c, failure(fmt.Errorf("read the request: %w: %w", ErrProtocol, err)))
		}
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if q.Proto < oldestProto || q.Proto > protoVersion {
		s.answer(c, failure(fmt.Errorf("%w: brain %d, keeper %d to %d", ErrProtocol, q.Proto, oldestProto, protoVersion)))
		return
	}
	switch q.Op {
	case opWatch:
		s.watch(ctx, c)
	case opPark:
		s.park(ctx, c)
	case opExec:
		s.exec(ctx, c, q, files)
	case opAttach:
		s.attach(ctx, c, q, files)
	case opLend:
		s.done(c, s.lent.put(q.ID, files))
	case opLent:
		s.giveLent(c, q.ID)
	case opShutdown:
		s.answer(c, response{Proto: protoVersion})
		s.stop()
	case opReset:
		err := s.e.reset(ctx)
		if err != nil {
			s.answer(c, failure(err))
			return
		}
		s.reset()
		s.answer(c, response{Proto: protoVersion})
		s.stop()
	default:
		ctx, done := s.asked(ctx, c, q.Op)
		r, err := s.call(ctx, q)
		done()
		if err != nil {
			r = failure(err)
		}
		r.Proto = protoVersion
		s.answer(c, r)
	}
}

// done answers that something was done, or why not.
func (s *server) done(c *net.UnixConn, err error) {
	r := response{Proto: protoVersion}
	if err != nil {
		r = failure(err)
	}
	s.answer(c, r)
}

func (s *server) giveLent(c *net.UnixConn, name string) {
	files, err := s.lent.get(name)
	if err != nil {
		s.answer(c, failure(err))
		return
	}
	defer closeFiles(files)
	_ = c.SetWriteDeadline(time.Now().Add(answerWithin))
	_ = send(c, response{Proto: protoVersion}, files...) // the caller went away: it will ask again
}

func (s *server) answer(c *net.UnixConn, r response) {
	_ = c.SetWriteDeadline(time.Now().Add(answerWithin))
	_ = send(c, r) // the caller went away: it will ask again
}

// fail answers that an exec or an attach went wrong; ctx is the keeper's own.
func (s *server) fail(ctx context.Context, c *net.UnixConn, err error) {
	if ctx.Err() != nil {
		err = errors.Join(runtime.ErrUnavailable, err)
	}
	s.answer(c, failure(err))
}

// deal gives each place that wants a file the next one received, and reports whether none is left over.
func deal(files []*os.File, wanted []bool, received []*os.File) bool {
	for i := range files {
		if wanted[i] && len(received) > 0 {
			files[i], received = received[0], received[1:]
		}
	}
	return len(received) == 0
}

// begun says that an exec or an attach runs, and hands over its file, if it has one.
func begun(c *net.UnixConn, r response, f *os.File) error {
	_ = c.SetWriteDeadline(time.Now().Add(answerWithin))
	err := send(c, r, f)
	if f != nil {
		_ = f.Close()
	}
	return err
}

// asked is the context of one call. What makes and removes things is carried to its end while the caller waits, also when the
// keeper is to end: Run sees to that.
func (s *server) asked(ctx context.Context, c *net.UnixConn, op string) (context.Context, context.CancelFunc) {
	switch op {
	case opEnsurePod, opStart, opRemove, opRemovePod:
	default:
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.wg.Go(func() {
		defer cancel()
		_, _ = c.Read(make([]byte, 1)) // ends when the caller has enough, or we close the connection
	})
	return ctx, cancel
}

func (s *server) call(ctx context.Context, q request) (r response, err error) {
	switch {
	case q.Op == opInfo:
		var info runtime.Info
		info, err = s.e.Info(ctx)
		r.Info = &info
	case q.Op == opList:
		var st runtime.State
		st, err = s.e.List(ctx)
		r.State = &st
	case q.Op == opEnsurePod && q.Pod != nil:
		var st runtime.PodStatus
		st, err = s.e.EnsurePod(ctx, *q.Pod)
		r.Pod = &st
	case q.Op == opStart && q.Container != nil:
		var st runtime.Status
		st, err = s.e.Start(ctx, *q.Container)
		r.Status = &st
	case q.Op == opLimit && q.Place != nil && q.Resources != nil:
		err = s.e.Limit(ctx, *q.Place, *q.Resources)
	case q.Op == opRemovePod:
		err = s.e.RemovePod(ctx, q.ID)
	case q.Op == opSignal:
		err = s.e.Signal(ctx, q.ID, syscall.Signal(q.Signal))
	case q.Op == opRemove:
		err = s.e.Remove(ctx, q.ID)
	default:
		err = fmt.Errorf("%w: operation %q", ErrProtocol, q.Op)
	}
	return r, err
}

// hangup ends ctx when the caller does.
func hangup(ctx context.Context, c *net.UnixConn, wg *sync.WaitGroup) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { _ = c.Close() })
	wg.Go(func() {
		defer cancel()
		_, _ = c.Read(make([]byte, 1))
	})
	return ctx, cancel
}

func (s *server) watch(ctx context.Context, c *net.UnixConn) {
	ctx, cancel := hangup(ctx, c, &s.wg)
	defer cancel()
	// An empty answer says that the watch is on.
	s.answer(c, response{Proto: protoVersion})
	_ = s.e.Watch(ctx, func(st runtime.Status) {
		_ = c.SetWriteDeadline(time.Now().Add(answerWithin))
		if send(c, response{Proto: protoVersion, Status: &st}) != nil {
			cancel()
		}
	})
}

// park has a brain hold the files of containers. What it gives back belongs to containers that have been adopted: a
// terminal that came earlier would find nobody, and the brain would be told to let it go too.
func (s *server) park(ctx context.Context, c *net.UnixConn) {
	select {
	case <-s.e.adopted:
	case <-ctx.Done():
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(requestWithin))
	for {
		var fr parkFrame
		f, err := receiveFile(c, &fr)
		if err != nil {
			return
		}
		if f != nil {
			s.e.takeBack(fr.Hold, f)
			_ = f.Close()
		}
		if fr.Synced {
			break
		}
	}
	_ = c.SetReadDeadline(time.Time{})
	ctx, cancel := hangup(ctx, c, &s.wg)
	defer cancel()
	h := s.e.lot.join()
	defer s.e.lot.quit(h)
	for synced := false; ; {
		if !sendChanges(c, s.e.lot.take(h)) {
			return
		}
		if !synced {
			if send(c, parkFrame{Synced: true}) != nil {
				return
			}
			synced = true
		}
		select {
		case <-h.wake:
		case <-ctx.Done():
			return
		}
	}
}

func sendChanges(c *net.UnixConn, changes map[string]*os.File) bool {
	ok := true
	_ = c.SetWriteDeadline(time.Now().Add(answerWithin))
	for name, f := range changes {
		switch {
		case !ok:
		case f == nil:
			ok = send(c, parkFrame{Drop: name}) == nil
		default:
			ok = send(c, parkFrame{Hold: name}, f) == nil
		}
		if f != nil {
			_ = f.Close()
		}
	}
	return ok
}
