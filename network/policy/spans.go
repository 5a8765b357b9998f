package policy

import (
	"net/netip"
	"sort"

	networkingv1 "k8s.io/api/networking/v1"

	"ledge/network"
)

// spansOf are the addresses of a block without its exceptions. What cannot be read is none of it; an exception that cannot be read leaves
// nothing.
func spansOf(b *networkingv1.IPBlock) []network.Span {
	n, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return nil
	}
	left := []network.Span{spanOf(n)}
	for _, text := range b.Except {
		x, err := netip.ParsePrefix(text)
		if err != nil {
			return nil
		}
		left = without(left, spanOf(x))
	}
	return left
}

func spanOf(p netip.Prefix) network.Span {
	p = p.Masked()
	last := p.Addr().AsSlice()
	for i := range last {
		for bit := range 8 {
			if 8*i+bit >= p.Bits() {
				last[i] |= 0x80 >> bit
			}
		}
	}
	end, _ := netip.AddrFromSlice(last)
	return network.Span{First: p.Addr(), Last: end}
}

// without takes x out of each.
func without(all []network.Span, x network.Span) (out []network.Span) {
	for _, s := range all {
		if s.First.Is4() != x.First.Is4() || x.Last.Less(s.First) || s.Last.Less(x.First) {
			out = append(out, s)
			continue
		}
		if s.First.Less(x.First) {
			out = append(out, network.Span{First: s.First, Last: x.First.Prev()})
		}
		if x.Last.Less(s.Last) {
			out = append(out, network.Span{First: x.Last.Next(), Last: s.Last})
		}
	}
	return out
}

// union sorts, and joins what overlaps or touches.
func union(all []network.Span) (out []network.Span) {
	sort.Slice(all, func(i, j int) bool { return all[i].First.Less(all[j].First) })
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].First.Is4() == s.First.Is4() {
			if next := out[n-1].Last.Next(); !next.IsValid() || !next.Less(s.First) {
				if out[n-1].Last.Less(s.Last) {
					out[n-1].Last = s.Last
				}
				continue
			}
		}
		out = append(out, s)
	}
	return out
}
