package plan

import (
	"fmt"
	"net/netip"
	"strings"
)

// ParseCIDRs reads one network of each family at most.
func ParseCIDRs(text string) (cidr, cidr6 netip.Prefix, err error) {
	for _, item := range strings.Split(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		p, err := netip.ParsePrefix(item)
		if err != nil {
			return cidr, cidr6, fmt.Errorf("%q is no network such as 10.42.0.0/24 or fd42:1:2:3::/64", item)
		}
		to := &cidr
		if p.Addr().Is6() {
			to = &cidr6
		}
		if to.IsValid() {
			return cidr, cidr6, fmt.Errorf("%q: two networks of one family", text)
		}
		*to = p.Masked()
	}
	whole := cidr
	if !whole.IsValid() {
		whole = netip.MustParsePrefix("10.0.0.0/24") // one is chosen later
	}
	return cidr, cidr6, CheckCIDRs(whole, cidr6)
}
