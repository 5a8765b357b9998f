package httpd

import (
	"context"
	"net"
	"sync"

	"ledge/api"
)

// Connections that may be open at once on a TLS listener, in all and from one address. The peers are not known
// yet when they connect, so this is all that can be counted.
const (
	maxConns        = 512
	maxConnsPerHost = 128
)

// capped turns away connections above the caps.
type capped struct {
	net.Listener

	mu    sync.Mutex
	all   int
	hosts map[string]int
}

func newCapped(l net.Listener) *capped { return &capped{Listener: l, hosts: map[string]int{}} }

func (l *capped) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err != nil {
			host = conn.RemoteAddr().String()
		}
		if l.enter(host) {
			return &cappedConn{Conn: conn, leave: func() { l.leave(host) }}, nil
		}
		conn.Close()
	}
}

func (l *capped) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConns || l.hosts[host] >= maxConnsPerHost {
		return false
	}
	l.all++
	l.hosts[host]++
	return true
}

func (l *capped) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.hosts[host]--; l.hosts[host] == 0 {
		delete(l.hosts, host)
	}
}

type cappedConn struct {
	net.Conn
	once  sync.Once
	leave func()
}

func (c *cappedConn) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}

// Pipe is a listener inside this process, and the way to connect to it. Every peer is the given user. It works
// where time is simulated.
func Pipe(u api.User) (l *Listener, dial func(ctx context.Context) (net.Conn, error)) {
	p := &pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return &Listener{Listener: p, caller: func(net.Conn) (api.User, bool) { return u, true }}, p.dial
}

type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func (p *pipe) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.close()
	return nil
}

func (p *pipe) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
