package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"ledge/network"
)

// pool hands out the addresses of one IPv4 network: not the network itself, not the first (the gateway), not the
// broadcast address. It walks round the network, so that a freed address rests as long as possible: peers may
// still hold connections and neighbour entries of its last owner.
type pool struct {
	cidr netip.Prefix
	last uint32 // offset given out last
	used map[netip.Addr]string
}

func (p *pool) size() uint32 { return 1 << (32 - p.cidr.Bits()) }

func (p *pool) at(offset uint32) netip.Addr {
	base := p.cidr.Addr().As4()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(base[:])+offset)
	return netip.AddrFrom4(b)
}

func (p *pool) offset(a netip.Addr) uint32 {
	base, b := p.cidr.Addr().As4(), a.As4()
	return binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(base[:])
}

// usable tells whether a pod may have this address at all.
func (p *pool) usable(a netip.Addr) bool {
	if !a.Is4() || !p.cidr.Contains(a) {
		return false
	}
	off := p.offset(a)
	return off >= 2 && off < p.size()-1
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
