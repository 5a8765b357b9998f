package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/proxy"
)

const (
	clusterIP  = "10.96.0.10"
	clusterIP6 = "fd96::10"
)

// forwarder is a proxy beside a bridge of the lab, which has a way out.
func (l *lab) forwarder(bridge string) *proxy.Proxy {
	l.t.Helper()
	l.in(l.host, func() error {
		for _, way := range [][2]string{{"0.0.0.0/0", outsideIP}, {"::/0", outsideIP6}} {
			dst := ipNet(netip.MustParsePrefix(way[0]))
			err := netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: netip.MustParseAddr(way[1]).AsSlice()})
			if err != nil {
				return err
			}
		}
		return nil
	})
	p := proxy.New(proxy.Config{Bridge: bridge, NetNS: l.host})
	l.t.Cleanup(func() {
		if err := p.Delete(context.Background()); err != nil {
			l.t.Error("delete:", err)
		}
	})
	return p
}

func at(addr string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
}

// inside is a Service of one address for those who are near.
func inside(name, addr, protocol string, ends ...netip.AddrPort) network.Service {
	to := at(addr, 80)
	return network.Service{Name: name, ClusterIPs: []netip.Addr{to.Addr()},
		Forwards: []network.Forward{{To: to, Protocol: protocol, Near: ends}}}
}

// TestServices: the same Service from a pod, the machine and the outside, by each of its addresses.
func TestServices(t *testing.T) {
	for _, nf := range []string{"0", "1"} {
		t.Run("br_netfilter="+nf, func(t *testing.T) {
			l := newLab(t)
			bridgeNetfilter(l, nf)
			s := l.node("ledge0", "10.77.0.0/24")
			a, b := l.pod(s, "a"), l.pod(s, "b")
			l.serve(a.NetNS, "a", "tcp", ":8080")
			l.serve(a.NetNS, "a", "udp", ":8080")
			l.serve(l.host, "host", "tcp", ":6443")
			l.serve(l.host, "alone", "tcp", "127.0.0.1:30080")
			l.serve(l.outside, "elsewhere", "tcp", ":8080")
			f := l.forwarder("ledge0")
			end := []netip.AddrPort{at(a.ip, 8080)}
			other := []netip.AddrPort{at(outsideIP, 8080)}
			outside := func(port uint16, far []netip.AddrPort, masquerade bool) network.Forward {
				return network.Forward{To: at("0.0.0.0", port), Protocol: "TCP", Near: end, Far: far, Outside: true,
					Masquerade: masquerade, Drop: true}
			}
			web := inside("default/web", clusterIP, "TCP", end...)
			web.Forwards = append(web.Forwards,
				network.Forward{To: at(clusterIP, 53), Protocol: "UDP", Near: end},
				outside(30080, end, true), outside(30081, end, false), outside(30082, nil, false), outside(30083, other, true),
				network.Forward{To: at("198.51.100.7", 80), Protocol: "TCP", Near: end, Far: end, Outside: true, Masquerade: true,
					Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30"), netip.MustParsePrefix("203.0.113.0/24")}},
				network.Forward{To: at("198.51.100.8", 80), Protocol: "TCP", Near: end, Far: end, Outside: true, Masquerade: true,
					Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}})
			l.must(f.Update(t.Context(), []network.Service{web, inside("default/api", "10.96.0.1", "TCP", at(hostIP, 6443)),
				inside("default/none", "10.96.0.2", "TCP")}))
			l.in(l.outside, func() error { // the addresses of a load balancer lead here
				return netlink.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("198.51.100.0/24")), Gw: netip.MustParseAddr(hostIP).AsSlice()})
			})
			for _, c := range []struct{ what, from, proto, to, want string }{
				{"pod to service", b.NetNS, "tcp", clusterIP + ":80", "a " + b.ip},
				{"pod to service, UDP", b.NetNS, "udp", clusterIP + ":53", "a " + b.ip},
				{"pod to itself by its service", a.NetNS, "tcp", clusterIP + ":80", "a " + gateway},
				{"pod to itself, UDP", a.NetNS, "udp", clusterIP + ":53", "a " + gateway},
				{"machine to service", l.host, "tcp", clusterIP + ":80", "a " + gateway},
				{"machine to service, UDP", l.host, "udp", clusterIP + ":53", "a " + gateway},
				{"pod to service on the machine", b.NetNS, "tcp", "10.96.0.1:80", "host " + b.ip},
				{"machine to service on itself", l.host, "tcp", "10.96.0.1:80", "host " + hostIP},
				{"pod to node port", b.NetNS, "tcp", hostIP + ":30080", "a " + b.ip},
				{"pod to node port by the bridge", b.NetNS, "tcp", gateway + ":30080", "a " + b.ip},
				{"machine to node port", l.host, "tcp", hostIP + ":30080", "a " + gateway},
				{"outside to node port", l.outside, "tcp", hostIP + ":30080", "a " + gateway},
				{"outside to node port, policy Local", l.outside, "tcp", hostIP + ":30081", "a " + outsideIP},
				{"machine, policy Local", l.host, "tcp", hostIP + ":30081", "a " + gateway},
				{"pod, policy Local, none here", b.NetNS, "tcp", hostIP + ":30082", "a " + b.ip},
				{"outside to an endpoint elsewhere", l.outside, "tcp", hostIP + ":30083", "elsewhere " + hostIP},
				{"outside to load balancer", l.outside, "tcp", "198.51.100.7:80", "a " + gateway},
				{"machine to load balancer", l.host, "tcp", "198.51.100.7:80", "a " + gateway},
				{"what listens on loopback alone stays", l.host, "tcp", "127.0.0.1:30080", "alone 127.0.0.1"},
			} {
				l.expect(c.what, l.ask(c.from, c.proto, c.to), c.want)
			}
			const refused, silence = "connection refused", "i/o timeout"
			for _, c := range []struct{ what, from, to, want string }{
				{"no endpoints, pod", b.NetNS, "10.96.0.2:80", refused},
				{"no endpoints, machine", l.host, "10.96.0.2:80", refused},
				{"another port of a service, pod", b.NetNS, clusterIP + ":81", refused},
				{"another port of a service, machine", l.host, clusterIP + ":81", refused},
				{"policy Local, none here", l.outside, hostIP + ":30082", silence},
				{"a source that is not let in", l.outside, "198.51.100.8:80", silence},
				{"nor is a pod", b.NetNS, "198.51.100.8:80", silence},
				{"TCP port by UDP", b.NetNS, clusterIP + ":53", refused},
			} {
				if got := l.ask(c.from, "tcp", c.to); !strings.Contains(got, c.want) {
					t.Errorf("%s: got %q, want %q", c.what, got, c.want)
				}
			}
			l.must(f.Update(t.Context(), []network.Service{{Name: "default/web"}}))
			l.fails("after it is gone", l.ask(l.outside, "tcp", hostIP+":30080"))
			l.expect("others stay", l.ask(b.NetNS, "tcp", "10.96.0.1:80"), "host "+b.ip)
		})
	}
}

