package bridge

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"ledge/network/plan"
)

// rule is one nftables rule as data. Every field that is set must match.
type rule struct {
	iif, oif string       // interface names
	notOIF   string       // not this outgoing interface
	src, dst netip.Prefix // of the table's family
	notDst   netip.Prefix
	dstLocal bool  // the destination is an address of the host
	dnated   bool  // the connection's destination was translated
	proto    uint8 // IPPROTO_*
	dport    uint16
	verdict  verdict
	to       netip.AddrPort // of dnat
	chain    string         // of jump
	note     string         // for people who list the rules
}

type verdict string

const (
	pass       verdict = "accept"
	drop       verdict = "drop"
	masquerade verdict = "masquerade"
	dnat       verdict = "dnat"
	jump       verdict = "jump"
)

// chain is one nftables chain; without a hook it is only jumped to.
type chain struct {
	name, kind, hook string
	priority         int32
	rules            []rule
}

// table is everything an instance wants of nftables.
type table struct {
	name   string
	v6     bool
	chains []chain
}

// chainUplinks names in its rules the interfaces that forward because of us.
const chainUplinks = "uplinks"

const (
	priorityRaw     = -300
	priorityDestNAT = -100
	priorityFilter  = 0
	prioritySrcNAT  = 100
)

var (
	loopback  = netip.MustParsePrefix("127.0.0.0/8")
	localhost = netip.MustParsePrefix("127.0.0.1/32")
)

// compile says what the table must be. anchor is the interface that hears broadcasts twice. uplinks are the interfaces that forward
// packets because this node had them do so. peers are the pod networks of other boards, where there is a way to them.
func compile(name, bridge, anchor string, cidr netip.Prefix, entries []plan.Entry, uplinks []string, peers []netip.Prefix) table {
	toPods, toPeers, toSelf := hostPorts(entries, false), keepAddress(peers, false), hairpins(entries, false)
	toLocal := rule{dstLocal: true, verdict: jump, chain: toPods.name}
	// Of the loopback network only 127.0.0.1 is translated: 127.0.0.53 and the like are the host's own resolvers,
	// and a DNS pod on port 53 must not take them over.
	toLocalhost, toOther := rule{dst: localhost, verdict: jump, chain: toPods.name}, toLocal
	toOther.notDst = loopback
	stay, uplink := keepApart(uplinks)
	return table{name: name, chains: []chain{
		toPods, stay, toPeers, toSelf,
		// route_localnet on the bridge, without which 127.0.0.1 cannot reach host ports, would let pods reach what
		// listens on the host's loopback only (CVE-2020-8558).
		{name: "guard", kind: "filter", hook: "prerouting", priority: priorityRaw, rules: []rule{
			{iif: bridge, dst: loopback, verdict: drop, note: "loopback is the host's"},
			{iif: anchor, verdict: drop, note: "only keeps the bridge's carrier"}}},
		{name: "prerouting", kind: "nat", hook: "prerouting", priority: priorityDestNAT, rules: []rule{toLocal}},
		{name: "output", kind: "nat", hook: "output", priority: priorityDestNAT, rules: []rule{toLocalhost, toOther}},
		{name: "postrouting", kind: "nat", hook: "postrouting", priority: prioritySrcNAT, rules: []rule{
			{src: cidr, notOIF: bridge, verdict: jump, chain: toPeers.name},
			{src: cidr, notOIF: bridge, verdict: masquerade, note: "pods to elsewhere"},
			{src: loopback, oif: bridge, verdict: masquerade, note: "127.0.0.1 to host ports"},
			{src: cidr, oif: bridge, dnated: true, verdict: jump, chain: toSelf.name}}},
		uplink,
	}}
}

// keepQuestions has what pods ask at the board's own address in their network stay with the board: a pod that answers for the
// local network has port 53 of all other addresses.
func (t *table) keepQuestions(bridge string, gateway netip.Addr) {
	for i := range t.chains {
		if c := &t.chains[i]; c.name == "prerouting" {
			own := netip.PrefixFrom(gateway, gateway.BitLen())
			for _, proto := range []uint8{17, 6} {
				c.rules = slices.Insert(c.rules, 0, rule{iif: bridge, dst: own, proto: proto, dport: 53, verdict: pass, note: "names"})
			}
		}
	}
}

// hostPorts are the translations to pods, in one family.
func hostPorts(entries []plan.Entry, v6 bool) chain {
	out := chain{name: "hostports"}
	for _, e := range entries {
		to := e.Addr
		if v6 {
			to = e.Addr6
		}
		for _, p := range e.Pod.Ports {
			if !to.IsValid() || p.HostIP.IsValid() && p.HostIP.Is6() != v6 {
				continue
			}
			r := rule{proto: protocols[p.Protocol], dport: p.HostPort, verdict: dnat,
				to: netip.AddrPortFrom(to, p.ContainerPort), note: e.Pod.Namespace + "/" + e.Pod.Name}
			if p.HostIP.IsValid() {
				r.dst = netip.PrefixFrom(p.HostIP, p.HostIP.BitLen())
			}
			out.rules = append(out.rules, r)
		}
	}
	return out
}

