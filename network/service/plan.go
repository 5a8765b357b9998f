package service

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"ledge/network"
)

// Board is what matters of this machine.
type Board struct {
	Name string
	Zone string // label topology.kubernetes.io/zone
	Pods []netip.Prefix
	Own  []netip.Addr // of this machine; nil: not known
}

// lent says that a balanced address of a Service is forwarded here. Where boards are the load balancer, each forwards what reaches it at an
// address of its own: which others are boards is what those say themselves, and one might say the address of a name server.
func (b Board) lent(s *Service, a netip.Addr) bool {
	return !s.ByBoards || b.Own == nil || slices.Contains(b.Own, a)
}

// Hides says that an endpoint is a pod of another board under an address of this board's own pods: whoever is sent there from here
// reaches some pod of this board. Boards whose control plane gives no networks all have the same one.
func (b Board) Hides(e Endpoint) bool {
	return e.Node != "" && e.Node != b.Name && slices.ContainsFunc(b.Pods, func(p netip.Prefix) bool { return p.Contains(e.Addr) })
}

// Health is what a load balancer is told that asks whether it may send connections here.
type Health struct {
	Port    uint16
	Local   int       // ready endpoints of this board
	Created time.Time // of the Service
}

// Lacks says what Plan leaves out of a Service, for whoever made it; empty: nothing.
func Lacks(s *Service, of []*Slice, b Board) string {
	if !s.Forwards() {
		return ""
	}
	if s.Cut {
		return fmt.Sprintf("forwards the first %d ports of this Service, not more", mostPorts)
	}
	if len(of) > mostSlices {
		return fmt.Sprintf("looks at %d EndpointSlices of this Service, not more", mostSlices)
	}
	all := 0
	for _, x := range of {
		all += len(x.Endpoints)
	}
	if all <= MostEndpoints {
		return ""
	}
	for _, cluster := range s.ClusterIPs {
		for _, p := range s.Ports {
			ends := slices.DeleteFunc(b.collect(of, p, cluster.Is4()), func(e end) bool { return !e.Ready })
			if len(ends) > MostEndpoints {
				return fmt.Sprintf("leads to %d of the endpoints behind port %d of this Service, those with the lowest addresses", MostEndpoints, p.Port)
			}
		}
	}
	return ""
}

// Hidden says whether some endpoint of the Service cannot be reached from here (Hides).
func (b Board) Hidden(s *Service, of []*Slice) bool {
	return s.Forwards() && slices.ContainsFunc(of, func(x *Slice) bool { return slices.ContainsFunc(x.Endpoints, b.Hides) })
}

// Plan says what this board forwards for one Service, whose slices these are.
func Plan(s *Service, of []*Slice, b Board) (network.Service, Health) {
	out := network.Service{Name: s.Name, Created: s.Created, ClusterIPs: s.ClusterIPs}
	if !s.Forwards() {
		return network.Service{Name: s.Name}, Health{}
	}
	of = of[:min(len(of), mostSlices)]
	for _, cluster := range s.ClusterIPs {
		for _, p := range s.Ports {
			ends := b.collect(of, p, cluster.Is4())
			out.Forwards = append(out.Forwards, s.forwards(cluster, p, b.choose(ends), b)...)
		}
	}
	if s.HealthPort == 0 {
		return out, Health{}
	}
	return out, Health{Port: s.HealthPort, Local: b.localReady(of, s.ClusterIPs[0].Is4()), Created: s.Created}
}

// forwards of one port in the family of one address.
func (s *Service) forwards(cluster netip.Addr, p Port, c choice, b Board) []network.Forward {
	inside := network.Forward{To: netip.AddrPortFrom(cluster, p.Port), Protocol: p.Protocol, Near: c.cluster, Sticky: s.Sticky}
	if s.InternalLocal {
		inside.Near, inside.Drop = c.local, c.any
	}
	out := []network.Forward{inside}

	outside := network.Forward{Protocol: p.Protocol, Near: c.cluster, Far: c.cluster, Outside: true, Masquerade: true, Sticky: s.Sticky}
	if s.ExternalLocal { // pods and the machine itself count as inside: no policy of the outside is theirs
		outside.Far, outside.Masquerade, outside.Drop = c.local, false, c.any
	}
	if p.Node != 0 {
		everywhere := netip.IPv4Unspecified()
		if cluster.Is6() {
			everywhere = netip.IPv6Unspecified()
		}
		outside.To = netip.AddrPortFrom(everywhere, p.Node)
		out = append(out, outside)
	}
	for _, a := range s.Balanced {
		if a.Is4() != cluster.Is4() || !b.lent(s, a) {
			continue
		}
		outside.To, outside.Sources = netip.AddrPortFrom(a, p.Port), s.sourcesOf(a)
		out = append(out, outside)
	}
	return out
}

