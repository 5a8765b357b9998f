package plan

import "net/netip"

// ChooseCIDR picks a /24 for pods that overlaps nothing in used (addresses and routes of the host; routes wider than
// a /8 do not count: they are default routes, whole or, as VPNs do, in halves). The order is fixed, so that boards on the same network
// choose alike. No answer (the zero Prefix) means that the host's routes cover all private ranges: the operator must choose.
func ChooseCIDR(used []netip.Prefix) netip.Prefix {
	for _, first := range [][2]byte{{10, 42}, {10, 142}, {10, 242}, {172, 29}, {172, 30}, {192, 168}} {
		for i := range 256 {
			third := byte(i)
			if first[0] == 192 { // from the top: home routers sit at the bottom
				third = byte(255 - i)
			}
			c := netip.PrefixFrom(netip.AddrFrom4([4]byte{first[0], first[1], third, 0}), 24)
			if free(c, used) {
				return c
			}
		}
	}
	return netip.Prefix{}
}

func free(c netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if u.IsValid() && u.Bits() >= 8 && u.Overlaps(c) {
			return false
		}
	}
	return true
}
