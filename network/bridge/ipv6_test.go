package bridge

import (
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"ledge/network"
	"ledge/network/netns"
	"ledge/network/nft"
	"ledge/network/plan"
)

const (
	dualCIDR = "10.77.0.0/24,fd77::/64"
	gateway6 = "fd77::1"
)

// TestTraffic6: everything pods do by IPv4 they do by IPv6, at the same time.
func TestTraffic6(t *testing.T) {
	for _, nf := range []string{"0", "1"} {
		t.Run("br_netfilter="+nf, func(t *testing.T) {
			l := newLab(t)
			bridgeNetfilter(l, nf)
			l.in(l.host, func() error {
				if have, _ := sysctl("bridge", "bridge-nf-call-ip6tables"); have == "" {
					return nil
				}
				return setSysctl(nf, "bridge", "bridge-nf-call-ip6tables")
			})
			s := l.node("ledge0", dualCIDR)
			a := l.pod(s, "a", tcp(8080, 80), udp(5353, 53), network.Port{HostIP: netip.MustParseAddr(hostIP6), HostPort: 9090, ContainerPort: 80})
			b := l.pod(s, "b")
			for _, p := range []testPod{a, b} {
				l.serve(p.NetNS, p.UID, "tcp", "[::]:80")
				l.serve(p.NetNS, p.UID, "udp", "[::]:53")
				l.serve(p.NetNS, p.UID, "tcp", ":80")
			}
			l.serve(l.outside, "outside", "tcp", "[::]:80")
			l.serve(l.host, "host", "tcp", "[::]:81")
			for _, c := range []struct{ what, from, proto, to, want string }{
				{"pod to pod", b.NetNS, "tcp", "[" + a.ip6 + "]:80", "a " + b.ip6},
				{"pod to pod, UDP", b.NetNS, "udp", "[" + a.ip6 + "]:53", "a " + b.ip6},
				{"pod to itself", a.NetNS, "tcp", "[" + a.ip6 + "]:80", "a " + a.ip6},
				{"pod to its localhost", a.NetNS, "tcp", "[::1]:80", "a ::1"},
				{"pod to board", a.NetNS, "tcp", "[" + gateway6 + "]:81", "host " + a.ip6},
				{"pod to board's other address", a.NetNS, "tcp", "[" + hostIP6 + "]:81", "host " + a.ip6},
				{"board to pod", l.host, "tcp", "[" + a.ip6 + "]:80", "a " + gateway6},
				{"pod to outside is masqueraded", a.NetNS, "tcp", "[" + outsideIP6 + "]:80", "outside " + hostIP6},
				{"outside to host port keeps its address", l.outside, "tcp", "[" + hostIP6 + "]:8080", "a " + outsideIP6},
				{"outside to host port, UDP", l.outside, "udp", "[" + hostIP6 + "]:5353", "a " + outsideIP6},
				{"outside to host port of one address", l.outside, "tcp", "[" + hostIP6 + "]:9090", "a " + outsideIP6},
				{"board to its host port", l.host, "tcp", "[" + hostIP6 + "]:8080", "a " + hostIP6},
				{"pod to host port of another", b.NetNS, "tcp", "[" + hostIP6 + "]:8080", "a " + b.ip6},
				{"pod to host port of another, by the bridge", b.NetNS, "tcp", "[" + gateway6 + "]:8080", "a " + b.ip6},
				{"pod to its own host port", a.NetNS, "tcp", "[" + hostIP6 + "]:8080", "a " + gateway6},
				{"IPv4 as before", l.outside, "tcp", hostIP + ":8080", "a " + outsideIP},
			} {
				l.expect(c.what, l.ask(c.from, c.proto, c.to), c.want)
			}
			l.fails("a port of one IPv6 address by IPv4", l.ask(l.outside, "tcp", hostIP+":9090"))
			l.fails("a port of one address by another", l.ask(b.NetNS, "tcp", "["+gateway6+"]:9090"))

			l.must(s.Detach(t.Context(), "a"))
			l.fails("host port after Detach", l.ask(l.outside, "tcp", "["+hostIP6+"]:8080"))
			l.expect("the other pod goes on", l.ask(l.host, "tcp", "["+b.ip6+"]:80"), "b "+gateway6)
		})
	}
}

