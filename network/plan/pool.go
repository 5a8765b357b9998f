package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"ledge/network"
)

// pool hands out the addresses of one network: not the network itself, not the first (the gateway), not the last
// (IPv4's broadcast address). It walks round the network, so that a freed address rests as long as possible: peers may
// still hold connections and neighbour entries of its last owner. Of an IPv6 network the first 65536 are enough.
type pool struct {
	cidr netip.Prefix
	last uint32 // offset given out last
	used map[netip.Addr]string
}

func newPool(cidr netip.Prefix) *pool {
	return &pool{cidr: cidr.Masked(), used: map[netip.Addr]string{}}
}

func (p *pool) size() uint32 {
	bits := p.cidr.Addr().BitLen() - p.cidr.Bits()
	if p.cidr.Addr().Is6() {
		bits = min(bits, 16)
	}
	return 1 << bits
}

func (p *pool) at(offset uint32) netip.Addr {
	b := p.cidr.Addr().As16()
	binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(b[12:])+offset)
	a := netip.AddrFrom16(b)
	if p.cidr.Addr().Is4() {
		return a.Unmap()
	}
	return a
}

func (p *pool) offset(a netip.Addr) uint32 {
	base, b := p.cidr.Addr().As16(), a.As16()
	return binary.BigEndian.Uint32(b[12:]) - binary.BigEndian.Uint32(base[12:])
}

// usable tells whether a pod may have this address at all.
func (p *pool) usable(a netip.Addr) bool {
	if a.Is4() != p.cidr.Addr().Is4() || !p.cidr.Contains(a) {
		return false
	}
	off := p.offset(a)
	return off >= 2 && off < p.size()-1 && p.at(off) == a
}

// check tells whether a pod may have an address from before.
func (p *pool) check(a netip.Addr, owner string) error {
	if !p.usable(a) {
		return fmt.Errorf("%s is no pod address of %s", a, p.cidr)
	}
	if other, taken := p.used[a]; taken && other != owner {
		return fmt.Errorf("%s belongs to pod %s", a, other)
	}
	return nil
}

func (p *pool) enter(a netip.Addr, owner string) {
	p.used[a] = owner
	p.last = max(p.last, p.offset(a))
}

func (p *pool) take(owner string) (netip.Addr, error) {
	pods := p.size() - 3
	for i := range pods {
		off := 2 + (p.last-2+1+i)%pods
		if p.last < 2 {
			off = 2 + i
		}
		a := p.at(off)
		if _, taken := p.used[a]; !taken {
			p.used[a], p.last = owner, off
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: all %d of %s are taken", network.ErrExhausted, pods, p.cidr)
}
