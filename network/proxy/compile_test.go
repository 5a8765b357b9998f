package proxy

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/network"
)

func TestCompile(t *testing.T) {
	a, b := at("10.42.0.2", 80), at("10.42.0.3", 80)
	both := []netip.AddrPort{a, b}
	to, node := at("10.96.0.1", 80), at("0.0.0.0", 30080)
	for _, c := range []struct {
		what string
		f    network.Forward
		want string // set:chain or answer, or the number of elements
	}{
		{"inside", network.Forward{To: to, Near: both}, "near:pick-2 endpoints*2"},
		{"none", network.Forward{To: to}, "refused:refuse"},
		{"none here", network.Forward{To: to, Drop: true}, "refused:drop"},
		{"sticky", network.Forward{To: to, Near: both, Sticky: time.Minute}, "near:pick-2-stick60 endpoints*2 live*2"},
		{"node port", network.Forward{To: node, Near: both, Far: both, Outside: true, Masquerade: true},
			"near:pick-2-node endpoints*2 far:pick-2-node-mask"},
		{"node port, Local", network.Forward{To: node, Near: both, Far: both[:1], Outside: true},
			"near:pick-2-node endpoints*2 endpoints*1 far:pick-1-node-far"},
		{"node port, Local, none here", network.Forward{To: node, Near: both, Outside: true, Drop: true},
			"near:pick-2-node endpoints*2 refused:drop"},
		{"sources", network.Forward{To: to, Near: both, Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			"near:pick-2 endpoints*2 guarded:guard-"},
	} {
		c.f.Protocol = "TCP"
		var got []string
		for _, e := range compile(network.Service{Forwards: []network.Forward{c.f}}).elements {
			text := e.set
			switch e.set {
			case setNear, setFar, setRefused:
				text += ":" + e.value
			case setGuarded:
				text += ":" + e.value[:len(guardPrefix)]
			}
			got = append(got, text)
		}
		var want []string
		for _, w := range strings.Fields(c.want) {
			set, n, many := strings.Cut(w, "*")
			if !many {
				n = "1"
			}
			want = append(want, slices.Repeat([]string{set}, int(n[0]-'0'))...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.what, got, want)
		}
	}
}

// TestNamesSayAll: chains of one name have the same rules, so that none is ever changed.
func TestNamesSayAll(t *testing.T) {
	seen := map[string]special{}
	for _, n := range []int{1, 2, 11} {
		for bits := range 8 {
			for _, stick := range []uint32{0, 1, 11} {
				s := special{n: n, node: bits&1 > 0, far: bits&2 > 0, mask: bits&4 > 0, stick: stick}
				if _, twice := seen[s.name()]; twice {
					t.Errorf("%s is the name of two", s.name())
				}
				seen[s.name()] = s
			}
		}
	}
}

func TestKeys(t *testing.T) {
	for _, to := range []netip.AddrPort{at("10.96.0.1", 53), at("fd96::1", 65535), at("0.0.0.0", 30000)} {
		for name, number := range protocols {
			v6 := to.Addr().Is6()
			got, protocol, rest := parseKey(keyOf(to, name)+"rest", v6)
			if got != to || protocol != number || rest != "rest" || parseEndpoint(endpointOf(to), v6) != to {
				t.Errorf("%v %s: %v %d %q", to, name, got, protocol, rest)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x0c\x00\x02\x80\x08\x00\x01\x00\xff\xff\xff\xfb"), false)
	f.Add([]byte("\t\x000000000"), false)
	f.Fuzz(func(_ *testing.T, data []byte, v6 bool) {
		verdictOf(data)
		parseKey(string(data), v6)
		parseEndpoint(string(data), v6)
	})
}

// TestFlows: which tracked flows are led wrong after a change.
func TestFlows(t *testing.T) {
	a, b, to := at("10.42.0.2", 53), at("10.42.0.3", 53), at("10.96.0.1", 53)
	svc := func(protocol string, ends ...netip.AddrPort) []element {
		return compile(network.Service{Forwards: []network.Forward{{To: to, Protocol: protocol, Near: ends}}}).elements
	}
	flow := func(protocol uint8, to, from netip.AddrPort) *netlink.ConntrackFlow {
		f := &netlink.ConntrackFlow{}
		f.Forward.Protocol, f.Forward.DstIP, f.Forward.DstPort = protocol, net.IP(to.Addr().AsSlice()), to.Port()
		f.Reverse.SrcIP, f.Reverse.SrcPort = net.IP(from.Addr().AsSlice()), from.Port()
		return f
	}
	for _, c := range []struct {
		what     string
		old, now []element
		flow     *netlink.ConntrackFlow
		want     bool
	}{
		{"its endpoint went", svc("UDP", a, b), svc("UDP", b), flow(unix.IPPROTO_UDP, to, a), true},
		{"another's went", svc("UDP", a, b), svc("UDP", b), flow(unix.IPPROTO_UDP, to, b), false},
		{"all went", svc("UDP", a), svc("UDP"), flow(unix.IPPROTO_UDP, to, a), true},
		{"the service went", svc("UDP", a), nil, flow(unix.IPPROTO_UDP, to, a), true},
		{"one came to one", svc("UDP", a), svc("UDP", a, b), flow(unix.IPPROTO_UDP, to, a), false},
		{"the first came", svc("UDP"), svc("UDP", a), flow(unix.IPPROTO_UDP, to, to), true},
		{"one came, and a flow that is not translated", svc("UDP", a), svc("UDP", a, b), flow(unix.IPPROTO_UDP, to, to), false},
		{"TCP ends by itself", svc("TCP", a), svc("TCP"), flow(unix.IPPROTO_TCP, to, a), false},
		{"another service", svc("UDP", a), svc("UDP"), flow(unix.IPPROTO_UDP, at("10.96.0.2", 53), a), false},
	} {
		var change batch
		change.differ(c.old, c.now)
		if got := flowsOf(change).MatchConntrackFlow(c.flow); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