// TestBoardStaysHost: the board forwards for its pods, and is no router: not between its own networks, and it goes on
// listening to the routers of its networks.
func TestBoardStaysHost(t *testing.T) {
	l := newLab(t)
	far := l.netns("far")
	fd, err := netns.Open(far)
	l.must(err)
	l.in(l.host, func() error {
		a := netlink.NewLinkAttrs()
		a.Name = "uplink1"
		l.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "cable1", PeerNamespace: netlink.NsFd(fd)}))
		l.must(setSysctl("1", "ipv6", "conf", "uplink0", "accept_ra"))
		return giveAddress("uplink1", "fd55::1/64")
	})
	l.in(far, func() error {
		up("lo")
		l.must(giveAddress("cable1", "fd55::2/64"))
		return route6("cable1", "2001:db8::/64", "fd55::1")
	})
	l.in(l.outside, func() error { return route6("cable", "fd55::/64", hostIP6) })
	l.serve(far, "far", "tcp", "[::]:80")
	s := l.node("ledge0", dualCIDR)
	p := l.pod(s, "p")
	l.expect("pod to the second network", l.ask(p.NetNS, "tcp", "[fd55::2]:80"), "far fd55::1")
	l.fails("one network to the other", l.ask(l.outside, "tcp", "[fd55::2]:80"))
	l.in(l.host, func() error {
		for _, name := range []string{"uplink0", "uplink1", "default"} {
			for key, want := range map[string]string{"forwarding": "0", "accept_ra": "1"} {
				if got, err := sysctl("ipv6", "conf", name, key); err != nil || got != want {
					t.Errorf("%s of %s is %q, %v", key, name, got, err)
				}
			}
		}
		got, err := sysctl("ipv6", "conf", "ledge0", "accept_ra")
		if got != "0" {
			t.Error("the bridge listens to routers among the pods")
		}
		return err
	})
	l.in(p.NetNS, func() error {
		if got, err := sysctl("ipv6", "conf", "eth0", "accept_ra"); err != nil || got != "0" {
			t.Errorf("a pod listens to routers: %s %v", got, err)
		}
		return nil
	})
}

func route6(link, to, via string) error {
	dev, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: ipNet(netip.MustParsePrefix(to)),
		Gw: netip.MustParseAddr(via).AsSlice()})
}

