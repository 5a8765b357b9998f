package brain

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"ledge/api"
	"ledge/api/local"
	"ledge/config"
	"ledge/network/plan"
)

const serviceCIDRKey = "serviceCIDR"

// serviceSource chooses where services get their addresses from. What was chosen once is kept, as the pods' network is; what somebody
// asks for must not hide machines that the board or its pods, in networks known from settings, can reach.
func serviceSource(b *Brain, settings map[string][]byte) (out local.Services, err error) {
	out.Ranges, out.Ports, out.Reserved = b.ServiceRanges, b.ServicePorts, map[string]netip.Prefix{}
	used, err := b.rims.Host.Prefixes()
	if err != nil {
		return out, fmt.Errorf("look for networks that services must not overlap: %w", err)
	}
	for i, p := range used {
		if p.Bits() >= 8 { // less is a default route in parts
			out.Reserved[fmt.Sprintf("the %d. network of this board", i+1)] = p
		}
	}
	for _, p := range podNetworks(b.CIDR, b.CIDR6, settings) {
		out.Reserved["the pods' "+string(api.FamilyOf(p.Addr().String()))+" network"] = p
	}
	for _, p := range out.Ranges {
		if err := out.Overlap(p); err != nil {
			return out, config.Usagef("--service-cidr: %v: choose another one", err)
		}
	}
	if len(out.Ranges) > 0 {
		return out, nil
	}
	if p, err := netip.ParsePrefix(string(settings[serviceCIDRKey])); err == nil {
		out.Ranges = []netip.Prefix{p}
		return out, nil
	}
	for _, p := range out.Reserved {
		used = append(used, p)
	}
	p := plan.ChooseServices(used)
	if !p.IsValid() {
		return out, errors.New("no free network for services was found; choose one with --service-cidr")
	}
	out.Ranges = []netip.Prefix{p}
	if p != local.DefaultServiceCIDR {
		slog.Warn("services have other addresses than usual, since these are in use here", "cidr", p, "usual", local.DefaultServiceCIDR)
	}
	return out, b.store.Table("settings").Put(serviceCIDRKey, []byte(p.String()))
}

// podNetworks are those of this board's pods: what it was told, or else when it last ran.
func podNetworks(cidr, cidr6 netip.Prefix, settings map[string][]byte) (out []netip.Prefix) {
	if old, old6, err := plan.ParseCIDRs(string(settings[podCIDRKey])); err == nil && !cidr.IsValid() {
		cidr, cidr6 = old, old6
	}
	for _, p := range []netip.Prefix{cidr, cidr6} {
		if p.IsValid() {
			out = append(out, p)
		}
	}
	return out
}
