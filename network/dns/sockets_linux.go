package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sockets are where questions arrive: one for UDP, one that listens for TCP. They outlive who reads them: questions wait in them.
type Sockets struct{ UDP, TCP *os.File }

// Listen makes sockets at an address of this board, which it need not have yet.
func Listen(ctx context.Context, at netip.AddrPort) (Sockets, error) {
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		return errors.Join(rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) }), err)
	}}
	udp, err := lc.ListenPacket(ctx, "udp4", at.String())
	if err != nil {
		return Sockets{}, fmt.Errorf("listen for questions at %s: %w", at, err)
	}
	defer udp.Close()
	tcp, err := lc.Listen(ctx, "tcp4", udp.LocalAddr().String())
	if err != nil {
		return Sockets{}, fmt.Errorf("listen for questions at %s: %w", at, err)
	}
	defer tcp.Close()
	var s Sockets
	if s.UDP, err = udp.(*net.UDPConn).File(); err != nil {
		return Sockets{}, fmt.Errorf("keep the socket at %s: %w", at, err)
	}
	if s.TCP, err = tcp.(*net.TCPListener).File(); err != nil {
		return Sockets{}, errors.Join(fmt.Errorf("keep the socket at %s: %w", at, err), s.UDP.Close())
	}
	return s, nil
}

// Adopt takes the sockets that an earlier process had at the address; false: these are no such sockets, and are closed.
func Adopt(files []*os.File, at netip.AddrPort) (Sockets, bool) {
	if len(files) == 2 {
		s := Sockets{files[0], files[1]}
		if udp, tcp, err := s.open(); err == nil {
			here := udp.LocalAddr().(*net.UDPAddr).AddrPort() == at && tcp.Addr().(*net.TCPAddr).AddrPort() == at
			_, _ = udp.Close(), tcp.Close()
			if here {
				return s, true
			}
		}
	}
	for _, f := range files {
		_ = f.Close()
	}
	return Sockets{}, false
}

// Files are the two, in the order in which Adopt takes them.
func (s Sockets) Files() []*os.File { return []*os.File{s.UDP, s.TCP} }

// Close lets go of them.
func (s Sockets) Close() error { return errors.Join(s.UDP.Close(), s.TCP.Close()) }

// open makes copies to read from.
func (s Sockets) open() (*net.UDPConn, *net.TCPListener, error) {
	p, err := net.FilePacketConn(s.UDP)
	if err != nil {
		return nil, nil, fmt.Errorf("socket for questions: %w", err)
	}
	l, err := net.FileListener(s.TCP)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socket for questions: %w", err), p.Close())
	}
	udp, ok := p.(*net.UDPConn)
	tcp, ok2 := l.(*net.TCPListener)
	if !ok || !ok2 {
		return nil, nil, errors.Join(errors.New("sockets for questions: they are of another kind"), p.Close(), l.Close())
	}
	return udp, tcp, nil
}
