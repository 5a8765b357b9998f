package httpd

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"

	"ledge/api"
)

// Connections that may be open at once on a TLS listener. Who connects is not known at first, and many boards may stand
// behind one address: until a connection's first good request it counts for its address, from then on for who made it.
const (
	maxConns        = 224                 // of everybody, beside what is kept for each rank
	maxConnsPerHost = 128                 // that are not known yet, of one address
	maxConnsPerUser = 128                 // of one peer that is known
	maxConnsBoards  = 2 * mostBoards      // one for requests, and one for a stream now and then
	maxConnsPods    = 2 * maxConnsPerUser // of all service accounts of a namespace
)

// connTerms: who is not known yet never keeps another out. A newcomer takes the place of the one that has said nothing for the
// longest, first of the address that has the most.
func connTerms() [ranks]terms {
	return [ranks]terms{
		strangers:       {least: 128, each: maxConnsPerHost, passing: true},
		serviceAccounts: {least: 64, each: maxConnsPods},
		users:           {least: 32, each: maxConnsPerUser},
		boards:          {least: maxConnsBoards, each: maxConnsPerUser},
		administrators:  {least: 64, each: maxConnsPerUser},
	}
}

// capped keeps the connections of a listener within bounds.
type capped struct {
	net.Listener
	places *pool

	mu     sync.Mutex
	boards map[string]map[*cappedConn]bool // those on which a board or one of its pods has shown itself
}

func newCapped(l net.Listener) *capped {
	c := &capped{Listener: l, places: newPool("connections", maxConns, connTerms()), boards: map[string]map[*cappedConn]bool{}}
	c.places.takenBack = true
	return c
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
		c := &cappedConn{Conn: conn, of: l}
		if c.place, err = l.places.enter(strangerAt(conn.RemoteAddr().String()), func() { conn.Close() }); err == nil {
			return c, nil
		}
		conn.Close()
	}
}

// cappedConn is counted for its address, or for its user once that is known.
type cappedConn struct {
	net.Conn
	of     *capped
	place  *place
	isOf   bool     // it is known whose it is; of.mu guards this and the next two
	boards []string // that have shown themselves on it: one, or none
	closed bool
}

// known says whose a connection is. fresh: it was not known before; err: there are too many of them.
func (c *cappedConn) known(u api.User) (fresh bool, err error) {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return false, nil
	}
	if !c.isOf {
		if err := c.place.move(partyOf(u, "")); err != nil {
			return false, err
		}
		c.isOf, fresh = true, true
	}
	if board := boardOf(u); board != "" && !slices.Contains(c.boards, board) {
		c.boards = append(c.boards, board)
		if l.boards[board] == nil {
			l.boards[board] = map[*cappedConn]bool{}
		}
		l.boards[board][c] = true
		fresh = true
	}
	return fresh, nil
}

// party is whose it is, or its address.
func (c *cappedConn) party() party { return c.place.whose() }

// lastAnswer ends a connection with this answer if nobody has shown who he is on it: a stranger has no reason to stay.
func (c *cappedConn) lastAnswer(w http.ResponseWriter) {
	if c.party().rank == strangers {
		w.Header().Set("Connection", "close")
	}
}

// NetConn is the connection underneath.
func (c *cappedConn) NetConn() net.Conn { return c.Conn }

func (c *cappedConn) Close() error {
	c.of.mu.Lock()
	c.closed = true
	for _, board := range c.boards {
		if delete(c.of.boards[board], c); len(c.of.boards[board]) == 0 {
			delete(c.of.boards, board)
		}
	}
	c.of.mu.Unlock()
	c.place.leave()
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
