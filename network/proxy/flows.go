package proxy

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flows says which tracked UDP flows are led wrong now: a client that never stops sending would go on to an endpoint that is gone, or
// to where it was refused. TCP ends by itself.
type flows map[netip.AddrPort]*changedPort

type changedPort struct {
	gone  map[netip.AddrPort]bool // endpoints
	had   bool                    // there were some
	began bool                    // there were none, and now there are
}

// flowsOf finds what a batch changes for UDP.
func flowsOf(b batch) flows {
	out := flows{}
	at := func(e element) *changedPort {
		to, protocol, _ := parseKey(e.key, e.v6)
		if protocol != unix.IPPROTO_UDP {
			return nil
		}
		if out[to] == nil {
			out[to] = &changedPort{gone: map[netip.AddrPort]bool{}}
		}
		return out[to]
	}
	for _, e := range b.remove {
		c := at(e)
		switch {
		case c == nil:
		case e.set == setEndpoints:
			c.gone[parseEndpoint(e.value, e.v6)] = true
		case e.set == setNear:
			c.had = true
		}
	}
	for _, e := range b.add {
		c := at(e)
		switch {
		case c == nil:
		case e.set == setEndpoints: // it only has another index
			delete(c.gone, parseEndpoint(e.value, e.v6))
		case e.set == setNear:
			c.began = !c.had
		}
	}
	for to, c := range out {
		if len(c.gone) == 0 && !c.began {
			delete(out, to)
		}
	}
	return out
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, from := addrPort(flow.Forward.DstIP, flow.Forward.DstPort), addrPort(flow.Reverse.SrcIP, flow.Reverse.SrcPort)
	everywhere := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		everywhere = netip.IPv6Unspecified()
	}
	for _, key := range []netip.AddrPort{to, netip.AddrPortFrom(everywhere, to.Port())} {
		if c := f[key]; c != nil && (c.gone[from] || c.began && from == to) {
			return true
		}
	}
	return false
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// forget has connection tracking drop what a batch made wrong.
func (p *Proxy) forget(b batch) {
	f := flowsOf(b)
	if len(f) == 0 {
		return
	}
	families := map[netlink.InetFamily]bool{}
	for to := range f {
		families[map[bool]netlink.InetFamily{false: unix.AF_INET, true: unix.AF_INET6}[to.Addr().Is6()]] = true
	}
	for family := range families {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		}
		if err != nil && !p.warned {
			p.warned = true
			slog.Warn("cannot forget old connections; UDP clients of a Service may hang when an endpoint goes", "err", err)
		}
	}
}
