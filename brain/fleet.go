package brain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// fleet is the ways from a control plane to the ports of the boards that have joined it.
type fleet struct {
	client api.Client
	tls    func(node string) *tls.Config

	mu      sync.Mutex
	open    map[string]map[*boardConn]bool // by board
	waiters map[string]*waiter             // likewise: those who wait for calls
	calls   map[string]*call               // by id: those that wait for an answer
}

const (
	boardStreams  = 64                     // at once to one board
	boardDialTime = 6 * time.Second        // for one address
	headStart     = 300 * time.Millisecond // of the direct way before the board is called
	boardSilence  = 30 * time.Second       // after which what is sent to a board and not acknowledged ends the connection
)

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: boardSilence / 3, Interval: boardSilence / 6, Count: 4}

// Dial connects to a board's port.
func (b *fleet) Dial(ctx context.Context, name string) (net.Conn, error) {
	node, err := api.Get[*corev1.Node](ctx, b.client, api.Nodes, "", name)
	if err != nil {
		return nil, err
	}
	out := &boardConn{of: b, node: name}
	if !b.enter(out) {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("too many streams to board %s at once, please close some", name), 5)
	}
	conn, err := b.reach(ctx, node)
	if err == nil && !out.begin(conn) {
		err = errors.Join(errors.New("it was lost just now"), conn.Close())
	}
	if err != nil {
		b.leave(out)
		return nil, err
	}
	return out, nil
}

// way is how a try to reach a board went.
type way struct {
	conn net.Conn
	err  error
}

// reach connects to a board's port, or has the board connect to here if that is not quick; the first that works is taken.
func (b *fleet) reach(ctx context.Context, node *corev1.Node) (net.Conn, error) {
	l := b.waiterOf(node.Name)
	if l == nil {
		return b.direct(ctx, node)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	ways := make(chan way, 2)
	try := func(f func() (net.Conn, error)) {
		conn, err := f()
		ways <- way{conn, err}
	}
	go try(func() (net.Conn, error) { return b.direct(ctx, node) })
	var errs []error
	pending, called := 1, false
	late := time.After(headStart)
	for pending > 0 {
		select {
		case w := <-ways:
			pending--
			if w.err == nil {
				go closeLate(ways, pending)
				return w.conn, nil
			}
			errs = append(errs, w.err)
		case <-late:
		}
		if !called {
			pending, called = pending+1, true
			go try(func() (net.Conn, error) { return b.call(ctx, node.Name, l) })
		}
	}
	return nil, errors.Join(errs...)
}

// closeLate lets go of what comes after the first.
func closeLate(ways <-chan way, n int) {
	for range n {
		if w := <-ways; w.err == nil {
			_ = w.conn.Close()
		}
	}
}

// direct tries the addresses of a board one after the other.
func (b *fleet) direct(ctx context.Context, node *corev1.Node) (net.Conn, error) {
	addresses := boardAddresses(node)
	if len(addresses) == 0 {
		return nil, errors.New("its Node names no port to ask it at (with --port 0 a board has none, and one that has joined by --kubeconfig does not know us: join it by a token)")
	}
	var errs []error
	for _, address := range addresses {
		conn, err := b.dialOne(ctx, node.Name, address)
		if err == nil {
			return conn, nil
		}
		_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
		if _, other := errors.AsType[x509.HostnameError](err); unknown || other {
			err = fmt.Errorf("%w; a board that has joined by --kubeconfig serves Kubernetes there and does not know us: join it by a token", err)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (b *fleet) dialOne(ctx context.Context, name, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, boardDialTime)
	defer cancel()
	d := tls.Dialer{Config: b.tls(name), NetDialer: &net.Dialer{
		KeepAliveConfig: keepAlive,
		Control:         func(_, _ string, c syscall.RawConn) error { return endSilence(c) }}}
	return d.DialContext(ctx, "tcp", address)
}

// endSilence ends a connection when the other side does not acknowledge for a while: a keepalive does not, as long as there is
// something to send.
func endSilence(c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(boardSilence.Milliseconds()))
	})
	return errors.Join(cerr, err)
}

// quietEnd is endSilence for a connection that came in, with whatever is around it.
func quietEnd(conn net.Conn) error {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(endSilence(raw), tcp.SetKeepAliveConfig(keepAlive))
}

// boardAddresses are where a board's port is, as its Node says.
func boardAddresses(node *corev1.Node) (out []string) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		return nil
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				out = append(out, net.JoinHostPort(a.Address, strconv.Itoa(int(port))))
			}
		}
	}
	return out
}

// look ends the streams of boards that are gone: deleted, or not heard of for so long that nobody knows what they do.
func (b *fleet) look(nodes []*corev1.Node) {
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.Name] = !unheard(n)
	}
	b.end(func(name string) bool { return !there[name] })
}

func unheard(n *corev1.Node) bool {
	ready := api.NodeCondition(n, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionUnknown
}

// end ends the streams to some boards.
func (b *fleet) end(which func(name string) bool) {
	var ended []net.Conn
	b.mu.Lock()
	for name, conns := range b.open {
		if which(name) {
			for c := range conns {
				c.ended = true
				if c.Conn != nil { // else Dial finds out
					ended = append(ended, c.Conn)
				}
			}
			delete(b.open, name)
		}
	}
	b.mu.Unlock()
	for _, c := range ended {
		_ = c.Close() // who uses it finds out
	}
}

func (b *fleet) enter(c *boardConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open[c.node]) >= boardStreams {
		return false
	}
	if b.open == nil {
		b.open = map[string]map[*boardConn]bool{}
	}
	if b.open[c.node] == nil {
		b.open[c.node] = map[*boardConn]bool{}
	}
	b.open[c.node][c] = true
	return true
}

func (b *fleet) leave(c *boardConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open[c.node], c)
	if len(b.open[c.node]) == 0 {
		delete(b.open, c.node)
	}
}

// boardConn is a stream to a board.
type boardConn struct {
	net.Conn
	of    *fleet
	node  string
	ended bool
}

// begin gives a stream its connection, unless it has been ended meanwhile.
func (c *boardConn) begin(conn net.Conn) bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.ended {
		return false
	}
	c.Conn = conn
	return true
}

func (c *boardConn) Close() error {
	c.of.leave(c)
	return c.Conn.Close()
}

// CloseWrite says that there is no more to come.
func (c *boardConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