// keepApart: forwarding is needed between these interfaces and pods. Among themselves they keep not forwarding.
func keepApart(uplinks []string) (stay, uplink chain) {
	stay = chain{name: "stay"}
	uplink = chain{name: chainUplinks, kind: "filter", hook: "forward", priority: priorityFilter}
	if len(uplinks) > 0 { // a Service of this board leads to another board's pods
		uplink.rules = append(uplink.rules, rule{dnated: true, verdict: pass, note: "this board sent it there"})
	}
	for _, u := range uplinks {
		uplink.rules = append(uplink.rules, rule{iif: u, verdict: jump, chain: stay.name})
		stay.rules = append(stay.rules, rule{oif: u, verdict: drop, note: "was not forwarding before"})
	}
	return stay, uplink
}

// keepAddress: pods of other boards see who talks to them.
func keepAddress(peers []netip.Prefix, v6 bool) chain {
	out := chain{name: "peers"}
	for _, p := range peers {
		if p.Addr().Is6() == v6 {
			out.rules = append(out.rules, rule{dst: p, verdict: pass, note: "pods of another board"})
		}
	}
	return out
}

// hairpins: a pod that reaches itself by a host port or a Service would not believe a packet from its own address. Others are seen as
// they are: their answers come back by the board.
func hairpins(entries []plan.Entry, v6 bool) chain {
	out := chain{name: "hairpins"}
	for _, e := range entries {
		a := e.Addr
		if v6 {
			a = e.Addr6
		}
		if a.IsValid() {
			self := netip.PrefixFrom(a, a.BitLen())
			out.rules = append(out.rules, rule{src: self, dst: self, verdict: masquerade, note: "a pod to itself"})
		}
	}
	return out
}

var protocols = map[string]uint8{"TCP": 6, "UDP": 17, "SCTP": 132}

// match is the left half of the rule, in nft's words.
func (r rule) match() string {
	var out []string
	add := func(yes bool, format string, args ...any) {
		if yes {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(r.iif != "", "iifname %s", r.iif)
	add(r.oif != "", "oifname %s", r.oif)
	add(r.notOIF != "", "oifname != %s", r.notOIF)
	add(r.src.IsValid(), ipOf(r.src)+" saddr %s", r.src)
	add(r.dst.IsValid(), ipOf(r.dst)+" daddr %s", r.dst)
	add(r.notDst.IsValid(), ipOf(r.notDst)+" daddr != %s", r.notDst)
	add(r.dstLocal, "fib daddr type local")
	add(r.dnated, "ct status dnat")
	add(r.proto != 0, "ip protocol %d", r.proto)
	add(r.dport != 0, "th dport %d", r.dport)
	return strings.Join(out, " ")
}

// ipOf is nft's word for a family.
func ipOf(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6"
	}
	return "ip"
}

func (r rule) String() string {
	out := r.match() + " " + string(r.verdict)
	switch r.verdict {
	case dnat:
		out += " to " + r.to.String()
	case jump:
		out += " " + r.chain
	}
	return out
}

// comment stands beside the rule in the kernel: for people, and (the mark) to see whether it is still this rule.
func (r rule) comment() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.String()))
	note := r.note
	if len(note) > 100 { // the kernel keeps 256 bytes, nft shows 128
		note = note[:100]
	}
	return strings.TrimSpace(fmt.Sprintf("%s #%08x", note, h.Sum32()))
}

// change is what must be done to one chain: add these rules at its end, after emptying it or not.
type change struct {
	chain string
	flush bool
	add   []rule
}

// changes turn old, which has the same chains, into t. Mostly a pod came, and its rules go to the end.
func (t table) changes(old table) []change {
	var out []change
	for i, c := range t.chains {
		have := old.chains[i].rules
		switch n := len(have); {
		case slices.Equal(c.rules, have):
		case n < len(c.rules) && slices.Equal(c.rules[:n], have):
			out = append(out, change{chain: c.name, add: c.rules[n:]})
		default:
			out = append(out, change{chain: c.name, flush: true, add: c.rules})
		}
	}
	return out
}

func (t table) String() string {
	var b strings.Builder
	family := "ip"
	if t.v6 {
		family = "ip6"
	}
	fmt.Fprintf(&b, "table %s %s\n", family, t.name)
	for _, c := range t.chains {
		fmt.Fprintf(&b, "chain %s", c.name)
		if c.hook != "" {
			fmt.Fprintf(&b, " type %s hook %s priority %d", c.kind, c.hook, c.priority)
		}
		b.WriteByte('\n')
		for _, r := range c.rules {
			fmt.Fprintf(&b, "\t%s\n", r)
		}
	}
	return b.String()
}
