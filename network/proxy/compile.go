package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ledge/network"
)

// The sets of a table. The key of most is where a client connects: address . protocol . port.
const (
	setNear      = "near"       // key : chain, for pods of this board and for the machine
	setFar       = "far"        // key : chain, for everybody else
	setEndpoints = "endpoints"  // key . index : endpoint
	setLive      = "live"       // key . endpoint, where clients stay with theirs
	setAffinity  = "affinity"   // client . key : endpoint, filled by the kernel
	setRefused   = "refused"    // key : what those get for whom there is no endpoint
	setGuarded   = "guarded"    // key : chain that lets only some sources pass
	setClusterIP = "clusterips" // addresses whose other ports are refused
)

// item is one element of a set, in one family.
type item struct {
	v6  bool
	set string
	key string // as the kernel has it
}

// element is an item and what it leads to: a chain, "drop", or an endpoint as the kernel has it.
type element struct {
	item
	value string
}

const valueDrop = "drop"

// farIndex is where the indices of outsiders' endpoints begin, where these are others.
const farIndex = 1 << 16

var protocols = map[string]uint8{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}

// compiled is what one Service wants of the kernel.
type compiled struct {
	elements []element
	chains   map[chainID]special // that the elements lead to
}

type chainID struct {
	v6   bool
	name string
}

func compile(s network.Service) compiled {
	out := compiled{chains: map[chainID]special{}}
	for _, a := range s.ClusterIPs {
		out.elements = append(out.elements, element{item{a.Is6(), setClusterIP, string(a.AsSlice())}, ""})
	}
	for _, f := range s.Forwards {
		out.forward(f)
	}
	return out
}

func (c *compiled) forward(f network.Forward) {
	key, v6 := keyOf(f.To, f.Protocol), f.To.Addr().Is6()
	add := func(set, key, value string) { c.elements = append(c.elements, element{item{v6, set, key}, value}) }
	lead := func(set string, to special) {
		name := to.name()
		c.chains[chainID{v6, name}] = to
		add(set, key, name)
	}
	list := func(ends []netip.AddrPort, from int) {
		for i, e := range ends {
			add(setEndpoints, key+number(from+i), endpointOf(e))
		}
	}
	p := special{node: f.To.Addr().IsUnspecified(), mask: f.Masquerade, stick: stick(f.Sticky)}
	if near := p; len(f.Near) > 0 {
		// A pod of this board is answered by this board, whoever answers: it may be seen, and network policies go by that.
		near.n, near.mask = len(f.Near), false
		lead(setNear, near)
		list(f.Near, 0)
	}
	if f.Outside && len(f.Far) > 0 {
		if p.n = len(f.Far); !slices.Equal(f.Near, f.Far) {
			p.far = true
			list(f.Far, farIndex)
		}
		lead(setFar, p)
	}
	if p.stick > 0 {
		both := slices.Concat(f.Near, f.Far)
		sort.Slice(both, func(i, j int) bool { return both[i].Compare(both[j]) < 0 })
		for _, e := range slices.Compact(both) {
			add(setLive, key+endpointOf(e), "")
		}
	}
	if len(f.Near) == 0 || f.Outside && len(f.Far) == 0 {
		answer := chainRefuse
		if f.Drop {
			answer = valueDrop
		}
		add(setRefused, key, answer)
	}
	if len(f.Sources) > 0 {
		lead(setGuarded, special{sources: f.Sources})
	}
}

// keyOf is where a client connects, each part filled up to four bytes.
func keyOf(to netip.AddrPort, protocol string) string {
	b := append(to.Addr().AsSlice(), protocols[protocol], 0, 0, 0)
	return string(append(binary.BigEndian.AppendUint16(b, to.Port()), 0, 0))
}

func endpointOf(e netip.AddrPort) string {
	return string(append(binary.BigEndian.AppendUint16(e.Addr().AsSlice(), e.Port()), 0, 0))
}

// number is in the order of the machine: the kernel compares it with what it has drawn.
func number(n int) string { return string(binary.NativeEndian.AppendUint32(nil, uint32(n))) }

// parseKey is keyOf backwards.
func parseKey(key string, v6 bool) (to netip.AddrPort, protocol uint8, rest string) {
	n := addressLen(v6)
	if len(key) < n+8 {
		return to, 0, ""
	}
	a, _ := netip.AddrFromSlice([]byte(key[:n]))
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(key[n+4:]))), key[n], key[n+8:]
}

func parseEndpoint(value string, v6 bool) netip.AddrPort {
	n := addressLen(v6)
	if len(value) < n+2 {
		return netip.AddrPort{}
	}
	a, _ := netip.AddrFromSlice([]byte(value[:n]))
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(value[n:])))
}

func addressLen(v6 bool) int {
	if v6 {
		return 16
	}
	return 4
}

func stick(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(max(d, time.Second) / time.Second)
}

// special says what a chain does that elements lead to: its name says it all, so that it never changes, and services share it.
type special struct {
	n     int    // endpoints to pick from
	node  bool   // the key is that of a node port: its address is none
	far   bool   // indices begin at farIndex
	mask  bool   // masquerade
	stick uint32 // seconds that a client stays with its endpoint

	sources []netip.Prefix // or: let only these pass
}

func (s special) name() string {
	if s.sources != nil {
		// No two lists may come to one name, whoever chooses them: the chain that is there would let in whom the other list does.
		h := sha256.New()
		for _, p := range s.sources {
			_, _ = h.Write([]byte(p.String() + " "))
		}
		return fmt.Sprintf("%s%x", guardPrefix, h.Sum(nil)[:16])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d", pickPrefix, s.n)
	for _, w := range []struct {
		yes  bool
		word string
	}{{s.node, "-node"}, {s.far, "-far"}, {s.mask, "-mask"}, {s.stick > 0, fmt.Sprintf("-stick%d", s.stick)}} {
		if w.yes {
			b.WriteString(w.word)
		}
	}
	return b.String()
}
