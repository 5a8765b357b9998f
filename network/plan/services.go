package plan

import "net/netip"

// ChooseServices picks a network for the addresses of services that no other one overlaps; invalid: there is none.
func ChooseServices(used []netip.Prefix) netip.Prefix {
	for _, first := range [][2]byte{{10, 43}, {10, 143}, {10, 243}, {172, 31}, {172, 28}} {
		c := netip.PrefixFrom(netip.AddrFrom4([4]byte{first[0], first[1]}), 16)
		if free(c, used) {
			return c
		}
	}
	return netip.Prefix{}
}
