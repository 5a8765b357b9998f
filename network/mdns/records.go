package mdns

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
)

// group is a label, wished or one that was free, and all names that come from it.
type group struct {
	label string // as it is wished
	try   int    // 0: it is free as far as is known; else another has it, and this is what follows it
	board bool
	addrs []netip.Addr // of an alias
}

// has is the label that the group tries or has.
func (g *group) has() string {
	if g.try == 0 {
		return g.label
	}
	end := "-" + strconv.Itoa(g.try)
	return g.label[:min(len(g.label), 63-len(end))] + end
}

// next has it try another label.
func (g *group) next() {
	if g.try = max(g.try, 1) + 1; g.try > mostTry {
		g.try = 2
	}
}

// own is a record of this board on a link.
type own struct {
	record
	of     *group
	shared bool // others have records of this name and type
	lacks  bool // it says that a host has no addresses of one family
}

// domain is where all names are.
const domain = "local"

// discard is the port of a service that is none.
const discard = 9

// records are all that the board has on a link.
func (g *group) records(want Wanted, link Link) []own {
	host := nameOf(g.has(), domain)
	if !g.board {
		return g.unique(addresses(host, g.addrs))
	}
	var here []netip.Addr
	for _, p := range link.Addresses[:min(len(link.Addresses), MostAddresses)] {
		here = append(here, p.Addr())
	}
	out := g.unique(addresses(host, here))
	all := nameOf("_services", "_dns-sd", "_udp", domain)
	for _, s := range want.offers() {
		kind, name := nameOf(s.kind, "_tcp", domain), nameOf(g.has(), s.kind, "_tcp", domain)
		out = append(out,
			own{record{all, typePTR, classIN, serviceTTL, kind}, g, true, false},
			own{record{kind, typePTR, classIN, serviceTTL, name}, g, true, false})
		out = append(out, g.unique([]record{{name, typeSRV, classIN, hostTTL, srv(s.port, host)},
			{name, typeTXT, classIN, serviceTTL, txt(s.text)}})...)
	}
	return out
}

// offer is something that the board offers.
type offer struct {
	kind string
	port uint16
	text []string
}

func (w Wanted) offers() []offer {
	out := []offer{{"_ledge", w.Port, []string{"version=" + w.Version, "state=" + w.State}}, {"_workstation", discard, nil}}
	if w.Page != 0 {
		out = append(out, offer{"_https", w.Page, []string{"path=/"}})
	}
	return out
}

// unique gives records of one name, which nobody else may have, and one more that says that the name has no others.
func (g *group) unique(list []record) (out []own) {
	if len(list) == 0 {
		return nil
	}
	name, ttl := list[0].name, list[0].ttl
	var kinds [8]byte
	last := 0
	for _, r := range list {
		r.class |= topBit
		out = append(out, own{record: r, of: g})
		kinds[r.kind/8] |= 0x80 >> (r.kind % 8)
		last = max(last, int(r.kind/8)+1)
	}
	none := record{name, typeNSEC, classIN | topBit, ttl, name + string(append([]byte{0, byte(last)}, kinds[:last]...))}
	const a, aaaa = 0x40, 0x08 // their bits
	return append(out, own{record: none, of: g, lacks: (kinds[0]&a != 0) != (kinds[3]&aaaa != 0)})
}

func addresses(name string, addrs []netip.Addr) (out []record) {
	for _, a := range addrs {
		kind := uint16(typeA)
		if a.Is6() {
			kind = typeAAAA
		}
		r := record{name, kind, classIN, hostTTL, string(a.AsSlice())}
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// srv is where a service is: priority, weight, port, host.
func srv(port uint16, host string) string {
	return string(binary.BigEndian.AppendUint16(make([]byte, 4), port)) + host
}

// txt is what is said of a service. One without a word has an empty one.
func txt(words []string) (out string) {
	for _, w := range words {
		w = w[:min(len(w), 255)]
		out += string([]byte{byte(len(w))}) + w
	}
	if out == "" {
		return "\x00"
	}
	return out
}
