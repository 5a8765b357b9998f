package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/network"
)

var _ network.Router = (*Setup)(nil)

// routeProtocol marks in the kernel the routes that ledge made ('proto 108' in ip route): a number nobody has registered.
const routeProtocol netlink.RouteProtocol = 108

// path is the way to another board's pods.
type path struct {
	dst  netip.Prefix
	via  netip.Addr
	link int
}

// segment is a network that this board is on.
type segment struct {
	net  netip.Prefix
	addr netip.Addr // this board's
	link int
}

// pathsTo chooses the ways, and says of the others why there is none. own are this board's pod networks.
func pathsTo(peers []network.Peer, here []segment, own []netip.Prefix) (paths []path, missed []network.Missed) {
	var taken []netip.Prefix
	for _, p := range peers {
		for _, dst := range p.CIDRs {
			miss := func(format string, args ...any) {
				missed = append(missed, network.Missed{Peer: p.Name, CIDR: dst, Why: fmt.Sprintf(format, args...)})
			}
			overlaps := func(n netip.Prefix) bool { return n.Overlaps(dst) }
			if slices.ContainsFunc(own, overlaps) || slices.ContainsFunc(taken, overlaps) {
				miss("its pod network %s overlaps another", dst)
				continue
			}
			if i := slices.IndexFunc(here, func(s segment) bool { return overlaps(s.net) }); i >= 0 {
				miss("its pod network %s overlaps %s, which this board is on", dst, here[i].net)
				continue
			}
			via, link, ok := onLink(p.Addresses, dst.Addr().Is6(), here)
			if !ok {
				miss("%s", noWay(p.Addresses, dst.Addr().Is6()))
				continue
			}
			taken = append(taken, dst)
			paths = append(paths, path{dst, via, link})
		}
	}
	return paths, missed
}

// onLink is the first address that is a neighbour's, by the narrowest network that has it.
func onLink(addrs []netip.Addr, v6 bool, here []segment) (via netip.Addr, link int, ok bool) {
	for _, a := range addrs {
		if slices.ContainsFunc(here, func(s segment) bool { return s.addr == a }) {
			continue // this board's own
		}
		best := -1
		for _, s := range here {
			if a.Is6() == v6 && s.net.Contains(a) && s.net.Bits() > best {
				best, via, link, ok = s.net.Bits(), a, s.link, true
			}
		}
		if ok {
			return via, link, true
		}
	}
	return via, 0, false
}

// noWay says why there is no way to a board, in one family.
func noWay(addrs []netip.Addr, v6 bool) string {
	var out []string
	for _, a := range addrs {
		if a.Is6() == v6 {
			out = append(out, a.String())
		}
	}
	switch {
	case len(out) > 0:
		return strings.Join(out, ", ") + " is on no network of this board"
	case v6:
		return "it has no IPv6 address"
	}
	return "it has no IPv4 address"
}

// Reach implements network.Router.
func (s *Setup) Reach(ctx context.Context, peers []network.Peer) (missed []network.Missed, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.book == nil {
		return nil, fmt.Errorf("bridge %s: no pod CIDR is configured", s.cfg.Bridge)
	}
	err = s.onHost(func(h *host) error {
		here, err := h.segments()
		if err != nil {
			return err
		}
		own := []netip.Prefix{s.book.CIDR()}
		if s.book.Dual() {
			own = append(own, s.book.CIDR6())
		}
		paths, none := pathsTo(peers, here, own)
		missed = none
		blocked, err := s.ensureRoutes(h, paths)
		s.reached = nil
		for _, p := range paths {
			if why, is := blocked[p.dst]; is {
				missed = append(missed, network.Missed{Peer: nameOf(peers, p.dst), CIDR: p.dst, Why: why})
				continue
			}
			s.reached = append(s.reached, p.dst)
		}
		return errors.Join(err, s.ensureRules(h))
	})
	if err != nil {
		return missed, fmt.Errorf("routes to the pods of other boards: %w", err)
	}
	return missed, nil
}

func nameOf(peers []network.Peer, cidr netip.Prefix) string {
	i := slices.IndexFunc(peers, func(p network.Peer) bool { return slices.Contains(p.CIDRs, cidr) })
	return peers[i].Name
}

