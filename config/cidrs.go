package config

import (
	"net/netip"

	"ledge/controller"
)

// nodeCIDRs reads what --allocate-node-cidrs needs (N-3.52, N-3.53).
func (o *planeOpts) nodeCIDRs() (out controller.NodeCIDRs, err error) {
	if !o.allocateCIDRs {
		for name, given := range map[string]bool{"cluster-cidr": o.clusterCIDR != "", "service-cluster-ip-range": o.services != "",
			"node-cidr-mask-size": o.mask != 0, "node-cidr-mask-size-ipv4": o.mask4 != 0, "node-cidr-mask-size-ipv6": o.mask6 != 0} {
			if given {
				return out, Usagef("--%s: has no meaning without --allocate-node-cidrs", name)
			}
		}
		return out, nil
	}
	if out.Clusters, err = networks("cluster-cidr", o.clusterCIDR); err != nil {
		return out, err
	}
	if out.Services, err = networks("service-cluster-ip-range", o.services); err != nil {
		return out, err
	}
	dual := len(out.Clusters) == 2
	switch {
	case len(out.Clusters) == 0:
		return out, Usagef("--allocate-node-cidrs: say with --cluster-cidr what the parts are of")
	case dual && o.mask != 0:
		return out, Usagef("--node-cidr-mask-size: with networks of both families use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	case o.mask != 0 && (o.mask4 != 0 || o.mask6 != 0):
		return out, Usagef("--node-cidr-mask-size: cannot be used together with the mask of one family")
	}
	for _, c := range out.Clusters {
		bits, own, other := 24, o.mask4, o.mask6
		name := "node-cidr-mask-size-ipv6"
		if c.Addr().Is6() {
			bits, own, other, name = 64, o.mask6, o.mask4, "node-cidr-mask-size-ipv4"
		}
		if !dual && other != 0 {
			return out, Usagef("--%s: the cluster has no network of that family", name)
		}
		if own == 0 {
			own = o.mask
		}
		if own != 0 {
			bits = own
		}
		if _, err := controller.NewBlocks(c, bits); err != nil {
			return out, Usagef("--cluster-cidr: %v", err)
		}
		out.Bits = append(out.Bits, bits)
	}
	return out, nil
}

// networks reads one network of each family at most.
func networks(flag, text string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, item := range splitList(text) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			return nil, Usagef("--%s: %q is no network", flag, item)
		}
		out = append(out, p.Masked())
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, Usagef("--%s: one network, or one of each family", flag)
	}
	return out, nil
}
