package mdns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/grumble"
)

// Config of Serve.
type Config struct {
	Links  func() ([]Link, error)
	Wanted func() Wanted
	// Changed says that one of the two may be another.
	Changed <-chan struct{}
	// Told is called with the labels that the board has, its own first, when they are others, and once there are some. May be nil.
	Told func(labels []string)
}

const (
	setEvery   = time.Second // at most
	retryRead  = 100 * time.Millisecond
	retryLinks = 10 * time.Second
)

// server joins a Responder with sockets.
type server struct {
	cfg     Config
	sockets []*socket
	wake    chan struct{} // capacity 1: something is due that was not
	deaf    grumble.Once

	mu     sync.Mutex
	board  Responder
	labels []string // as they were told
}

// Serve has the board found until ctx ends, and says goodbye. It fails if the port cannot be had.
func Serve(ctx context.Context, cfg Config) error {
	s := &server{cfg: cfg, wake: make(chan struct{}, 1)}
	var errs []error
	for _, v6 := range []bool{false, true} {
		c, err := listen(ctx, v6, Port)
		if err != nil {
			err = fmt.Errorf("listen at UDP port %d: %w", Port, err)
			if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
				errs = append(errs, err) // a kernel may know one family only
				continue
			}
			for _, c := range s.sockets {
				_ = c.Close()
			}
			return err
		}
		s.sockets = append(s.sockets, c)
	}
	if len(s.sockets) == 0 {
		return errors.Join(errs...)
	}
	reading, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, c := range s.sockets {
		all.Go(func() { s.listen(reading, c) })
	}
	s.keep(ctx)
	s.mu.Lock()
	s.send(s.board.Goodbye())
	s.mu.Unlock()
	stop()
	for _, c := range s.sockets {
		_ = c.Close()
	}
	all.Wait()
	return nil
}

// keep does what is due.
func (s *server) keep(ctx context.Context) {
	set := time.Now() // when to look at what is wanted; zero: when it changed
	var last time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		s.mu.Lock()
		if !set.IsZero() && !set.After(now) {
			set, last = time.Time{}, now
			if !s.set(now) {
				set = now.Add(retryLinks)
			}
		}
		s.send(s.board.Tick(now))
		s.tell()
		next := s.board.Next()
		s.mu.Unlock()
		if next.IsZero() || !set.IsZero() && set.Before(next) {
			next = set
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.wake:
		case <-s.cfg.Changed:
			set = last.Add(setEvery)
		}
	}
}

// set has the board found as it is wanted now; false: not on all links.
func (s *server) set(now time.Time) bool {
	links, err := s.cfg.Links()
	if err != nil {
		s.deaf.About("the interfaces of this board are not known; its name stays as it was", err)
		return false
	}
	var errs []error
	for _, c := range s.sockets {
		errs = append(errs, c.join(links))
	}
	s.send(s.board.Set(now, s.cfg.Wanted(), links))
	err = errors.Join(errs...)
	s.deaf.About("the board does not hear who looks for it on all of its networks", err)
	return err == nil
}

// tell says which labels the board has.
func (s *server) tell() {
	if !s.board.Held() || s.cfg.Told == nil {
		return
	}
	if now := s.board.Labels(); !slices.Equal(now, s.labels) {
		s.labels = now
		s.cfg.Told(now)
	}
}

func (s *server) send(list []Out) {
	for _, o := range list {
		for _, c := range s.sockets {
			if c.v6 != o.Way.V6 {
				continue
			}
			if err := c.write(o); err != nil { // a cable that was pulled; it is said again when it is back
				slog.Debug("a packet of mDNS was not sent", "interface", o.Way.Index, "err", err)
			}
		}
	}
}

// listen hears what others say.
func (s *server) listen(ctx context.Context, c *socket) {
	buf := make([]byte, mostMessage+1)
	for {
		msg, way, from, toAll, err := c.read(buf)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			slog.Debug("a packet of mDNS could not be read", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(retryRead):
			}
			continue
		}
		s.mu.Lock()
		before := s.board.Next()
		s.send(s.board.Hear(time.Now(), way, from, toAll, msg))
		after := s.board.Next()
		s.mu.Unlock()
		if !after.IsZero() && !after.Equal(before) {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	}
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
