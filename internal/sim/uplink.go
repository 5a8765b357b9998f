package sim

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// uplink is the agent's way to the API. It can be cut.
type uplink struct {
	dial func(context.Context) (net.Conn, error)

	mu    sync.Mutex
	cut   bool
	slow  time.Duration // that each piece takes either way
	conns map[net.Conn]bool
}

func newUplink() *uplink { return &uplink{conns: map[net.Conn]bool{}} }

var errCut = errors.New("the uplink is cut")

func (u *uplink) connect(ctx context.Context) (net.Conn, error) {
	u.mu.Lock()
	cut := u.cut
	u.mu.Unlock()
	if cut {
		return nil, errCut
	}
	c, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conns[c] = true
	return &linked{Conn: c, up: u}, nil
}

// set cuts the uplink, with every connection on it, or mends it.
func (u *uplink) set(cut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cut = cut
	if cut {
		for c := range u.conns {
			c.Close()
		}
		clear(u.conns)
	}
}

func (u *uplink) isCut() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.cut
}

// lag makes everything on the uplink take that long.
func (u *uplink) lag(slow time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.slow = slow
}

type linked struct {
	net.Conn
	up *uplink
}

func (l *linked) delay() {
	l.up.mu.Lock()
	slow := l.up.slow
	l.up.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
}

func (l *linked) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.delay()
	return n, err
}

func (l *linked) Write(p []byte) (int, error) {
	l.delay()
	return l.Conn.Write(p)
}

func (l *linked) Close() error {
	l.up.mu.Lock()
	delete(l.up.conns, l.Conn)
	l.up.mu.Unlock()
	return l.Conn.Close()
}
