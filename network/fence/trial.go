package fence

import (
	"context"
	"net/netip"

	"ledge/network"
	"ledge/network/netns"
)

// Trial is one thing the kernel must be able to do for network policies to hold.
type Trial struct {
	Name   string
	Err    error  // nil: it works
	Remedy string // what to do if it does not
}

const remedy = "use a kernel of Linux 5.4 or later with CONFIG_NF_TABLES, NF_TABLES_IPV4, NF_TABLES_IPV6 and NFT_CT; " +
	"without them no pod starts that a network policy selects"

// Try makes every kind of rule in a network namespace that is gone afterwards, in each family.
func Try() []Trial {
	out := []Trial{{Name: "network policies", Remedy: remedy}, {Name: "network policies (IPv6)", Remedy: remedy}}
	for i, address := range []string{"10.42.0.2", "fd00::2"} {
		out[i].Err = netns.InNew(func() error { return tryFamily(netip.MustParseAddr(address)) })
	}
	return out
}

func tryFamily(a netip.Addr) error {
	n := New(Config{Bridge: "ledgetry"})
	defer n.nft.Drop()
	one := []network.Span{{First: a, Last: a}}
	return n.Prune(context.Background(), network.Fence{
		In: map[netip.Addr]string{a: "in-try"}, Out: map[netip.Addr]string{a: "out-try"},
		Chains: map[string][]network.Pass{"in-try": {{Pods: "pods-try", Protocol: "TCP", First: 1, Last: 2}}, "out-try": {{Nets: one}}},
		Sets:   map[string][]network.Span{"pods-try": one}})
}