// sourcesOf are the ranges of a's family; none means everybody. Where only ranges of the other family are given there is no rule
// for this one, as in Kubernetes.
func (s *Service) sourcesOf(a netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s.Sources {
		if p.Addr().Is4() != a.Is4() {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		out = append(out, p)
	}
	if s.Unreadable && len(out) == 0 {
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())} // nobody but the address itself
	}
	return out
}

// end is an endpoint with its port.
type end struct {
	Endpoint
	at netip.AddrPort
}

// collect finds the endpoints of a port in one family, in the order of their addresses, each once. While an address passes from one
// slice, or from one pod, to another it can stand in two: the one that does not end counts. Those that cannot be reached from here are
// left out.
func (b Board) collect(of []*Slice, p Port, v4 bool) []end {
	var out []end
	for _, s := range of {
		if s.Headless {
			continue
		}
		for _, q := range s.Ports {
			if q.Name != p.Name || q.Protocol != p.Protocol {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Addr.Is4() == v4 && !b.Hides(e) {
					out = append(out, end{e, netip.AddrPortFrom(e.Addr, q.Port)})
				}
			}
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		if c := out[i].at.Compare(out[j].at); c != 0 {
			return c < 0
		}
		return rank(out[i]) < rank(out[j])
	})
	return slices.CompactFunc(out, func(a, b end) bool { return a.at == b.at })
}

func rank(e end) int {
	switch {
	case e.Terminating:
		return 2
	case !e.Ready:
		return 1
	}
	return 0
}

// choice are the endpoints that one port has on this board.
type choice struct {
	cluster, local []netip.AddrPort
	any            bool // some board has one
}

func (b Board) choose(ends []end) choice {
	fits := b.topology(ends)
	draining := func(e end) bool { return e.Serving && e.Terminating }
	local := func(of func(end) bool) func(end) bool { return func(e end) bool { return e.Node == b.Name && of(e) } }

	c := choice{cluster: pick(ends, func(e end) bool { return e.Ready && fits(e) })}
	if len(c.cluster) == 0 {
		c.cluster = pick(ends, draining)
	}
	c.local = pick(ends, local(func(e end) bool { return e.Ready }))
	if len(c.local) == 0 {
		c.local = pick(ends, local(draining))
	}
	c.any = len(c.cluster) > 0
	return c
}

func pick(ends []end, want func(end) bool) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range ends {
		if want(e) && len(out) < MostEndpoints {
			out = append(out, e.at)
		}
	}
	return out
}

// topology says which ready endpoints this board may use by the hints that the control plane gave. Hints count only when every
// ready endpoint has one and one of them is for us: else some board would be left without any.
func (b Board) topology(ends []end) func(end) bool {
	forNode := func(e end) bool { return slices.Contains(e.Hints.nodes(), b.Name) }
	forZone := func(e end) bool { return slices.Contains(e.Hints.zones(), b.Zone) }
	nodes, zones, node, zone := true, true, false, false
	for _, e := range ends {
		if !e.Ready {
			continue
		}
		nodes, zones = nodes && len(e.Hints.nodes()) > 0, zones && len(e.Hints.zones()) > 0
		node, zone = node || forNode(e), zone || forZone(e)
	}
	switch {
	case nodes && node:
		return forNode
	case zones && zone:
		return forZone
	}
	return func(end) bool { return true }
}

// localReady counts the ready endpoints of this board, whatever their ports.
func (b Board) localReady(of []*Slice, v4 bool) int {
	seen := map[netip.Addr]bool{}
	for _, s := range of {
		for _, e := range s.Endpoints {
			if e.Ready && e.Node == b.Name && e.Addr.Is4() == v4 {
				seen[e.Addr] = true
			}
		}
	}
	return len(seen)
}
