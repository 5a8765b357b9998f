package controller

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// strays names the Nodes whose pod network does not count, and says why: it is not a part of the cluster's, or it is the
// network of another Node. Of Nodes that share one, a Node with parts as they are given out goes first, then the oldest. Boards
// may not write what is judged here (api/local), but a store from before that rule, or an administrator, may hold anything.
func strays(nodes []*corev1.Node, cfg NodeCIDRs) map[string]string {
	order := slices.Clone(nodes)
	slices.SortFunc(order, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(odd(a, cfg), odd(b, cfg)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out := map[string]string{}
	owners := map[netip.Prefix]string{}
	for _, n := range order {
		parts, why := partsOf(n, cfg)
		for _, p := range parts {
			for taken, owner := range owners {
				if why == "" && taken.Overlaps(p) {
					why = fmt.Sprintf("%s overlaps %s, which node %s has", p, taken, owner)
				}
			}
		}
		if why != "" {
			out[n.Name] = why
			continue
		}
		for _, p := range parts {
			owners[p] = n.Name
		}
	}
	return out
}

// odd is 1 for a Node that has something else than parts of the size that is given out.
func odd(n *corev1.Node, cfg NodeCIDRs) int {
	for _, text := range n.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if i := cfg.family(p); err != nil || i < 0 || p.Bits() != cfg.Bits[i] {
			return 1
		}
	}
	return 0
}

// partsOf reads what a Node has; why says what is wrong with it.
func partsOf(n *corev1.Node, cfg NodeCIDRs) (parts []netip.Prefix, why string) {
	for _, text := range n.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err.Error()
		}
		i := cfg.family(p)
		if i < 0 {
			return nil, fmt.Sprintf("%s is of a family that --cluster-cidr does not have", p)
		}
		cluster := cfg.Clusters[i].Masked()
		switch {
		case p.Bits() < cluster.Bits() || !cluster.Contains(p.Addr()):
			return nil, fmt.Sprintf("%s is not in --cluster-cidr %s", p, cluster)
		case p.Bits() == cluster.Bits() && cfg.Bits[i] > cluster.Bits():
			return nil, fmt.Sprintf("%s is all of --cluster-cidr", p)
		}
		parts = append(parts, p)
	}
	return parts, ""
}

// family is the index of the cluster's network of the same family; -1: there is none.
func (c NodeCIDRs) family(p netip.Prefix) int {
	return slices.IndexFunc(c.Clusters, func(n netip.Prefix) bool { return p.IsValid() && n.Addr().Is4() == p.Addr().Is4() })
}
