package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/netns"
)

// Trial is one thing the kernel must be able to do for Services to be forwarded.
type Trial struct {
	Name   string
	Err    error  // nil: it works
	Remedy string // what to do if it does not
}

const remedy = "use a kernel of Linux 5.4 or later with CONFIG_NFT_NAT, NFT_MASQ, NFT_NUMGEN, NFT_REJECT, NFT_CT, NFT_FIB_IPV4"

// Try makes every kind of rule in a network namespace that is gone afterwards, in each family.
func Try() []Trial {
	out := []Trial{
		{Name: "services", Remedy: remedy + "; without them pods run, but no Service leads to them"},
		{Name: "services (IPv6)", Remedy: remedy + " and NFT_FIB_IPV6; without them Services have no IPv6 addresses"},
	}
	for i, address := range []string{"10.96.0.1", "fd00::1"} {
		out[i].Err = netns.InNew(func() error { return tryFamily(netip.MustParseAddr(address)) })
	}
	return out
}

func tryFamily(a netip.Addr) error {
	p := New(Config{Bridge: "ledgetry"})
	defer p.nft.Drop()
	ends := []netip.AddrPort{netip.AddrPortFrom(a.Next(), 1), netip.AddrPortFrom(a.Next().Next(), 1)}
	return p.Prune(context.Background(), []network.Service{{Name: "try", ClusterIPs: []netip.Addr{a}, Forwards: []network.Forward{
		{To: netip.AddrPortFrom(a, 1), Protocol: "TCP", Near: ends, Sticky: time.Minute},
		{To: netip.AddrPortFrom(a, 2), Protocol: "UDP", Near: ends, Far: ends[:1], Outside: true, Masquerade: true,
			Sources: []netip.Prefix{netip.PrefixFrom(a, 8)}},
		{To: netip.AddrPortFrom(a, 3), Protocol: "TCP"}}}})
}

// explain adds what the kernel's terse answer means here.
func explain(err error) error {
	if errors.Is(err, unix.ENOENT) || lacks(err) {
		return fmt.Errorf("this kernel lacks something (ledge doctor tries each family): %w", err)
	}
	return err
}

func lacks(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL)
}