// TestServices6 is the same by IPv6, as far as the rules differ.
func TestServices6(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", dualCIDR)
	a, b := l.pod(s, "a"), l.pod(s, "b")
	l.serve(a.NetNS, "a", "tcp", "[::]:8080")
	l.serve(a.NetNS, "a", "udp", "[::]:8080")
	f := l.forwarder("ledge0")
	end := []netip.AddrPort{at(a.ip6, 8080)}
	web := inside("default/web", clusterIP6, "TCP", end...)
	web.Forwards[0].Sticky = time.Minute
	web.Forwards = append(web.Forwards,
		network.Forward{To: at(clusterIP6, 53), Protocol: "UDP", Near: end},
		network.Forward{To: at("::", 30080), Protocol: "TCP", Near: end, Far: end, Outside: true, Masquerade: true},
		network.Forward{To: at("::", 30081), Protocol: "TCP", Near: end, Far: end, Outside: true},
		network.Forward{To: at("::", 30082), Protocol: "TCP", Near: end, Far: end, Outside: true,
			Sources: []netip.Prefix{netip.MustParsePrefix("2001:db8::/126")}})
	l.must(f.Update(t.Context(), []network.Service{web, inside("default/none", "fd96::2", "TCP")}))
	for _, c := range []struct{ what, from, proto, to, want string }{
		{"pod to service", b.NetNS, "tcp", "[" + clusterIP6 + "]:80", "a " + b.ip6},
		{"pod to itself", a.NetNS, "tcp", "[" + clusterIP6 + "]:80", "a " + gateway6},
		{"machine to service", l.host, "tcp", "[" + clusterIP6 + "]:80", "a " + gateway6},
		{"UDP", b.NetNS, "udp", "[" + clusterIP6 + "]:53", "a " + b.ip6},
		{"outside to node port", l.outside, "tcp", "[" + hostIP6 + "]:30080", "a " + gateway6},
		{"outside to node port, policy Local", l.outside, "tcp", "[" + hostIP6 + "]:30081", "a " + outsideIP6},
		{"outside to node port, by its source", l.outside, "tcp", "[" + hostIP6 + "]:30082", "a " + outsideIP6},
	} {
		l.expect(c.what, l.ask(c.from, c.proto, c.to), c.want)
	}
	for _, from := range []string{b.NetNS, l.host} {
		if got := l.ask(from, "tcp", "[fd96::2]:80"); !strings.Contains(got, "refused") {
			t.Errorf("no endpoints: got %q", got)
		}
	}
}

