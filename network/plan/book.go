// Package plan is the pure part of connecting pods: which pod has which address and host ports, and which network to
// choose. It does no I/O; network/bridge makes it true, network/fake only remembers it.
package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"ledge/network"
)

// Entry is a pod with its address. Its ports are normalized: protocol in capitals, HostIP zero for every address.
type Entry struct {
	Pod   network.Pod
	Addr  netip.Addr // IPv4
	Addr6 netip.Addr // IPv6; zero where pods have none
}

// Addrs are a pod's addresses, IPv4 first.
func (e Entry) Addrs() []netip.Addr {
	out := []netip.Addr{e.Addr}
	if e.Addr6.IsValid() {
		out = append(out, e.Addr6)
	}
	return out
}

// Book knows who has what. It is not safe for concurrent use.
type Book struct {
	pool    *pool
	pool6   *pool            // nil: IPv4 only
	entries map[string]Entry // by pod UID
}

// NewBook begins an empty book for the pods of one IPv4 network and, where there is one, an IPv6 network.
func NewBook(cidr, cidr6 netip.Prefix) (*Book, error) {
	if err := CheckCIDRs(cidr, cidr6); err != nil {
		return nil, err
	}
	b := &Book{pool: newPool(cidr), entries: map[string]Entry{}}
	if cidr6.IsValid() {
		b.pool6 = newPool(cidr6)
	}
	return b, nil
}

// CheckCIDRs says whether pods can be given addresses of these networks.
func CheckCIDRs(cidr, cidr6 netip.Prefix) error {
	if !cidr.IsValid() || !cidr.Addr().Is4() || cidr.Bits() < 8 || cidr.Bits() > 29 {
		return fmt.Errorf("pod CIDR %s: want an IPv4 network between /8 and /29", cidr)
	}
	if a := cidr.Addr(); a.IsLoopback() || a.IsLinkLocalUnicast() || a.As4()[0] == 0 || a.As4()[0] >= 224 {
		return fmt.Errorf("pod CIDR %s: no pod can have such an address; want a private network, such as 10.42.0.0/24", cidr)
	}
	if !cidr6.IsValid() {
		return nil
	}
	if a := cidr6.Addr(); !a.Is6() || a.Is4In6() || a.IsLinkLocalUnicast() || a.IsMulticast() || cidr6.Bits() < 48 || cidr6.Bits() > 125 {
		return fmt.Errorf("pod CIDR %s: want an IPv6 network between /48 and /125, such as fd42:1:2:3::/64", cidr6)
	}
	return nil
}

// CIDR is the network of the pods.
func (b *Book) CIDR() netip.Prefix { return b.pool.cidr }

// Gateway is the board's own address in that network: the first one.
func (b *Book) Gateway() netip.Addr { return b.pool.at(1) }

// CIDR6 is the IPv6 network of the pods; zero if they have none.
func (b *Book) CIDR6() netip.Prefix {
	if b.pool6 == nil {
		return netip.Prefix{}
	}
	return b.pool6.cidr
}

// Gateway6 is the board's address in that.
func (b *Book) Gateway6() netip.Addr {
	if b.pool6 == nil {
		return netip.Addr{}
	}
	return b.pool6.at(1)
}

// Dual says whether pods have IPv6 addresses too.
func (b *Book) Dual() bool { return b.pool6 != nil }

// Get finds a pod.
func (b *Book) Get(uid string) (Entry, bool) {
	e, ok := b.entries[uid]
	return e, ok
}

// Entries are all pods, by address.
func (b *Book) Entries() []Entry {
	out := make([]Entry, 0, len(b.entries))
	for _, e := range b.entries {
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Addr.Less(out[j].Addr) })
	return out
}

// Restore enters a pod known from before, with the address it has. What contradicts the book is refused.
func (b *Book) Restore(e Entry) error {
	if err := b.pool.check(e.Addr, e.Pod.UID); err != nil {
		return fmt.Errorf("restore %s: %w", describe(e.Pod), err)
	}
	// An IPv6 address that it had under another network, or not at all, it is given when it is attached again.
	if b.pool6 == nil || e.Addr6.IsValid() && b.pool6.check(e.Addr6, e.Pod.UID) != nil {
		e.Addr6 = netip.Addr{}
	}
	if old, had := b.entries[e.Pod.UID]; had && old.Addr != e.Addr {
		return fmt.Errorf("restore %s: it already has %s", describe(e.Pod), old.Addr)
	}
	ports, err := b.checkPorts(e.Pod)
	if err != nil {
		return err
	}
	e.Pod.Ports = ports
	if old, had := b.entries[e.Pod.UID]; had && old.Addr6.IsValid() && old.Addr6 != e.Addr6 {
		delete(b.pool6.used, old.Addr6)
	}
	b.entries[e.Pod.UID] = e
	b.pool.enter(e.Addr, e.Pod.UID)
	if e.Addr6.IsValid() {
		b.pool6.enter(e.Addr6, e.Pod.UID)
	}
	return nil
}

