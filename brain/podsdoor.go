package brain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ledge/api/httpd"
	"ledge/brain/place"
	"ledge/network/plan"
)

// podsDoor is where pods find an API that --listen keeps to this machine: the board's own address in their network, and the same port.
// Clients in pods are written for an API that they reach; like everybody they need a token. A board whose control plane gives networks
// has none: it leads others, who need an address of it anyway.
type podsDoor struct {
	net.Listener
	pods netip.Prefix
	own  func() ([]netip.Addr, error) // of this machine

	known  []netip.Addr // what it said
	looked time.Time
}

const (
	oldAddresses = time.Minute // after which this machine's addresses are asked for again
	lookAgain    = time.Second // for somebody who has none of them: strangers keep nobody waiting
)

// podsDoorAt is where that door is in a network of pods; invalid: there is none.
func (p *plane) podsDoorAt(pods netip.Prefix) netip.AddrPort {
	at := p.listenAddress()
	if !at.IsValid() || !at.Addr().IsLoopback() || p.b.Bridge == place.NoBridge || len(p.b.CIDRs.Clusters) > 0 || !pods.Addr().Is4() {
		return netip.AddrPort{}
	}
	book, err := plan.NewBook(pods, netip.Prefix{})
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(book.Gateway(), at.Port())
}

// openPodsDoor opens it in the network that pods have now.
func (p *plane) openPodsDoor(s *httpd.Server, conf *tls.Config) error {
	if p.podsAt.IsValid() {
		pods, _ := p.b.given.CIDRs()
		l, err := listenAhead(context.Background(), p.podsAt)
		if err != nil {
			slog.Warn("pods do not find the API by its service", "err", err)
			p.podsAt = netip.AddrPort{}
		} else if err := p.openDoor(s, &podsDoor{Listener: l, pods: pods, own: p.ownAddresses}, conf); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	p.client.SetEndpoint(p.endpoint())
	return nil
}

func (p *plane) ownAddresses() ([]netip.Addr, error) { return p.b.rims.Host.Addresses() }

// listenAhead listens at an address that the board may only get later.
func listenAhead(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		return errors.Join(rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) }), err)
	}}
	l, err := lc.Listen(ctx, "tcp4", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen for pods at %s: %w", at, err)
	}
	return l, nil
}

// Accept lets in pods of this board and its own programs. A stranger on the local network can send packets to the board's address among
// its pods, too.
func (d *podsDoor) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil || d.lets(conn.RemoteAddr()) {
			return conn, err
		}
		_ = conn.Close()
	}
}

func (d *podsDoor) lets(from net.Addr) bool {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return false
	}
	if d.pods.Contains(at.Addr()) {
		return true
	}
	if age := time.Since(d.looked); age >= oldAddresses || age >= lookAgain && !slices.Contains(d.known, at.Addr()) {
		d.known, _ = d.own() // none: nobody is let in by them
		d.looked = time.Now()
	}
	return slices.Contains(d.known, at.Addr())
}
