package bridge

import (
	"net/netip"
	"strings"
	"testing"

	"ledge/network"
	"ledge/network/nft"
	"ledge/network/plan"
)

func entry(uid, addr string, ports ...network.Port) plan.Entry {
	return plan.Entry{Pod: network.Pod{UID: uid, Namespace: "default", Name: uid, Ports: ports}, Addr: netip.MustParseAddr(addr)}
}

func TestCompile(t *testing.T) {
	one := network.Port{HostIP: netip.MustParseAddr("192.0.2.1"), HostPort: 53, ContainerPort: 5353, Protocol: "UDP"}
	got := compile("ledge_ledge0", "ledge0", "lvanchor", netip.MustParsePrefix("10.42.0.0/24"),
		[]plan.Entry{entry("web", "10.42.0.2", tcp(8080, 80), network.Port{HostPort: 9, ContainerPort: 9, Protocol: "SCTP"}),
			entry("dns", "10.42.0.3", one), entry("none", "10.42.0.4")}, []string{"eth0", "wlan0"},
		[]netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("fd42:1::/64")}).String()
	want := `table ip ledge_ledge0
chain hostports
	ip protocol 6 th dport 8080 dnat to 10.42.0.2:80
	ip protocol 132 th dport 9 dnat to 10.42.0.2:9
	ip daddr 192.0.2.1/32 ip protocol 17 th dport 53 dnat to 10.42.0.3:5353
chain stay
	oifname eth0 drop
	oifname wlan0 drop
chain peers
	ip daddr 10.42.1.0/24 accept
chain hairpins
	ip saddr 10.42.0.2/32 ip daddr 10.42.0.2/32 masquerade
	ip saddr 10.42.0.3/32 ip daddr 10.42.0.3/32 masquerade
	ip saddr 10.42.0.4/32 ip daddr 10.42.0.4/32 masquerade
chain guard type filter hook prerouting priority -300
	iifname ledge0 ip daddr 127.0.0.0/8 drop
	iifname lvanchor drop
chain prerouting type nat hook prerouting priority -100
	fib daddr type local jump hostports
chain output type nat hook output priority -100
	ip daddr 127.0.0.1/32 jump hostports
	ip daddr != 127.0.0.0/8 fib daddr type local jump hostports
chain postrouting type nat hook postrouting priority 100
	oifname != ledge0 ip saddr 10.42.0.0/24 jump peers
	oifname != ledge0 ip saddr 10.42.0.0/24 masquerade
	oifname ledge0 ip saddr 127.0.0.0/8 masquerade
	oifname ledge0 ip saddr 10.42.0.0/24 ct status dnat jump hairpins
chain uplinks type filter hook forward priority 0
	ct status dnat accept
	iifname eth0 jump stay
	iifname wlan0 jump stay
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A rule's comment must change with what the rule does, or a stale rule would be taken for the wanted one.
func TestCommentsTellRulesApart(t *testing.T) {
	base := rule{src: loopback, verdict: dnat, to: netip.MustParseAddrPort("10.42.0.2:80"), note: "default/web"}
	rules := []rule{base}
	for _, change := range []func(*rule){
		func(r *rule) { r.iif = "a" }, func(r *rule) { r.oif = "a" }, func(r *rule) { r.notOIF = "a" },
		func(r *rule) { r.src = localhost }, func(r *rule) { r.dst = localhost }, func(r *rule) { r.notDst = localhost },
		func(r *rule) { r.dstLocal = true }, func(r *rule) { r.dnated = true }, func(r *rule) { r.proto = 6 },
		func(r *rule) { r.dport = 6 }, func(r *rule) { r.verdict = drop }, func(r *rule) { r.verdict = pass },
		func(r *rule) { r.verdict, r.chain = jump, "a" }, func(r *rule) { r.verdict, r.chain = jump, "b" },
		func(r *rule) { r.to = netip.MustParseAddrPort("10.42.0.3:80") }, func(r *rule) { r.to = netip.MustParseAddrPort("10.42.0.2:81") },
		func(r *rule) { r.note = "default/other" },
	} {
		r := base
		change(&r)
		rules = append(rules, r)
	}
	seen := map[string]int{}
	for i, r := range rules {
		if j, dup := seen[r.comment()]; dup {
			t.Errorf("rules %d and %d have one comment: %s", i, j, r.comment())
		}
		seen[r.comment()] = i
	}
	long := rule{verdict: drop, note: strings.Repeat("x", 500)}
	if n := len(long.comment()); n > 120 {
		t.Error("comment of", n, "bytes")
	}
	for in, want := range map[string]string{"": "", "\x00": "", "\x00\x05ab": "", "\x00\x03ab\x00": "ab", "\x07\x01x\x00\x01y": "y"} {
		if got := nft.Comment([]byte(in)); got != want {
			t.Errorf("comment of %q: %q, want %q", in, got, want)
		}
	}
}

func TestChanges(t *testing.T) {
	built := func(n ...uint16) table {
		var ports []network.Port
		for _, p := range n {
			ports = append(ports, tcp(p, p))
		}
		return compile("t", "ledge0", "lva", netip.MustParsePrefix("10.42.0.0/24"), []plan.Entry{entry("a", "10.42.0.2", ports...)}, nil, nil)
	}
	for _, c := range []struct {
		name      string
		old, next []uint16
		flush     bool
		add       int
	}{
		{"a pod came", []uint16{1, 2}, []uint16{1, 2, 3}, false, 1}, {"the first", nil, []uint16{1}, false, 1},
		{"one went", []uint16{1, 2, 3}, []uint16{1, 3}, true, 2}, {"the last went", []uint16{1}, nil, true, 0},
		{"one changed", []uint16{1, 2}, []uint16{1, 3, 4}, true, 3}, {"one in between", []uint16{1, 3}, []uint16{1, 2, 3}, true, 3},
	} {
		got := built(c.next...).changes(built(c.old...))
		if len(got) != 1 || got[0].chain != "hostports" || got[0].flush != c.flush || len(got[0].add) != c.add {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := built(1, 2).changes(built(1, 2)); got != nil {
		t.Errorf("nothing changed: %+v", got)
	}
}
