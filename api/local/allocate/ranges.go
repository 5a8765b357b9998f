package allocate

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Range is the usable addresses of a prefix: all but the network's own and, of IPv4, the last.
type Range struct {
	prefix netip.Prefix
	n      uint64 // how many
	static uint64 // of them, those that are given last
}

// NewRange is the range of a prefix.
func NewRange(p netip.Prefix) Range {
	const most = 62 // bits: far more than anybody allocates
	p = p.Masked()
	bits := min(p.Addr().BitLen()-p.Bits(), most)
	n, lost := uint64(1)<<bits, uint64(1)
	if p.Addr().Is4() {
		lost = 2
	}
	low := static(n, 16, 256)
	return Range{p, n - min(n, lost), low - min(low, 1)} // the network's own address is in the first part
}

// Size is how many addresses can be given.
func (r Range) Size() uint64 { return r.n }

// First is the first usable address, which is that of the API itself.
func (r Range) First() netip.Addr { return r.at(0) }

// Has says whether an address can be given.
func (r Range) Has(ip netip.Addr) bool {
	return r.prefix.Contains(ip) && ip != r.prefix.Addr() && (!ip.Is4() || ip.Compare(r.at(r.n)) < 0)
}

func (r Range) at(i uint64) netip.Addr {
	b := r.prefix.Addr().As16()
	low := binary.BigEndian.Uint64(b[8:])
	sum := low + i + 1
	binary.BigEndian.PutUint64(b[8:], sum)
	if sum < low {
		binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+1)
	}
	if ip := netip.AddrFrom16(b); !r.prefix.Addr().Is4() {
		return ip
	} else {
		return ip.Unmap()
	}
}

// Next is a free address, or ErrFull.
func (r Range) Next(random func(uint64) uint64, free func(netip.Addr) (bool, error)) (netip.Addr, error) {
	i, err := pick(r.n, r.static, random, func(i uint64) (bool, error) { return free(r.at(i)) })
	if err != nil {
		return netip.Addr{}, err
	}
	return r.at(i), nil
}

// Ports are the ports on the boards that services may have.
type Ports struct{ First, Last int32 }

// DefaultPorts are those of Kubernetes.
var DefaultPorts = Ports{30000, 32767}

// ParsePorts reads "first-last".
func ParsePorts(s string) (Ports, error) {
	a, b, ok := strings.Cut(s, "-")
	first, errA := strconv.ParseUint(a, 10, 16)
	last, errB := strconv.ParseUint(b, 10, 16)
	if !ok || errA != nil || errB != nil || first == 0 || last < first {
		return Ports{}, fmt.Errorf("%q is no range of ports: write it as 30000-32767", s)
	}
	return Ports{int32(first), int32(last)}, nil
}

func (p Ports) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// Check says why a port cannot be given, were it free.
func (p Ports) Check(n int32) error {
	if n < p.First || n > p.Last {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p)
	}
	return nil
}

// Next is a free port, or ErrFull.
func (p Ports) Next(random func(uint64) uint64, free func(int32) bool) (int32, error) {
	n := uint64(p.Last - p.First + 1)
	i, err := pick(n, static(n, 32, 128), random, func(i uint64) (bool, error) { return free(p.First + int32(i)), nil })
	return p.First + int32(i), err
}

// static is how many numbers of a range are for who asks for one of them by name: they are given to others last, so that they are
// likely to be free. A part of the range, but between 16 and most; of a small range none.
func static(n, part, most uint64) uint64 {
	const least = 16
	if n <= least {
		return 0
	}
	return min(max(least, n/part), most)
}

// pick finds a free one among n numbers, beginning anywhere: what was given back last is not given next.
func pick(n, static uint64, random func(uint64) uint64, free func(uint64) (bool, error)) (uint64, error) {
	for _, band := range [][2]uint64{{static, n}, {0, static}} {
		from, size := band[0], band[1]-band[0]
		if size == 0 {
			continue
		}
		start := random(size)
		for i := range size {
			at := from + (start+i)%size
			if ok, err := free(at); ok || err != nil {
				return at, err
			}
		}
	}
	return 0, ErrFull
}
