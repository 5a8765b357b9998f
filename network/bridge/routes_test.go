package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network"
)

func peer(name, cidrs, addrs string) network.Peer {
	p := network.Peer{Name: name}
	for _, c := range strings.Fields(cidrs) {
		p.CIDRs = append(p.CIDRs, netip.MustParsePrefix(c))
	}
	for _, a := range strings.Fields(addrs) {
		p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
	}
	return p
}

// TestPathsTo: neighbours are led to by the narrowest network that has them; who is none is named with the reason.
func TestPathsTo(t *testing.T) {
	here := []segment{}
	for i, s := range []string{"10.99.0.1/16", "10.99.1.1/24", "192.168.0.5/24", "fd99::1/64"} {
		p := netip.MustParsePrefix(s)
		here = append(here, segment{p.Masked(), p.Addr(), i + 1})
	}
	own := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd42::/64")}
	for _, tt := range []struct {
		peer network.Peer
		want string
	}{
		{peer("b", "10.42.1.0/24", "10.99.0.2"), "10.42.1.0/24 via 10.99.0.2 on 1"},
		{peer("b", "10.42.1.0/24", "10.99.1.2"), "10.42.1.0/24 via 10.99.1.2 on 2"},
		{peer("b", "10.42.1.0/24", "172.16.0.2 192.168.0.6"), "10.42.1.0/24 via 192.168.0.6 on 3"},
		{peer("b", "10.42.1.0/24 fd42:0:0:1::/64", "10.99.0.2 fd99::2"), "10.42.1.0/24 via 10.99.0.2 on 1, fd42:0:0:1::/64 via fd99::2 on 4"},
		{peer("b", "10.42.1.0/24 fd42:0:0:1::/64", "10.99.0.2"), "10.42.1.0/24 via 10.99.0.2 on 1, b: it has no IPv6 address"},
		{peer("b", "10.42.1.0/24", "172.16.0.2"), "b: 172.16.0.2 is on no network of this board"},
		{peer("b", "10.42.1.0/24", "10.99.1.1"), "b: 10.99.1.1 is on no network of this board"}, // it is this board's own
		{peer("b", "10.42.0.0/25", "10.99.0.2"), "b: its pod network 10.42.0.0/25 overlaps another"},
		{peer("b", "192.168.0.0/25", "10.99.0.2"), "b: its pod network 192.168.0.0/25 overlaps 192.168.0.0/24, which this board is on"},
		{peer("b", "0.0.0.0/0", "10.99.0.2"), "b: its pod network 0.0.0.0/0 overlaps another"},
	} {
		paths, missed := pathsTo([]network.Peer{tt.peer}, here, own)
		var got []string
		for _, p := range paths {
			got = append(got, fmt.Sprintf("%s via %s on %d", p.dst, p.via, p.link))
		}
		for _, m := range missed {
			got = append(got, m.Peer+": "+m.Why)
		}
		if have := strings.Join(got, ", "); have != tt.want {
			t.Errorf("%v: %s, want %s", tt.peer, have, tt.want)
		}
	}
	paths, missed := pathsTo([]network.Peer{peer("b", "10.42.1.0/24", "10.99.0.2"), peer("c", "10.42.1.0/24", "10.99.0.3")}, here, own)
	if len(paths) != 1 || len(missed) != 1 || missed[0].Peer != "c" {
		t.Errorf("two boards with one network: %v, %v", paths, missed)
	}
}

// routesOf lists the routes of a namespace that lead to pods: destination, gateway and who made it.
func (l *lab) routesOf(ns string) string {
	l.t.Helper()
	var out []string
	l.in(ns, func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := netlink.RouteList(nil, family)
			if err != nil {
				return err
			}
			for _, r := range all {
				if r.Dst != nil && r.Gw != nil {
					out = append(out, fmt.Sprintf("%s via %s proto %d", r.Dst, r.Gw, r.Protocol))
				}
			}
		}
		return nil
	})
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// pair is two boards on one cable, each with a pod that serves.
type pair struct {
	*lab
	here, there     *Setup
	a, b            testPod
	toHere, toThere network.Peer
}

const (
	hereCIDRs  = "10.42.1.0/24,fd42:0:0:1::/64"
	thereCIDRs = "10.42.2.0/24,fd42:0:0:2::/64"
	waysThere  = "10.42.2.0/24 via " + outsideIP + " proto 108, fd42:0:0:2::/64 via " + outsideIP6 + " proto 108"
)

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{lab: newLab(t)}
	p.here = p.node("ledge0", hereCIDRs)
	cfg := p.config("ledge1", thereCIDRs)
	cfg.NetNS = p.outside
	p.there = p.setup(cfg)
	p.must(p.there.Ready(t.Context()))
	t.Cleanup(func() { p.must(p.there.Close(context.Background())) })
	p.a, p.b = p.pod(p.here, "a", tcp(8080, 80)), p.pod(p.there, "b", tcp(8080, 80))
	for _, x := range []testPod{p.a, p.b} {
		p.serve(x.NetNS, x.UID, "tcp", ":80")
		p.serve(x.NetNS, x.UID, "tcp", "[::]:81")
	}
	p.serve(p.outside, "board", "tcp", ":82")
	p.toThere = peer("there", "10.42.2.0/24 fd42:0:0:2::/64", outsideIP+" "+outsideIP6)
	p.toHere = peer("here", "10.42.1.0/24 fd42:0:0:1::/64", hostIP+" "+hostIP6)
	return p
}