// TestServicesSpread: every endpoint gets its share; a client that is to stay with one does, until that one is gone.
func TestServicesSpread(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	client := l.pod(s, "client")
	var ends []netip.AddrPort
	for i := range 3 {
		p := l.pod(s, fmt.Sprint("p", i))
		l.serve(p.NetNS, p.UID, "tcp", ":8080")
		ends = append(ends, at(p.ip, 8080))
	}
	f := l.forwarder("ledge0")
	l.must(f.Update(t.Context(), []network.Service{inside("default/web", clusterIP, "TCP", ends...)}))
	hits := func(from string) map[string]int {
		out := map[string]int{}
		for range 30 {
			who, _, _ := strings.Cut(l.ask(from, "tcp", clusterIP+":80"), " ")
			out[who]++
		}
		return out
	}
	if got := hits(client.NetNS); len(got) != 3 || got["p0"]+got["p1"]+got["p2"] != 30 {
		t.Error("spread over three:", got)
	}
	staying := func(ends []netip.AddrPort) []network.Service {
		s := inside("default/web", clusterIP, "TCP", ends...)
		s.Forwards[0].Sticky = time.Hour
		return []network.Service{s}
	}
	l.must(f.Update(t.Context(), staying(ends)))
	got := hits(client.NetNS)
	if len(got) != 1 {
		t.Error("sticky:", got)
	}
	// A restart, and another endpoint, move nobody.
	again := l.forwarder("ledge0")
	l.must(again.Prune(t.Context(), staying(append(slices.Clone(ends), at("10.77.0.200", 8080)))))
	after := hits(client.NetNS)
	for who := range got {
		if after[who] != 30 {
			t.Error("sticky after a restart:", got, after)
		}
		gone := ends[int(who[1]-'0')]
		var left []netip.AddrPort
		for _, e := range ends {
			if e != gone {
				left = append(left, e)
			}
		}
		l.must(again.Update(t.Context(), staying(left)))
		if now := hits(client.NetNS); len(now) != 1 || now[who] > 0 {
			t.Error("sticky after its endpoint went:", got, now)
		}
	}
}

// TestServicesUDP: a client that never stops follows when its endpoint goes, and when the first one comes.
func TestServicesUDP(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	a, b, client := l.pod(s, "a"), l.pod(s, "b"), l.pod(s, "client")
	l.serve(a.NetNS, "a", "udp", ":53")
	l.serve(b.NetNS, "b", "udp", ":53")
	f := l.forwarder("ledge0")
	both := func(ends ...netip.AddrPort) []network.Service {
		s := inside("default/dns", clusterIP, "UDP", ends...)
		s.Forwards = append(s.Forwards, network.Forward{To: at("0.0.0.0", 30053), Protocol: "UDP", Near: ends, Far: ends, Outside: true, Masquerade: true})
		return []network.Service{s}
	}
	near, far := l.udpClient(client.NetNS, clusterIP+":80"), l.udpClient(l.outside, hostIP+":30053")
	l.fails("before there is a service", near())
	l.fails("before there is a service, from outside", far())
	l.must(f.Update(t.Context(), both(at(a.ip, 53))))
	l.expect("first endpoint", near(), "a "+client.ip)
	l.expect("first endpoint, from outside", far(), "a "+gateway)
	l.must(f.Update(t.Context(), both(at(b.ip, 53))))
	l.expect("second endpoint", near(), "b "+client.ip)
	l.expect("second endpoint, from outside", far(), "b "+gateway)
	l.must(f.Update(t.Context(), both()))
	l.fails("none", near())
	l.must(f.Update(t.Context(), both(at(a.ip, 53))))
	l.expect("and again", near(), "a "+client.ip)
}

// TestServicesOfTwoNodes: two nodes on one machine have the same Service address; the pods of each reach their own.
func TestServicesOfTwoNodes(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	one, two := l.node("ledge0", "10.77.0.0/24"), l.node("br-two", "10.78.0.0/24")
	for _, n := range []struct {
		s      *Setup
		bridge string
	}{{one, "ledge0"}, {two, "br-two"}} {
		p, client := l.pod(n.s, "server-of-"+n.bridge), l.pod(n.s, "client-of-"+n.bridge)
		l.serve(p.NetNS, n.bridge, "tcp", ":80")
		f := l.forwarder(n.bridge)
		l.must(f.Update(t.Context(), []network.Service{inside("default/web", clusterIP, "TCP", at(p.ip, 80))}))
		defer func() {
			who, _, _ := strings.Cut(l.ask(client.NetNS, "tcp", clusterIP+":80"), " ")
			l.expect("a pod of "+n.bridge, who, n.bridge)
		}()
	}
}
