package controller

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
)

// errNoBlocks is Kubernetes' sentence for an exhausted range (N-3.54).
var errNoBlocks = errors.New("CIDR allocation failed; there are no remaining CIDRs left to allocate in the accepted range")

// mostBlockBits bounds a set: 2^16 nodes of one family are enough, and its bits fit in 8 KB.
const mostBlockBits = 16

// Blocks hands out equal parts of one network, numbered from its start. The search goes on behind the last one handed
// out, so that a part that was given back rests until all others have been used (N-3.54).
type Blocks struct {
	cluster netip.Prefix
	bits    int
	used    []bool
	next    int
}

// NewBlocks cuts a network into parts of so many bits (N-3.53).
func NewBlocks(cluster netip.Prefix, bits int) (*Blocks, error) {
	switch {
	case !cluster.IsValid() || bits > cluster.Addr().BitLen():
		return nil, fmt.Errorf("%s cannot be cut into networks of /%d", cluster, bits)
	case bits < cluster.Bits():
		return nil, fmt.Errorf("the mask of a node's network, /%d, is shorter than that of %s it comes from", bits, cluster)
	case bits-cluster.Bits() > mostBlockBits:
		return nil, fmt.Errorf("%s in parts of /%d: New CIDR set failed; the node CIDR size is too big", cluster, bits)
	}
	return &Blocks{cluster: cluster.Masked(), bits: bits, used: make([]bool, 1<<(bits-cluster.Bits()))}, nil
}

// Next hands out a part.
func (b *Blocks) Next() (netip.Prefix, error) {
	for i := range b.used {
		n := (b.next + i) % len(b.used)
		if !b.used[n] {
			b.used[n], b.next = true, (n+1)%len(b.used)
			return b.part(n), nil
		}
	}
	return netip.Prefix{}, errNoBlocks
}

// part is the n-th.
func (b *Blocks) part(n int) netip.Prefix {
	addr := b.cluster.Addr()
	at := new(big.Int).SetBytes(addr.AsSlice())
	at.Add(at, new(big.Int).Lsh(big.NewInt(int64(n)), uint(addr.BitLen()-b.bits)))
	out, _ := netip.AddrFromSlice(at.FillBytes(make([]byte, addr.BitLen()/8)))
	return netip.PrefixFrom(out, b.bits)
}

// span is the numbers of the parts that a network touches; false when it touches none.
func (b *Blocks) span(p netip.Prefix) (first, last int, ok bool) {
	if !p.IsValid() || !p.Overlaps(b.cluster) {
		return 0, 0, false
	}
	if p.Bits() <= b.cluster.Bits() {
		return 0, len(b.used) - 1, true
	}
	off := new(big.Int).Sub(new(big.Int).SetBytes(p.Masked().Addr().AsSlice()), new(big.Int).SetBytes(b.cluster.Addr().AsSlice()))
	first = int(off.Rsh(off, uint(b.cluster.Addr().BitLen()-b.bits)).Int64())
	return first, first + max(1<<max(b.bits-p.Bits(), 0), 1) - 1, true
}

// Exclude takes out whatever a network touches, also one outside.
func (b *Blocks) Exclude(p netip.Prefix) { b.set(p, true) }

// Release gives parts back.
func (b *Blocks) Release(p netip.Prefix) { b.set(p, false) }

func (b *Blocks) set(p netip.Prefix, used bool) {
	first, last, ok := b.span(p)
	for i := first; ok && i <= last; i++ {
		b.used[i] = used
	}
}

// NodeCIDRs says how nodes get the networks of their pods. The zero value gives none (N-3.52).
type NodeCIDRs struct {
	Clusters []netip.Prefix // one, or one of each family; the order is that of a node's podCIDRs
	Bits     []int          // of a node's part, of each
	Services []netip.Prefix // never given out (N-3.55)
}

// blocks makes the sets.
func (c NodeCIDRs) blocks() ([]*Blocks, error) {
	var out []*Blocks
	for i, cluster := range c.Clusters {
		b, err := NewBlocks(cluster, c.Bits[i])
		if err != nil {
			return nil, err
		}
		for _, s := range c.Services {
			b.Exclude(s)
		}
		out = append(out, b)
	}
	return out, nil
}
