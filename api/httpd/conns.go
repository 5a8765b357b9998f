package httpd

import (
	"context"
	"net"
	"slices"
	"sync"

	"ledge/api"
)

// Connections that may be open at once on a TLS listener. Who connects is not known at first, and many boards may stand
// behind one address: until a connection's first good request it counts for its address, from then on for who made it.
const (
	maxConns        = 512 // in all
	maxNewConns     = 256 // whose peers are not known yet
	maxConnsPerHost = 128 // of these, from one address
	maxConnsPerUser = 128 // of one peer that is known
)

// capped turns away connections above the caps.
type capped struct {
	net.Listener

	mu    sync.Mutex
	all   int
	fresh int            // not known yet
	hosts map[string]int // of these, by address
	users map[string]int // of the others, by name

	boards map[string]map[*cappedConn]bool // those on which a board or one of its pods has shown itself
}

func newCapped(l net.Listener) *capped {
	return &capped{Listener: l, hosts: map[string]int{}, users: map[string]int{}, boards: map[string]map[*cappedConn]bool{}}
}

// CloseBoard ends the connections of a board, and those of its pods by the tokens that were made for them: what is being answered
// there, watches, logs and tunnels. Whether they may come again is not its business.
func (l *Listener) CloseBoard(node string) {
	c, ok := l.Listener.(*capped)
	if !ok {
		return
	}
	var conns []*cappedConn
	c.mu.Lock()
	for conn := range c.boards[node] {
		conns = append(conns, conn)
	}
	c.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
}

// boardOf is the board that a user is, or that the user's token was made on; empty: none.
func boardOf(u api.User) string {
	if name, ok := nodeName(u); ok {
		return name
	}
	if on := u.Extra[nodeNameExtra]; len(on) == 1 {
		return on[0]
	}
	return ""
}

// nodeNameExtra says in a user on which node the pod is that its token was made for.
const nodeNameExtra = "authentication.kubernetes.io/node-name"

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
			return &cappedConn{Conn: conn, of: l, host: host}, nil
		}
		conn.Close()
	}
}

func (l *capped) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConns || l.fresh >= maxNewConns || l.hosts[host] >= maxConnsPerHost {
		return false
	}
	l.all++
	l.fresh++
	l.hosts[host]++
	return true
}

// leaveHost and leaveUser: the caller holds mu.
func (l *capped) leaveHost(host string) {
	l.fresh--
	if l.hosts[host]--; l.hosts[host] == 0 {
		delete(l.hosts, host)
	}
}

func (l *capped) leaveUser(user string) {
	if l.users[user]--; l.users[user] == 0 {
		delete(l.users, user)
	}
}

// cappedConn is counted for its address, or for its user once that is known.
type cappedConn struct {
	net.Conn
	of         *capped
	host, user string
	boards     []string // that have shown themselves on it: one, or none
	closed     bool
}

// known says whose a connection is. fresh: it was not known before; !ok: there are too many of that name.
func (c *cappedConn) known(u api.User) (fresh, ok bool) {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.closed:
		return false, true
	case c.user == "" && l.users[u.Name] >= maxConnsPerUser:
		return false, false
	case c.user == "":
		l.leaveHost(c.host)
		c.user = u.Name
		l.users[u.Name]++
		fresh = true
	}
	if board := boardOf(u); board != "" && !slices.Contains(c.boards, board) {
		c.boards = append(c.boards, board)
		if l.boards[board] == nil {
			l.boards[board] = map[*cappedConn]bool{}
		}
		l.boards[board][c] = true
		fresh = true
	}
	return fresh, true
}

// NetConn is the connection underneath.
func (c *cappedConn) NetConn() net.Conn { return c.Conn }

func (c *cappedConn) Close() error {
	c.of.mu.Lock()
	if !c.closed {
		c.closed = true
		c.of.all--
		if c.user == "" {
			c.of.leaveHost(c.host)
		} else {
			c.of.leaveUser(c.user)
		}
		for _, board := range c.boards {
			if delete(c.of.boards[board], c); len(c.of.boards[board]) == 0 {
				delete(c.of.boards, board)
			}
		}
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// connOf is the connection that brought a request; nil where connections are not counted.
func connOf(ctx context.Context) *cappedConn {
	c, _ := ctx.Value(connKey{}).(*cappedConn)
	return c
}

// Pipe is a listener inside this process, and the way to connect to it. Every peer is the given user. It works
// where time is simulated.
func Pipe(u api.User) (l *Listener, dial func(ctx context.Context) (net.Conn, error)) {
	p := &pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return &Listener{Listener: p, caller: func(net.Conn) (api.User, error) { return u, nil }}, p.dial
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