// Claim gives a pod its address and ports. A pod that is known keeps its address; its ports and namespace become
// those given. On an error the book is as before.
func (b *Book) Claim(pod network.Pod) (e Entry, fresh bool, err error) {
	if pod.UID == "" {
		return Entry{}, false, fmt.Errorf("connect %s: it has no UID", describe(pod))
	}
	ports, err := b.checkPorts(pod)
	if err != nil {
		return Entry{}, false, err
	}
	pod.Ports = ports
	e, known := b.entries[pod.UID]
	e.Pod = pod
	if !known {
		if e.Addr, err = b.pool.take(pod.UID); err != nil {
			return Entry{}, false, fmt.Errorf("connect %s: %w", describe(pod), err)
		}
	}
	if b.pool6 != nil && !e.Addr6.IsValid() {
		if e.Addr6, err = b.pool6.take(pod.UID); err != nil {
			if !known {
				delete(b.pool.used, e.Addr)
			}
			return Entry{}, false, fmt.Errorf("connect %s: %w", describe(pod), err)
		}
	}
	b.entries[pod.UID] = e
	return e, !known, nil
}

// Release forgets a pod.
func (b *Book) Release(uid string) {
	if e, ok := b.entries[uid]; ok {
		delete(b.pool.used, e.Addr)
		if e.Addr6.IsValid() {
			delete(b.pool6.used, e.Addr6)
		}
		delete(b.entries, uid)
	}
}

// Others lists the UIDs that are in the book and not in keep.
func (b *Book) Others(keep []string) []string {
	var out []string
	for uid := range b.entries {
		if !slices.Contains(keep, uid) {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

func (b *Book) checkPorts(pod network.Pod) ([]network.Port, error) {
	for _, p := range pod.Ports {
		if b.pool6 == nil && p.HostIP.Is6() && !p.HostIP.Is4In6() && !p.HostIP.IsUnspecified() {
			return nil, fmt.Errorf("connect %s: host port %d on %s: pods have IPv4 addresses only", describe(pod), p.HostPort, p.HostIP)
		}
	}
	others := make([]network.Pod, 0, len(b.entries))
	for _, e := range b.entries {
		others = append(others, e.Pod)
	}
	return CheckPorts(pod, others)
}

// CheckPorts normalizes the ports of a pod and looks for conflicts with those of others, normalized before: the same
// protocol and host port with the same host address, or with either side on all of them (N-10.11).
func CheckPorts(pod network.Pod, others []network.Pod) ([]network.Port, error) {
	var out []network.Port
	for _, p := range pod.Ports {
		p, err := normal(p)
		if err != nil {
			return nil, fmt.Errorf("connect %s: %w", describe(pod), err)
		}
		if slices.ContainsFunc(out, func(q network.Port) bool { return collide(p, q) }) {
			return nil, fmt.Errorf("connect %s: %w: it asks for %s twice", describe(pod), network.ErrPortInUse, PortString(p))
		}
		out = append(out, p)
	}
	for _, o := range others {
		if o.UID == pod.UID {
			continue
		}
		for _, p := range out {
			if slices.ContainsFunc(o.Ports, func(q network.Port) bool { return collide(p, q) }) {
				return nil, fmt.Errorf("connect %s: %w: %s belongs to %s", describe(pod), network.ErrPortInUse, PortString(p), describe(o))
			}
		}
	}
	return out, nil
}

func normal(p network.Port) (network.Port, error) {
	p.Protocol = strings.ToUpper(p.Protocol)
	if p.Protocol == "" {
		p.Protocol = "TCP"
	}
	p.HostIP = p.HostIP.Unmap()
	if p.HostIP.IsUnspecified() {
		p.HostIP = netip.Addr{}
	}
	switch {
	case p.HostPort == 0 || p.ContainerPort == 0:
		return p, fmt.Errorf("host port %d to container port %d: both must be 1 to 65535", p.HostPort, p.ContainerPort)
	case p.Protocol != "TCP" && p.Protocol != "UDP" && p.Protocol != "SCTP":
		return p, fmt.Errorf("host port %d: unknown protocol %q", p.HostPort, p.Protocol)
	}
	return p, nil
}

func collide(a, b network.Port) bool {
	return a.Protocol == b.Protocol && a.HostPort == b.HostPort &&
		(a.HostIP == b.HostIP || !a.HostIP.IsValid() || !b.HostIP.IsValid())
}

// PortString names a host port for people: 8080/TCP, or 192.0.2.1:8080/TCP.
func PortString(p network.Port) string {
	if p.HostIP.IsValid() {
		return netip.AddrPortFrom(p.HostIP, p.HostPort).String() + "/" + p.Protocol
	}
	return fmt.Sprintf("%d/%s", p.HostPort, p.Protocol)
}

func describe(p network.Pod) string {
	if p.Name == "" {
		return "pod " + p.UID
	}
	return "pod " + p.Namespace + "/" + p.Name
}