// ensureRoutes makes the kernel's routes of ours those paths. What stands in the way of one and is not ours is named, and
// left alone.
func (s *Setup) ensureRoutes(h *host, paths []path) (blocked map[netip.Prefix]string, err error) {
	var want []netip.Prefix
	for _, p := range paths {
		want = append(want, p.dst)
	}
	// Recorded first: a crash in between must not leave a route that nobody removes.
	if all := union(s.routed, want); !slices.Equal(all, s.routed) {
		if err := s.recordRoutes(all); err != nil {
			return nil, err
		}
	}
	have, err := h.routes(append(slices.Clone(s.routed), want...))
	if err != nil {
		return nil, err
	}
	blocked = map[netip.Prefix]string{}
	var errs []error
	for _, p := range paths {
		switch there := have[p.dst]; {
		case len(there) == 0:
			if err := h.RouteAdd(p.route()); err != nil {
				errs = append(errs, fmt.Errorf("add %s via %s: %w", p.dst, p.via, err))
			}
		case slices.ContainsFunc(there, func(r netlink.Route) bool { return leads(r, p) }): // whoever made it
		case !madeByUs(there):
			blocked[p.dst] = fmt.Sprintf("a route to %s that ledge did not make leads elsewhere", p.dst)
			want = slices.DeleteFunc(want, func(n netip.Prefix) bool { return n == p.dst })
		default:
			if err := h.RouteReplace(p.route()); err != nil {
				errs = append(errs, fmt.Errorf("change %s to go via %s: %w", p.dst, p.via, err))
			}
		}
	}
	for _, dst := range slices.Clone(s.routed) {
		if slices.Contains(want, dst) {
			continue
		}
		if err := h.removeRoutes(have[dst]); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", dst, err))
			want = append(want, dst) // it is ours still
		}
	}
	want = union(want, nil)
	if !slices.Equal(want, s.routed) {
		errs = append(errs, s.recordRoutes(want))
	}
	return blocked, errors.Join(errs...)
}

// removeRoutesOf takes back all routes of this node.
func (s *Setup) removeRoutesOf(h *host) error {
	if len(s.routed) == 0 {
		return nil
	}
	have, err := h.routes(s.routed)
	if err != nil {
		return err
	}
	var errs []error
	for dst, there := range have {
		if err := h.removeRoutes(there); err != nil {
			errs = append(errs, fmt.Errorf("remove route to %s: %w", dst, err))
		}
	}
	if len(errs) == 0 {
		s.routed, s.reached = nil, nil
	}
	return errors.Join(errs...)
}

func (s *Setup) recordRoutes(all []netip.Prefix) error {
	old := s.routed
	s.routed = all
	if err := s.record(); err != nil {
		s.routed = old
		return err
	}
	return nil
}

func union(a, b []netip.Prefix) []netip.Prefix {
	out := slices.Concat(a, b)
	sort.Slice(out, func(i, j int) bool { return out[i].String() < out[j].String() })
	return slices.Compact(out)
}

func (p path) route() *netlink.Route {
	return &netlink.Route{LinkIndex: p.link, Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN, Gw: p.via.AsSlice(),
		Dst: &net.IPNet{IP: p.dst.Addr().AsSlice(), Mask: net.CIDRMask(p.dst.Bits(), p.dst.Addr().BitLen())}}
}

func leads(r netlink.Route, p path) bool {
	via, ok := netip.AddrFromSlice(r.Gw)
	return ok && via.Unmap() == p.via && r.LinkIndex == p.link
}

func madeByUs(routes []netlink.Route) bool {
	return !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Protocol != routeProtocol })
}

func (h *host) removeRoutes(all []netlink.Route) error {
	var errs []error
	for _, r := range all {
		if r.Protocol != routeProtocol {
			continue
		}
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// routes are the kernel's in the main table to these networks, whoever made them.
func (h *host) routes(to []netip.Prefix) (map[netip.Prefix][]netlink.Route, error) {
	out := map[netip.Prefix][]netlink.Route{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if !slices.ContainsFunc(to, func(n netip.Prefix) bool { return familyOf(n.Addr()) == family }) {
			continue
		}
		all, err := dump(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range all {
			if dst, ok := prefixOf(r.Dst); ok && slices.Contains(to, dst) {
				out[dst] = append(out[dst], r)
			}
		}
	}
	return out, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits), ok
}

// segments are the networks this board is on, bridges of ledge aside.
func (h *host) segments() ([]segment, error) {
	links, err := dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	use := map[int]bool{}
	for _, l := range links {
		a := l.Attrs()
		use[a.Index] = a.Flags&net.FlagUp != 0 && a.Flags&net.FlagLoopback == 0 && !strings.HasPrefix(a.Alias, bridgeMark)
	}
	var out []segment
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			n, ok := prefixOf(a.IPNet)
			if !ok || !use[a.LinkIndex] || n.Addr().IsLinkLocalUnicast() {
				continue
			}
			out = append(out, segment{n.Masked(), n.Addr(), a.LinkIndex})
		}
	}
	return out, nil
}
