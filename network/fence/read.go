package fence

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/nft"
)

// read takes note of what the kernel has. A table with anything that this version did not make so is odd, and is made anew.
func (n *Fencer) read() error {
	c, err := n.nft.Get()
	if err != nil {
		return err
	}
	n.have, n.known = map[bool]*layout{}, false
	for _, v6 := range families {
		k := kernel{c, family{v6}, n.table}
		tables, err := c.ListTablesOfFamily(k.table())
		if err != nil && !lacks(err) {
			return err
		}
		if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == n.table }) {
			continue
		}
		l := newLayout()
		if err := k.read(l); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		n.have[v6] = l
	}
	n.known = true
	return nil
}

func (k kernel) read(l *layout) error {
	if err := k.readSets(l); err != nil {
		return err
	}
	if err := k.readChains(l); err != nil {
		return err
	}
	self := map[string]bool{}
	elements, err := k.c.GetSetElements(k.fixed()[setSelf])
	for _, e := range elements {
		self[string(e.Key)] = true
	}
	for a := range addressesOf(l) {
		l.odd = l.odd || !self[a+a]
	}
	l.odd = l.odd || len(self) != len(addressesOf(l))
	for _, leads := range []map[string]string{l.in, l.out} {
		for _, chain := range leads {
			_, is := l.chains[chain]
			l.odd = l.odd || !is
		}
	}
	return err
}

func (k kernel) readSets(l *layout) error {
	sets, err := k.c.GetSets(k.t())
	if err != nil {
		return err
	}
	fixed := k.fixed()
	for _, s := range sets {
		mine := fixed[s.Name]
		switch {
		case mine != nil:
			delete(fixed, s.Name)
		case strings.HasPrefix(s.Name, netsPrefix):
			mine = k.netsSet(s.Name)
		default:
			mine = k.podsSet(s.Name)
		}
		if s.Name == setSelf {
			continue
		}
		elements, err := k.c.GetSetElements(mine)
		if err != nil {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
		switch {
		case s.Name == setIn:
			leadsOf(elements, l.in)
		case s.Name == setOut:
			leadsOf(elements, l.out)
		case mine.Interval:
			l.nets[s.Name] = spansOf(elements)
		default:
			l.pods[s.Name] = map[string]bool{}
			for _, e := range elements {
				l.pods[s.Name][string(e.Key)] = true
			}
		}
	}
	l.odd = l.odd || len(fixed) > 0
	return nil
}

// readChains notes the marks of the rules that chains have.
func (k kernel) readChains(l *layout) error {
	all, err := k.c.ListChainsOfTableFamily(k.table())
	if err != nil {
		return err
	}
	forward, err := k.marks(k.forward())
	found := false
	for _, ch := range all {
		if ch.Table.Name != k.name {
			continue
		}
		rules, err := k.c.GetRules(k.t(), &nftables.Chain{Name: ch.Name})
		if err != nil {
			return err
		}
		var marks []string
		for _, r := range rules {
			marks = append(marks, nft.Comment(r.UserData))
		}
		if ch.Name == chainForward {
			found = ch.Hooknum != nil && strings.Join(marks, " ") == forward
			continue
		}
		l.chains[ch.Name] = strings.Join(marks, " ")
	}
	l.odd = l.odd || !found
	return err
}

func leadsOf(elements []nftables.SetElement, to map[string]string) {
	for _, e := range elements {
		to[string(e.Key)] = chainOf(e.Val)
	}
}

// chainOf reads what an element of a verdict map jumps to; the library leaves it as it came.
func chainOf(data []byte) string {
	data = append(slices.Clone(data), make([]byte, -len(data)&3)...) // the library panics where the last attribute has no padding
	attrs, err := nl.ParseRouteAttr(data)
	if err != nil {
		return ""
	}
	for _, a := range attrs {
		if a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == unix.NFTA_VERDICT_CHAIN {
			return strings.TrimRight(string(a.Value), "\x00")
		}
	}
	return ""
}

// spansOf pairs the begins and ends of an interval set.
func spansOf(elements []nftables.SetElement) (out []network.Span) {
	sort.Slice(elements, func(i, j int) bool {
		a, b := elements[i], elements[j]
		if c := bytes.Compare(a.Key, b.Key); c != 0 {
			return c < 0
		}
		return a.IntervalEnd && !b.IntervalEnd
	})
	for i, e := range elements {
		first, ok := netip.AddrFromSlice(e.Key)
		if e.IntervalEnd || !ok {
			continue
		}
		last := first
		if i+1 < len(elements) && elements[i+1].IntervalEnd {
			end, _ := netip.AddrFromSlice(elements[i+1].Key)
			last = end.Prev()
		} else {
			b := make([]byte, len(e.Key))
			for i := range b {
				b[i] = 0xff
			}
			last, _ = netip.AddrFromSlice(b)
		}
		out = append(out, network.Span{First: first, Last: last})
	}
	return out
}
