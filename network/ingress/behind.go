package ingress

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Service is what matters of one here.
type Service struct {
	Ports    []Port
	External bool // it is a name, not pods
	Sticky   bool // a client stays with an endpoint
	V6       bool // its first family
}

// Port is one of a Service.
type Port struct {
	Name   string
	Number int32
	H2C    bool // who is behind it speaks HTTP/2 without TLS
}

// Slice is a part of the endpoints of a Service.
type Slice struct {
	Service types.NamespacedName
	V6      bool
	Ports   []SlicePort
	Ends    []End
}

// SlicePort is a port of endpoints, by its name in the Service.
type SlicePort struct {
	Name   string
	Number uint16
}

// End is one endpoint. Ending: it takes no new requests unless nobody else does.
type End struct {
	Addr   netip.Addr
	Ending bool
}

// TrimService keeps of a Service what matters.
func TrimService(s *corev1.Service) Service {
	out := Service{External: s.Spec.Type == corev1.ServiceTypeExternalName, Sticky: s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
		V6: len(s.Spec.IPFamilies) > 0 && s.Spec.IPFamilies[0] == corev1.IPv6Protocol}
	for _, p := range s.Spec.Ports {
		if p.Protocol != corev1.ProtocolUDP && p.Protocol != corev1.ProtocolSCTP {
			h2c := p.AppProtocol != nil && (*p.AppProtocol == "kubernetes.io/h2c" || *p.AppProtocol == "grpc")
			out.Ports = append(out.Ports, Port{p.Name, p.Port, h2c})
		}
	}
	return out
}

// TrimSlice keeps of a slice what matters; !ok: nothing of it does.
func TrimSlice(s *discoveryv1.EndpointSlice) (out Slice, ok bool) {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return out, false
	}
	out = Slice{Service: types.NamespacedName{Namespace: s.Namespace, Name: name}, V6: s.AddressType == discoveryv1.AddressTypeIPv6}
	for _, p := range s.Ports {
		if p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 && (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) {
			port := SlicePort{Number: uint16(*p.Port)}
			if p.Name != nil {
				port.Name = *p.Name
			}
			out.Ports = append(out.Ports, port)
		}
	}
	is := func(b *bool, otherwise bool) bool { return b == nil && otherwise || b != nil && *b }
	for _, e := range s.Endpoints {
		ready := is(e.Conditions.Ready, true)
		if !ready && !(is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, false)) || len(e.Addresses) == 0 {
			continue
		}
		// The API takes no loopback and link-local addresses; we would be who is asked at the first.
		if ip, err := netip.ParseAddr(e.Addresses[0]); err == nil && !ip.IsLoopback() && !ip.IsUnspecified() && !ip.IsLinkLocalUnicast() {
			out.Ends = append(out.Ends, End{ip.Unmap(), !ready})
		}
	}
	return out, true
}

// Pool is who may answer the requests of a backend.
type Pool struct {
	Ends   []netip.AddrPort // in order, each once
	H2C    bool
	Sticky bool
	Lacks  string // why there is nobody
	Wrong  bool   // and that will not mend by itself
}

// Behind finds who is behind a port of a Service: those who are ready, or else those who end and still answer. service is nil where
// there is none of that name.
func Behind(to Backend, service *Service, of []Slice) Pool {
	switch {
	case service == nil:
		return Pool{Lacks: "there is no such service", Wrong: true}
	case service.External:
		return Pool{Lacks: "the service is a name of type ExternalName, to which nobody from outside is led", Wrong: true}
	}
	i := slices.IndexFunc(service.Ports, func(p Port) bool {
		return to.PortName != "" && p.Name == to.PortName || to.PortName == "" && p.Number == to.Port
	})
	if i < 0 {
		return Pool{Lacks: "the service has no such port", Wrong: true}
	}
	port := service.Ports[i]
	out := Pool{H2C: port.H2C, Sticky: service.Sticky}
	for _, v6 := range []bool{service.V6, !service.V6} {
		for _, ending := range []bool{false, true} {
			if out.Ends = ends(of, port.Name, v6, ending); len(out.Ends) > 0 {
				return out
			}
		}
	}
	out.Lacks = "the service has no endpoint that is ready"
	return out
}

func ends(of []Slice, port string, v6, ending bool) (out []netip.AddrPort) {
	for _, s := range of {
		i := slices.IndexFunc(s.Ports, func(p SlicePort) bool { return p.Name == port })
		if s.V6 != v6 || i < 0 {
			continue
		}
		for _, e := range s.Ends {
			if e.Ending == ending {
				out = append(out, netip.AddrPortFrom(e.Addr, s.Ports[i].Number))
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Compare(out[j]) < 0 })
	return slices.Compact(out)
}

// Order is in which order a request tries the endpoints: who stays with one comes to the same first for as long as it is there, on every
// board; others take turns. turn counts requests.
func (p *Pool) Order(client netip.Addr, turn uint64) func(try int) netip.AddrPort {
	n := uint64(len(p.Ends))
	first := turn % n
	if p.Sticky {
		var best uint64
		for i, e := range p.Ends { // the highest of a sum for each pair: an endpoint that goes moves its own clients only
			if sum := pair(client, e); i == 0 || sum > best {
				best, first = sum, uint64(i)
			}
		}
	}
	return func(try int) netip.AddrPort { return p.Ends[(first+uint64(try))%n] }
}

func pair(client netip.Addr, end netip.AddrPort) uint64 {
	h := fnv.New64a()
	a, b := client.As16(), end.Addr().As16()
	_, _ = h.Write(append(append(a[:], b[:]...), byte(end.Port()>>8), byte(end.Port()))) // it never fails
	return h.Sum64()
}
