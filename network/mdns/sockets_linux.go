package mdns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// everybody is where all on a link are reached.
func everybody(v6 bool) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xff, 0x02, 15: 0xfb}), Port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{224, 0, 0, 251}), Port)
}

// socket speaks one family, on all links.
type socket struct {
	*net.UDPConn
	v6     bool
	joined []int // interfaces
}

// listen makes a socket at a port; 0 is any. Port 5353 is shared with whoever else shares it.
func listen(ctx context.Context, v6 bool, port int) (*socket, error) {
	network, host := "udp4", "0.0.0.0"
	if v6 {
		network, host = "udp6", "::"
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		return errors.Join(rc.Control(func(fd uintptr) { err = prepare(int(fd), v6, port != 0) }), err)
	}}
	c, err := lc.ListenPacket(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return &socket{UDPConn: c.(*net.UDPConn), v6: v6}, nil
}

// prepare sets what the protocol asks of a socket: it is told where a packet came from, and sends no further than the link.
func prepare(fd int, v6, shared bool) error {
	type option struct{ level, name, value int }
	const allGroups6 = 29 // IPV6_MULTICAST_ALL, since Linux 4.20
	options := []option{{unix.SOL_IP, unix.IP_PKTINFO, 1}, {unix.SOL_IP, unix.IP_MULTICAST_TTL, 255}, {unix.SOL_IP, unix.IP_TTL, 255}}
	if v6 {
		options = []option{{unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1}, {unix.SOL_IPV6, unix.IPV6_MULTICAST_HOPS, 255},
			{unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, 255}}
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, allGroups6, 0) // without it others' groups are heard, too
	} else {
		options = append(options, option{unix.SOL_IP, unix.IP_MULTICAST_ALL, 0})
	}
	if shared {
		options = append(options, option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}, option{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("prepare the socket: %w", err)
		}
	}
	return nil
}

// join has the socket hear, and be told, what is said on these interfaces, and on no others.
func (s *socket) join(links []Link) error {
	var now []int
	for _, l := range links {
		if l.family(s.v6) {
			now = append(now, l.Index)
		}
	}
	rc, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var errs []error
	err = rc.Control(func(fd uintptr) {
		for _, i := range s.joined {
			if !slices.Contains(now, i) {
				_ = s.membership(int(fd), i, false) // of one that is gone it ended by itself
			}
		}
		s.joined = nil
		for _, i := range now { // again, too: an interface may have gone and come
			if err := s.membership(int(fd), i, true); err != nil && !errors.Is(err, unix.EADDRINUSE) {
				errs = append(errs, fmt.Errorf("hear multicast on interface %d: %w", i, err))
				continue
			}
			s.joined = append(s.joined, i)
		}
	})
	return errors.Join(append(errs, err)...)
}

func (s *socket) membership(fd, index int, join bool) error {
	group := everybody(s.v6).Addr()
	if s.v6 {
		option := unix.IPV6_LEAVE_GROUP
		if join {
			option = unix.IPV6_JOIN_GROUP
		}
		return unix.SetsockoptIPv6Mreq(fd, unix.SOL_IPV6, option, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
	}
	option := unix.IP_DROP_MEMBERSHIP
	if join {
		option = unix.IP_ADD_MEMBERSHIP
	}
	return unix.SetsockoptIPMreqn(fd, unix.SOL_IP, option, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
}

// write sends a packet out of an interface.
func (s *socket) write(o Out) error {
	to := o.To
	if !to.IsValid() {
		to = everybody(s.v6)
	}
	to = netip.AddrPortFrom(to.Addr().WithZone(""), to.Port()) // the interface is said below
	control := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(o.Way.Index)})
	if s.v6 {
		control = unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: uint32(o.Way.Index)})
	}
	_, _, err := s.WriteMsgUDPAddrPort(o.Msg, control, to)
	return err
}

// read waits for a packet. toAll: it was sent to all on the link.
func (s *socket) read(buf []byte) (msg []byte, way Way, from netip.AddrPort, toAll bool, err error) {
	var control [128]byte
	n, m, _, from, err := s.ReadMsgUDPAddrPort(buf, control[:])
	if err != nil {
		return nil, way, from, false, err
	}
	way.V6 = s.v6
	list, _ := unix.ParseSocketControlMessage(control[:m])
	for i := range list {
		switch h := list[i].Header; {
		case h.Level == unix.SOL_IP && h.Type == unix.IP_PKTINFO && len(list[i].Data) >= unix.SizeofInet4Pktinfo:
			d := list[i].Data // interface, own address, destination
			way.Index, toAll = int(int32(nativeUint32(d))), d[8] >= 224
		case h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_PKTINFO && len(list[i].Data) >= unix.SizeofInet6Pktinfo:
			d := list[i].Data // destination, interface
			way.Index, toAll = int(nativeUint32(d[16:])), d[0] == 0xff
		}
	}
	return buf[:n], way, from, toAll, nil
}
