package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/netns"
	"ledge/network/nft"
	"ledge/network/plan"
)

// host is the network namespace the bridge lives in, seen from a thread that is inside it.
type host struct {
	*netlink.Handle
	nft *nft.Conn
}

// onHost runs f where the bridge lives. The caller holds the lock, or nobody else knows of s yet.
func (s *Setup) onHost(f func(*host) error) error {
	run := func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
		if err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		defer h.Close()
		err = f(&host{Handle: h, nft: &s.nft})
		if err != nil {
			s.nft.Drop()
		}
		return err
	}
	return netns.At(s.cfg.NetNS, run)
}

// notHost refuses a pod's namespace that is the one the calling thread is in: to configure it as a pod would take the
// machine off its network.
func notHost(ns int) error {
	var pod, own unix.Stat_t
	if err := unix.Fstat(ns, &pod); err != nil {
		return fmt.Errorf("look at network namespace: %w", err)
	}
	if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
		return fmt.Errorf("look at network namespace: %w", err)
	}
	if pod.Dev == own.Dev && pod.Ino == own.Ino {
		return errors.New("its network namespace is the host's own")
	}
	return nil
}

// sysctl reads a setting of the network namespace the thread is in; missing is "".
func sysctl(path ...string) (string, error) {
	b, err := os.ReadFile(sysctlPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// setSysctl writes only if the value differs, so that a read-only /proc/sys that is right already is fine.
func setSysctl(value string, path ...string) error {
	have, err := sysctl(path...)
	if err != nil || have == value {
		return err
	}
	return os.WriteFile(sysctlPath(path), []byte(value), 0)
}

func sysctlPath(path []string) string { return filepath.Join("/proc/sys/net", filepath.Join(path...)) }

// quietIPv6 switches IPv6 off on an interface: pods have none yet, and an interface that listens to router
// advertisements lets a pod give the host a default route (CVE-2020-10749).
func quietIPv6(ifname string) error {
	if have, err := sysctl("ipv6", "conf", ifname, "disable_ipv6"); err != nil || have == "" {
		return err // a kernel without IPv6
	}
	return setSysctl("1", "ipv6", "conf", ifname, "disable_ipv6")
}

// dump repeats a listing that others changed under way.
func dump[T any](list func() (T, error)) (T, error) {
	for range 5 {
		if out, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return list()
}

func notFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV)
}

// portsFree tells whether a process of the machine listens on a port that pods want: translating it would take it
// over without a word, be it sshd's or ledge's own.
func (h *host) portsFree(ports []network.Port, dual bool) error {
	if len(ports) == 0 {
		return nil
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	all := []netip.Addr{localhost.Addr()}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok && !ip.IsLoopback() {
			all = append(all, ip)
		}
	}
	if dual {
		addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V6) })
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				all = append(all, ip)
			}
		}
	}
	for _, p := range ports {
		try := all
		if p.HostIP.IsValid() {
			try = []netip.Addr{p.HostIP}
		}
		for _, ip := range try {
			err := tryBind(ip, p)
			if errors.Is(err, unix.EADDRINUSE) {
				return fmt.Errorf("%w: a process of this machine has %s on %s", network.ErrPortInUse, plan.PortString(p), ip)
			}
			if errors.Is(err, unix.EADDRNOTAVAIL) && p.HostIP.IsValid() {
				return fmt.Errorf("host port %s: this machine has no address %s", plan.PortString(p), ip)
			}
		}
	}
	return nil
}

func tryBind(ip netip.Addr, p network.Port) error {
	kind := unix.SOCK_STREAM
	switch p.Protocol {
	case "UDP":
		kind = unix.SOCK_DGRAM
	case "SCTP": // no sockets of it without a module that is seldom there
		return nil
	}
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if kind == unix.SOCK_STREAM { // connections in TIME_WAIT are nobody's
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
	}
	if ip.Is6() {
		return unix.Bind(fd, &unix.SockaddrInet6{Port: int(p.HostPort), Addr: ip.As16()})
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Port: int(p.HostPort), Addr: ip.As4()})
}

// forget deletes what connection tracking remembers of addresses, and of UDP host ports that changed hands: a client
// that never stops sending would go on to the old place for ever. TCP ends by itself.
func (s *Setup) forget(h *host, f staleFlows) {
	if len(f.addrs) == 0 && len(f.udp) == 0 {
		return
	}
	if err := h.deleteFlows(f, s.book != nil && s.book.Dual()); err != nil && !s.warned {
		s.warned = true
		slog.Warn("cannot forget old connections; UDP clients of a moved host port may hang", "bridge", s.cfg.Bridge, "err", err)
	}
}

// staleFlows says which tracked connections to forget.
type staleFlows struct {
	addrs []netip.Addr
	udp   []uint16
}

func (f *staleFlows) addPorts(ports []network.Port) {
	for _, p := range ports {
		if p.Protocol == "UDP" {
			f.udp = append(f.udp, p.HostPort)
		}
	}
}

// MatchConntrackFlow is true for flows to or from the addresses, before or behind translation, and for UDP flows that
// were sent to one of the ports.
func (f staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol == unix.IPPROTO_UDP && slices.Contains(f.udp, flow.Forward.DstPort) {
		return true
	}
	for _, ip := range []net.IP{flow.Forward.SrcIP, flow.Forward.DstIP, flow.Reverse.SrcIP, flow.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(ip); ok && slices.Contains(f.addrs, a.Unmap()) {
			return true
		}
	}
	return false
}

func (h *host) deleteFlows(f staleFlows, dual bool) error {
	families := []netlink.InetFamily{unix.AF_INET}
	if dual {
		families = append(families, unix.AF_INET6)
	}
	var errs []error
	for _, family := range families {
		_, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