func (p *pair) reach(s *Setup, want string, peers ...network.Peer) {
	p.t.Helper()
	missed, err := s.Reach(p.t.Context(), peers)
	p.must(err)
	var got []string
	for _, m := range missed {
		got = append(got, m.Peer+": "+m.Why)
	}
	p.expect("missed", strings.Join(got, ", "), want)
}

// soon: after the cable was out neighbours look for each other in their own time.
func (p *pair) soon(what, from, to, want string) {
	p.t.Helper()
	got := ""
	for end := time.Now().Add(testrun.Patience(10 * time.Second)); got != want && time.Now().Before(end); {
		got = p.ask(from, "tcp", to)
	}
	p.expect(what, got, want)
}

func (p *pair) meet() {
	p.t.Helper()
	p.soon("pod to the other board's pod", p.a.NetNS, p.b.ip+":80", "b "+p.a.ip)
	p.soon("and back", p.b.NetNS, p.a.ip+":80", "a "+p.b.ip)
	p.soon("by IPv6", p.a.NetNS, "["+p.b.ip6+"]:81", "b "+p.a.ip6)
	p.soon("board to the other's pod", p.host, p.b.ip+":80", "b "+hostIP)
	p.soon("pod to the other board", p.a.NetNS, outsideIP+":82", "board "+hostIP)
	p.soon("pod to the other board's host port", p.a.NetNS, outsideIP+":8080", "b "+hostIP)
}

// TestBoards: pods of two boards on one cable reach each other under their own addresses, in both families; everybody else
// still sees the board's. A restart and a cable that was out change nothing for long.
func TestBoards(t *testing.T) {
	testrun.OnHost(t)
	p := newPair(t)
	p.fails("pods before there are routes", p.ask(p.a.NetNS, "tcp", p.b.ip+":80"))
	for range 2 { // the second changes nothing
		p.reach(p.here, "", p.toThere)
		p.reach(p.there, "", p.toHere)
	}
	p.expect("routes", p.routesOf(p.host), waysThere)
	p.meet()

	// A restarted process knows what is its own before it has heard of others, and lets traffic be.
	again := p.setup(p.config("ledge0", hereCIDRs))
	p.must(again.Ready(t.Context()))
	p.expect("routes after a restart", p.routesOf(p.host), waysThere)
	p.meet()

	p.in(p.host, func() error { // the kernel forgets its routes
		link, err := netlink.LinkByName("uplink0")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetDown(link), netlink.LinkSetUp(link)); err != nil {
			return err
		}
		return errors.Join(giveAddress6("uplink0", hostIP6+"/64"), carrier("uplink0"))
	})
	p.expect("without the cable", p.routesOf(p.host), "")
	p.reach(again, "", p.toThere)
	p.meet()
}

// TestRoutesOfOthers: routes follow a board that moves and go with it. What somebody else put there stays, is used if it
// leads there, and is in the way if not.
func TestRoutesOfOthers(t *testing.T) {
	p := newPair(t)
	p.reach(p.here, "", p.toThere)
	moved := p.toThere
	moved.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr(outsideIP6)}
	p.reach(p.here, "", moved)
	p.expect("moved", p.routesOf(p.host), strings.Replace(waysThere, outsideIP+" ", "192.0.2.9 ", 1))
	foreign := func(do func(*netlink.Route) error, cidr, via string) {
		t.Helper()
		p.in(p.host, func() error {
			dst, err := netlink.ParseIPNet(cidr)
			if err != nil {
				return err
			}
			return do(&netlink.Route{Dst: dst, Gw: netip.MustParseAddr(via).AsSlice(), Protocol: unix.RTPROT_STATIC})
		})
	}
	foreign(netlink.RouteAdd, "10.42.3.0/24", "192.0.2.7")
	foreign(netlink.RouteAdd, "10.42.4.0/24", "192.0.2.4")
	static := "10.42.3.0/24 via 192.0.2.7 proto 4, 10.42.4.0/24 via 192.0.2.4 proto 4"
	p.reach(p.here, "far: 203.0.113.1 is on no network of this board, third: a route to 10.42.3.0/24 that ledge did not make leads elsewhere",
		peer("third", "10.42.3.0/24", "192.0.2.3"), peer("fourth", "10.42.4.0/24", "192.0.2.4"), peer("far", "10.42.5.0/24", "203.0.113.1"))
	p.expect("gone", p.routesOf(p.host), static)
	p.reach(p.here, "", p.toThere)
	p.must(p.here.Close(context.Background()))
	p.expect("closed", p.routesOf(p.host), static)
	foreign(netlink.RouteDel, "10.42.3.0/24", "192.0.2.7")
	foreign(netlink.RouteDel, "10.42.4.0/24", "192.0.2.4")
}

// giveAddress6 puts back what the kernel takes away with the link.
func giveAddress6(name, cidr string) error {
	if err := giveAddress(name, cidr); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
