package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ledge/network"
)

func book(t *testing.T, cidr string) *Book {
	t.Helper()
	b, err := NewBook(netip.MustParsePrefix(cidr), netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNewBookRefuses(t *testing.T) {
	for _, c := range []netip.Prefix{{}, netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("10.0.0.0/30"),
		netip.MustParsePrefix("0.0.0.0/0")} {
		if _, err := NewBook(c, netip.Prefix{}); err == nil {
			t.Errorf("%s was accepted", c)
		}
	}
}

func TestClaimWalksTheWholeNetworkOnce(t *testing.T) {
	b := book(t, "10.42.7.9/29") // masked: .8 to .15; gateway .9; pods .10 to .14
	if b.Gateway() != netip.MustParseAddr("10.42.7.9") {
		t.Fatal("gateway", b.Gateway())
	}
	var got []string
	for i := range 5 {
		e, fresh, err := b.Claim(network.Pod{UID: fmt.Sprint(i)})
		if err != nil || !fresh {
			t.Fatal(fresh, err)
		}
		got = append(got, e.Addr.String())
	}
	if want := []string{"10.42.7.10", "10.42.7.11", "10.42.7.12", "10.42.7.13", "10.42.7.14"}; !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
	_, _, err := b.Claim(network.Pod{UID: "more", Namespace: "a", Name: "b"})
	if !errors.Is(err, network.ErrExhausted) || !strings.Contains(err.Error(), "all 5 of 10.42.7.8/29 are taken") {
		t.Fatal(err)
	}
	b.Release("1")
	b.Release("3")
	b.Release("unknown")
	for _, want := range []string{"10.42.7.11", "10.42.7.13"} { // after .14 comes the begin again
		e, _, err := b.Claim(network.Pod{UID: "new" + want})
		if err != nil || e.Addr.String() != want {
			t.Fatal(e.Addr, err)
		}
	}
}

func TestFreedAddressRests(t *testing.T) {
	b := book(t, "10.42.0.0/24")
	first, _, _ := b.Claim(network.Pod{UID: "a"})
	b.Release("a")
	for i := range 252 {
		uid := fmt.Sprint(i)
		e, _, err := b.Claim(network.Pod{UID: uid})
		if err != nil || e.Addr == first.Addr {
			t.Fatalf("claim %d: %s, %v", i, e.Addr, err)
		}
		b.Release(uid)
	}
	if e, _, _ := b.Claim(network.Pod{UID: "b"}); e.Addr != first.Addr {
		t.Fatal("the walk does not come round:", e.Addr)
	}
}

func TestClaimAgainKeepsAddressAndTakesNewPorts(t *testing.T) {
	b := book(t, "10.42.0.0/24")
	one, _, _ := b.Claim(network.Pod{UID: "a", Ports: []network.Port{{HostPort: 80, ContainerPort: 8080}}})
	two, fresh, err := b.Claim(network.Pod{UID: "a", NetNS: "/x", Ports: []network.Port{{HostPort: 81, ContainerPort: 8080, Protocol: "udp"}}})
	if err != nil || fresh || one.Addr != two.Addr || two.Pod.NetNS != "/x" {
		t.Fatal(two, fresh, err)
	}
	if _, _, err := b.Claim(network.Pod{UID: "b", Ports: []network.Port{{HostPort: 80, ContainerPort: 1}}}); err != nil {
		t.Fatal("port 80 was given up:", err)
	}
}

// N-10.11: same protocol and host port, equal address or either on all.
func TestPortConflicts(t *testing.T) {
	ip := netip.MustParseAddr
	base := network.Port{HostPort: 80, ContainerPort: 8080, Protocol: "TCP"}
	on := func(p network.Port, a string) network.Port { p.HostIP = ip(a); return p }
	other := base
	other.HostPort = 81
	udp := base
	udp.Protocol = "UDP"
	lower := base
	lower.Protocol = "tcp"
	none := base
	none.Protocol = ""
	for _, c := range []struct {
		name     string
		a, b     network.Port
		conflict bool
	}{
		{"same", base, base, true}, {"lower case", base, lower, true}, {"TCP is the default", base, none, true},
		{"other port", base, other, false}, {"other protocol", base, udp, false},
		{"all and one", base, on(base, "192.0.2.1"), true}, {"one and all", on(base, "192.0.2.1"), base, true},
		{"one and 0.0.0.0", on(base, "192.0.2.1"), on(base, "0.0.0.0"), true},
		{"one and ::", on(base, "192.0.2.1"), on(base, "::"), true},
		{"one and another", on(base, "192.0.2.1"), on(base, "192.0.2.2"), false},
		{"mapped", on(base, "192.0.2.1"), on(base, "::ffff:192.0.2.1"), true},
	} {
		b := book(t, "10.42.0.0/24")
		if _, _, err := b.Claim(network.Pod{UID: "a", Namespace: "x", Name: "first", Ports: []network.Port{c.a}}); err != nil {
			t.Fatal(c.name, err)
		}
		_, _, err := b.Claim(network.Pod{UID: "b", Ports: []network.Port{c.b}})
		if got := errors.Is(err, network.ErrPortInUse); got != c.conflict {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.conflict && !strings.Contains(err.Error(), "pod x/first") {
			t.Errorf("%s: the owner is not named: %v", c.name, err)
		}
		if _, known := b.Get("b"); known == c.conflict {
			t.Errorf("%s: known %v", c.name, known)
		}
		_, _, err = book(t, "10.42.0.0/24").Claim(network.Pod{UID: "a", Ports: []network.Port{c.a, c.b}})
		if got := errors.Is(err, network.ErrPortInUse); got != c.conflict {
			t.Errorf("%s, in one pod: %v", c.name, err)
		}
	}
}

func TestBadPortsAreRefused(t *testing.T) {
	for _, p := range []network.Port{
		{HostPort: 0, ContainerPort: 1}, {HostPort: 1}, {HostPort: 1, ContainerPort: 1, Protocol: "ICMP"},
		{HostPort: 1, ContainerPort: 1, HostIP: netip.MustParseAddr("fd00::1")},
	} {
		b := book(t, "10.42.0.0/24")
		if _, _, err := b.Claim(network.Pod{UID: "a", Ports: []network.Port{p}}); err == nil {
			t.Errorf("%+v was accepted", p)
		}
		if len(b.Entries()) != 0 {
			t.Errorf("%+v left an entry", p)
		}
	}
	if _, _, err := book(t, "10.42.0.0/24").Claim(network.Pod{}); err == nil {
		t.Error("a pod without UID was accepted")
	}
}

func TestRestore(t *testing.T) {
	b := book(t, "10.42.0.0/24")
	at := func(uid, a string) Entry { return Entry{Pod: network.Pod{UID: uid}, Addr: netip.MustParseAddr(a)} }
	for _, e := range []Entry{at("a", "10.42.0.9"), at("a", "10.42.0.9"), at("b", "10.42.0.30")} {
		if err := b.Restore(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []Entry{at("c", "10.42.0.9"), at("c", "10.42.0.1"), at("c", "10.42.0.0"), at("c", "10.42.0.255"),
		at("c", "10.42.1.5"), at("a", "10.42.0.10"), at("c", "fd00::5"), {Pod: network.Pod{UID: "c"}}} {
		if err := b.Restore(e); err == nil {
			t.Errorf("restored %v", e)
		}
	}
	if e, _, _ := b.Claim(network.Pod{UID: "n"}); e.Addr.String() != "10.42.0.31" {
		t.Error("the walk goes on behind what was restored:", e.Addr)
	}
	if got := b.Others([]string{"b"}); !slices.Equal(got, []string{"a", "n"}) {
		t.Error(got)
	}
}

// Whatever happens, nobody shares an address or a port, and nobody has one he may not have.
func TestBookProperties(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	b := book(t, "10.42.0.0/27")
	had := map[string]netip.Addr{}
	for step := range 20000 {
		uid := fmt.Sprint(r.IntN(40))
		if r.IntN(3) == 0 {
			b.Release(uid)
			delete(had, uid)
			continue
		}
		var ports []network.Port
		if r.IntN(2) == 0 {
			ports = []network.Port{{HostPort: uint16(1 + r.IntN(8)), ContainerPort: 1, Protocol: []string{"TCP", "UDP"}[r.IntN(2)]}}
		}
		e, _, err := b.Claim(network.Pod{UID: uid, Ports: ports})
		if err != nil {
			continue
		}
		if a, ok := had[uid]; ok && a != e.Addr {
			t.Fatalf("seed %d step %d: %s moved from %s to %s", seed, step, uid, a, e.Addr)
		}
		had[uid] = e.Addr
		seenAddr, seenPort := map[netip.Addr]bool{b.Gateway(): true, b.CIDR().Addr(): true}, map[string]bool{}
		for _, e := range b.Entries() {
			if seenAddr[e.Addr] || !b.CIDR().Contains(e.Addr) {
				t.Fatalf("seed %d step %d: address %s", seed, step, e.Addr)
			}
			seenAddr[e.Addr] = true
			for _, p := range e.Pod.Ports {
				if seenPort[PortString(p)] {
					t.Fatalf("seed %d step %d: port %s", seed, step, PortString(p))
				}
				seenPort[PortString(p)] = true
			}
		}
	}
}

func TestChooseCIDR(t *testing.T) {
	for _, c := range []struct {
		used []string
		want string
	}{
		{nil, "10.42.0.0/24"},
		{[]string{"0.0.0.0/0", "192.168.1.0/24", "fd00::/8", "::/0"}, "10.42.0.0/24"},
		{[]string{"10.42.0.0/24"}, "10.42.1.0/24"},
		{[]string{"10.42.0.77/32", "10.42.1.0/25", "10.42.2.0/23"}, "10.42.4.0/24"},
		{[]string{"10.42.0.0/16"}, "10.142.0.0/24"},
		{[]string{"10.0.0.0/8"}, "172.29.0.0/24"},
		{[]string{"10.0.0.0/8", "172.16.0.0/12"}, "192.168.255.0/24"},
		{[]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.192.0/18"}, "192.168.191.0/24"},
		{[]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}, "invalid Prefix"},
		{[]string{"0.0.0.0/1", "128.0.0.0/1"}, "10.42.0.0/24"}, // a VPN's default route
	} {
		var used []netip.Prefix
		for _, u := range c.used {
			used = append(used, netip.MustParsePrefix(u))
		}
		if got := ChooseCIDR(used).String(); got != c.want {
			t.Errorf("used %v: %s, want %s", c.used, got, c.want)
		}
	}
}

// TestDualBook: a second address from a second network, with the same care.
func TestDualBook(t *testing.T) {
	b, err := NewBook(netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd42:0:0:7::99/64"))
	if err != nil || b.Gateway6() != netip.MustParseAddr("fd42:0:0:7::1") || b.CIDR6() != netip.MustParsePrefix("fd42:0:0:7::/64") ||
		!b.Dual() {
		t.Fatalf("%v %v %v", b.Gateway6(), b.CIDR6(), err)
	}
	first, _, err := b.Claim(network.Pod{UID: "a"})
	if err != nil || first.Addr6 != netip.MustParseAddr("fd42:0:0:7::2") || len(first.Addrs()) != 2 {
		t.Fatalf("%+v %v", first, err)
	}
	// Restored from before there was IPv6, from another network, and whole.
	for uid, six := range map[string]string{"old": "", "moved": "fd99::5", "whole": "fd42:0:0:7::abc", "taken": "fd42:0:0:7::2",
		"far": "fd42:0:0:7:1::2"} {
		e := Entry{Pod: network.Pod{UID: uid}, Addr: b.pool.at(uint32(100 + len(b.entries)))}
		if six != "" {
			e.Addr6 = netip.MustParseAddr(six)
		}
		if err := b.Restore(e); err != nil {
			t.Errorf("%s: %v", uid, err)
		}
		again, fresh, err := b.Claim(network.Pod{UID: uid})
		if err != nil || fresh || again.Addr != e.Addr || !b.CIDR6().Contains(again.Addr6) || (again.Addr6 == e.Addr6) != (uid == "whole") {
			t.Errorf("%s: %+v %v", uid, again, err)
		}
	}
	seen := map[netip.Addr]bool{}
	for _, e := range b.Entries() {
		if seen[e.Addr6] {
			t.Errorf("%s is given out twice", e.Addr6)
		}
		seen[e.Addr6] = true
		b.Release(e.Pod.UID)
	}
	if len(b.pool6.used)+len(b.pool.used) != 0 {
		t.Errorf("still used: %v %v", b.pool.used, b.pool6.used)
	}
	for _, bad := range []string{"10.0.0.0/24", "fe80::/64", "fd42::/126", "fd42::/40", "ff02::/64", "::ffff:10.0.0.0/120"} {
		if _, err := NewBook(netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestPodNetworks(t *testing.T) {
	for text, good := range map[string]bool{
		"10.42.0.0/24": true, "100.64.0.0/10": true, "192.168.4.0/29": true, "203.0.113.0/24": true,
		"10.0.0.0/30": false, "0.0.0.0/8": false, "127.0.0.0/24": false, "169.254.3.0/24": false, "224.0.0.0/24": false, "240.0.0.0/24": false,
	} {
		if err := CheckCIDRs(netip.MustParsePrefix(text), netip.Prefix{}); (err == nil) != good {
			t.Error(text, err)
		}
	}
}
