// Package plan is the pure part of connecting pods: which address and which host ports belong to whom, and which
// network to choose for them. It does no I/O; network/bridge makes it true, network/fake only remembers it.
package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ledge/network"
)

// Entry is a pod with its address. Its ports are normalized: protocol in capitals, HostIP zero for every address.
type Entry struct {
	Pod  network.Pod
	Addr netip.Addr
}

// Book knows who has what. It is not safe for concurrent use.
type Book struct {
	pool    pool
	entries map[string]Entry // by pod UID
}

// NewBook begins an empty book for the pods of one IPv4 network.
func NewBook(cidr netip.Prefix) (*Book, error) {
	if !cidr.IsValid() || !cidr.Addr().Is4() || cidr.Bits() < 8 || cidr.Bits() > 29 {
		return nil, fmt.Errorf("pod CIDR %s: want an IPv4 network between /8 and /29", cidr)
	}
	return &Book{pool: pool{cidr: cidr.Masked(), used: map[netip.Addr]string{}}, entries: map[string]Entry{}}, nil
}

// CIDR is the network of the pods.
func (b *Book) CIDR() netip.Prefix { return b.pool.cidr }

// Gateway is the board's own address in that network: the first one.
func (b *Book) Gateway() netip.Addr { return b.pool.at(1) }

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
	slices.SortFunc(out, func(x, y Entry) int { return x.Addr.Compare(y.Addr) })
	return out
}

// Restore enters a pod known from before, with the address it has. What contradicts the book is refused.
func (b *Book) Restore(e Entry) error {
	if !b.pool.usable(e.Addr) {
		return fmt.Errorf("restore %s: %s is no pod address of %s", describe(e.Pod), e.Addr, b.pool.cidr)
	}
	if owner, taken := b.pool.used[e.Addr]; taken && owner != e.Pod.UID {
		return fmt.Errorf("restore %s: %s belongs to pod %s", describe(e.Pod), e.Addr, owner)
	}
	if old, had := b.entries[e.Pod.UID]; had && old.Addr != e.Addr {
		return fmt.Errorf("restore %s: it already has %s", describe(e.Pod), old.Addr)
	}
	ports, err := b.checkPorts(e.Pod)
	if err != nil {
		return err
	}
	e.Pod.Ports = ports
	b.pool.used[e.Addr], b.entries[e.Pod.UID] = e.Pod.UID, e
	b.pool.last = max(b.pool.last, b.pool.offset(e.Addr))
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
	b.entries[pod.UID] = e
	return e, !known, nil
}

// Release forgets a pod.
func (b *Book) Release(uid string) {
	if e, ok := b.entries[uid]; ok {
		delete(b.pool.used, e.Addr)
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
	case p.HostIP.IsValid() && !p.HostIP.Is4():
		return p, fmt.Errorf("host port %d on %s: pods have IPv4 addresses only", p.HostPort, p.HostIP)
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
		return fmt.Sprintf("%s:%d/%s", p.HostIP, p.HostPort, p.Protocol)
	}
	return fmt.Sprintf("%d/%s", p.HostPort, p.Protocol)
}

func describe(p network.Pod) string {
	if p.Name == "" {
		return "pod " + p.UID
	}
	return "pod " + p.Namespace + "/" + p.Name
}