// TestRepairs6: what somebody broke is put right, the kernel remembers both addresses of a pod, and an IPv6 network
// that is taken out of the configuration leaves nothing.
func TestRepairs6(t *testing.T) {
	l := newLab(t)
	cfg := l.config("ledge0", dualCIDR)
	s := l.node("ledge0", dualCIDR)
	a := l.pod(s, "a", tcp(8080, 80))
	l.serve(a.NetNS, "a", "tcp", "[::]:80")
	ask := func() string { return l.ask(l.outside, "tcp", "["+hostIP6+"]:8080") }
	for what, harm := range map[string]func() error{
		"nothing":        func() error { return nil },
		"table deleted":  func() error { return (&host{nft: &nft.Conn{}}).deleteTables(s.table, nftables.TableFamilyIPv6) },
		"bridge down":    func() error { return withLink("ledge0", netlink.LinkSetDown) },
		"no forwarding":  func() error { return setSysctl("0", "ipv6", "conf", "all", "forwarding") },
		"bridge deleted": func() error { return withLink("ledge0", netlink.LinkDel) },
		"other address":  func() error { return giveAddress("ledge0", "fd66::99/64") },
	} {
		l.still(s)
		l.in(l.host, harm)
		l.must(s.Ready(t.Context()))
		addrs, err := s.Attach(t.Context(), a.Pod)
		if err != nil || len(addrs) != 2 || addrs[1].String() != a.ip6 {
			t.Errorf("%s: %v %v", what, addrs, err)
		}
		l.expect(what, ask(), "a "+outsideIP6)
	}
	l.must(os.RemoveAll(cfg.RunDir)) // the kernel still knows
	s = l.setup(cfg)
	if e, ok := s.book.Get("a"); !ok || e.Addr6.String() != a.ip6 || !s.forwarding.v6 {
		t.Errorf("without records: %+v %v, forwarding is ours: %v", e, ok, s.forwarding.v6)
	}
	l.must(s.Ready(t.Context()))

	cfg.PodCIDR6 = netip.Prefix{}
	s = l.setup(cfg)
	l.must(s.Ready(t.Context()))
	addrs, err := s.Attach(t.Context(), a.Pod)
	if err != nil || len(addrs) != 1 || addrs[0].String() != a.ip {
		t.Errorf("without IPv6: %v %v", addrs, err)
	}
	l.fails("by IPv6", ask())
	l.in(l.host, func() error {
		if v, err := sysctl("ipv6", "conf", "all", "forwarding"); err != nil || v != "0" {
			t.Errorf("IPv6 is still forwarded: %s %v", v, err)
		}
		h := &host{nft: &nft.Conn{}}
		if left, err := h.tablesOf((table{v6: true}).family()); err != nil || len(left) > 0 {
			t.Errorf("tables of IPv6: %v %v", left, err)
		}
		return nil
	})
	l.must(s.Close(t.Context()))
	if left := l.left(cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

// TestTwoNodes6: the first to go leaves the other what it needs; one without IPv6 needs nothing.
func TestTwoNodes6(t *testing.T) {
	l := newLab(t)
	forwards := func() bool {
		t.Helper()
		var v string
		l.in(l.host, func() (err error) { v, err = sysctl("ipv6", "conf", "all", "forwarding"); return err })
		return v == "1"
	}
	l.node("ledge9", "10.79.0.0/24")
	one := l.setup(l.config("ledge0", dualCIDR))
	two := l.setup(l.config("ledge1", "10.78.0.0/24,fd78::/64"))
	l.must(one.Ready(t.Context()))
	l.must(two.Ready(t.Context()))
	p := l.pod(two, "p")
	l.must(one.Close(t.Context()))
	l.serve(l.outside, "outside", "tcp", "[::]:80")
	l.expect("the other node's pod", l.ask(p.NetNS, "tcp", "["+outsideIP6+"]:80"), "outside "+hostIP6)
	l.must(two.Close(t.Context()))
	three := l.setup(l.config("ledge2", dualCIDR))
	l.in(l.host, func() error { return setSysctl("0", "ipv6", "conf", "all", "forwarding") })
	l.must(three.Ready(t.Context()))
	if !forwards() {
		t.Error("it is not switched on")
	}
	l.must(three.Close(t.Context()))
	if forwards() {
		t.Error("it stays on for a node without IPv6")
	}
}

// TestPortsOfTheHost6: a process of the board on an IPv6 address keeps its port.
func TestPortsOfTheHost6(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", dualCIDR)
	l.serve(l.host, "web", "tcp", "["+hostIP6+"]:443")
	_, err := s.Attach(t.Context(), network.Pod{UID: "x", Namespace: "default", Name: "x", NetNS: l.netns("x"),
		Ports: []network.Port{tcp(443, 443)}})
	if err == nil {
		t.Error("a port in use was taken over")
	}
	l.expect("web", l.ask(l.outside, "tcp", "["+hostIP6+"]:443"), "web "+outsideIP6)
}

func TestCompile6(t *testing.T) {
	e := entry("web", "10.42.0.2", tcp(8080, 80),
		network.Port{HostIP: netip.MustParseAddr("192.0.2.1"), HostPort: 1, ContainerPort: 1, Protocol: "TCP"},
		network.Port{HostIP: netip.MustParseAddr("2001:db8::1"), HostPort: 53, ContainerPort: 5353, Protocol: "UDP"})
	e.Addr6 = netip.MustParseAddr("fd42::2")
	entries := []plan.Entry{e, entry("old", "10.42.0.3", tcp(1, 1))}
	got := compile6("ledge_ledge0", "ledge0", "lvanchor", netip.MustParsePrefix("fd42::/64"), entries, []string{"eth0"},
		[]netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("fd42:1::/64")}).String()
	want := `table ip6 ledge_ledge0
chain hostports
	ip protocol 6 th dport 8080 dnat to [fd42::2]:80
	ip6 daddr 2001:db8::1/128 ip protocol 17 th dport 53 dnat to [fd42::2]:5353
chain stay
	oifname eth0 drop
chain peers
	ip6 daddr fd42:1::/64 accept
chain hairpins
	ip6 saddr fd42::2/128 ip6 daddr fd42::2/128 masquerade
chain guard type filter hook prerouting priority -300
	iifname lvanchor drop
chain prerouting type nat hook prerouting priority -100
	fib daddr type local jump hostports
chain output type nat hook output priority -100
	ip6 daddr != ::1/128 fib daddr type local jump hostports
chain postrouting type nat hook postrouting priority 100
	oifname != ledge0 ip6 saddr fd42::/64 jump peers
	oifname != ledge0 ip6 saddr fd42::/64 masquerade
	oifname ledge0 ip6 saddr fd42::/64 ct status dnat jump hairpins
chain uplinks type filter hook forward priority 0
	ct status dnat accept
	iifname eth0 jump stay
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
