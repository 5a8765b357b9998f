// Package service decides what a board forwards: Services, EndpointSlices and a few facts of the board come in, and what the
// kernel should do goes out. It has no effects.
//
// The meaning is that of kube-proxy. It keeps two lists of endpoints for a port: those of all boards (traffic policy Cluster),
// thinned by hints of zone or node, and those of this board (Local). Endpoints that end serve only where no ready one is left.
package service

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Service is what is kept of a v1 Service.
type Service struct {
	Name          string // namespace/name
	Created       time.Time
	ClusterIPs    []netip.Addr
	Ports         []Port
	InternalLocal bool // traffic policy of ClusterIPs
	ExternalLocal bool // traffic policy of node ports and load balancers
	Balanced      []netip.Addr
	Sources       []netip.Prefix // that may use Balanced; none: all
	// Unreadable: a source range could not be understood. Nobody may use Balanced then: it was meant for few.
	Unreadable bool
	Sticky     time.Duration
	HealthPort uint16
}

// Port is one of a Service.
type Port struct {
	Name, Protocol string
	Port, Node     uint16
}

// Slice is what is kept of an EndpointSlice.
type Slice struct {
	Service   string // namespace/name
	Ports     []Port // Node is not used
	Endpoints []Endpoint
}

// Endpoint is one of a Slice.
type Endpoint struct {
	Addr                        netip.Addr
	Node                        string
	Ready, Serving, Terminating bool
	ForZones, ForNodes          []string
}

// What one object may make a board hold. An API server takes less; what is beyond is not forwarded.
const (
	mostPorts     = 256
	mostAddresses = 64
	mostSources   = 256
	// MostEndpoints bounds the list that a port of a Service has: those with the lowest addresses are used.
	MostEndpoints = 1000
	// mostSlices of one service are looked at.
	mostSlices = 1000
)

// proxyNameLabel is on Services that another program forwards.
const proxyNameLabel = "service.kubernetes.io/service-proxy-name"

// Trim keeps of a Service what forwarding needs; false: there is nothing to forward.
func Trim(s *corev1.Service) (Service, bool) {
	if _, others := s.Labels[proxyNameLabel]; others || s.Spec.Type == corev1.ServiceTypeExternalName {
		return Service{}, false
	}
	out := Service{Name: s.Namespace + "/" + s.Name, Created: s.CreationTimestamp.Time, ClusterIPs: clusterIPs(s)}
	if len(out.ClusterIPs) == 0 { // headless, or it has no address yet
		return Service{}, false
	}
	for _, p := range s.Spec.Ports[:min(len(s.Spec.Ports), mostPorts)] {
		if port, node := portOf(p.Port), portOf(p.NodePort); port != 0 {
			out.Ports = append(out.Ports, Port{Name: p.Name, Protocol: protocol(&p.Protocol), Port: port, Node: node})
		}
	}
	policy := s.Spec.InternalTrafficPolicy
	out.InternalLocal = policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal
	outside := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
	out.ExternalLocal = outside && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.Sticky = sticky(s.Spec.SessionAffinityConfig)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		out.Balanced = balanced(s.Status.LoadBalancer.Ingress)
		out.Sources, out.Unreadable = sources(s.Spec.LoadBalancerSourceRanges)
		if out.ExternalLocal {
			out.HealthPort = portOf(s.Spec.HealthCheckNodePort)
		}
	}
	return out, true
}

// clusterIPs are the addresses of a Service, one of each family.
func clusterIPs(s *corev1.Service) []netip.Addr {
	texts := s.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{s.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || unusable(a) || len(out) == 2 || len(out) == 1 && out[0].Is4() == a.Is4() {
			continue
		}
		out = append(out, a)
	}
	return out
}

// unusable addresses would take over more than a Service: 0.0.0.0 stands for the whole machine here.
func unusable(a netip.Addr) bool {
	return a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast()
}

func balanced(ingress []corev1.LoadBalancerIngress) []netip.Addr {
	var out []netip.Addr
	for _, in := range ingress[:min(len(ingress), mostAddresses)] {
		if in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		if a, err := netip.ParseAddr(in.IP); err == nil && !unusable(a) {
			out = append(out, a)
		}
	}
	return out
}

func sources(texts []string) (out []netip.Prefix, unreadable bool) {
	for _, text := range texts[:min(len(texts), mostSources)] {
		p, err := netip.ParsePrefix(strings.TrimSpace(text)) // Kubernetes accepts spaces around it
		if err != nil || p.Addr().Is4In6() {
			unreadable = true
			continue
		}
		out = append(out, p.Masked())
	}
	return out, unreadable
}

// sticky is bounded: a client that is remembered costs the kernel memory.
func sticky(c *corev1.SessionAffinityConfig) time.Duration {
	const usual, most = 3 * time.Hour, 24 * time.Hour
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil || *c.ClientIP.TimeoutSeconds <= 0 {
		return usual
	}
	return min(time.Duration(*c.ClientIP.TimeoutSeconds)*time.Second, most)
}

func portOf(n int32) uint16 {
	if n < 1 || n > 65535 {
		return 0
	}
	return uint16(n)
}

func protocol(p *corev1.Protocol) string {
	if p == nil || *p == "" {
		return string(corev1.ProtocolTCP)
	}
	return string(*p)
}

// TrimSlice keeps of an EndpointSlice what forwarding needs; false: nothing of it is forwarded.
func TrimSlice(s *discoveryv1.EndpointSlice) (Slice, bool) {
	name := s.Labels[discoveryv1.LabelServiceName]
	_, headless := s.Labels[corev1.IsHeadlessService]
	if name == "" || headless || s.AddressType == discoveryv1.AddressTypeFQDN {
		return Slice{}, false
	}
	out := Slice{Service: s.Namespace + "/" + name}
	for _, p := range s.Ports[:min(len(s.Ports), mostPorts)] {
		if p.Port == nil || portOf(*p.Port) == 0 {
			continue
		}
		port := Port{Protocol: protocol(p.Protocol), Port: portOf(*p.Port)}
		if p.Name != nil {
			port.Name = *p.Name
		}
		out.Ports = append(out.Ports, port)
	}
	for _, e := range s.Endpoints[:min(len(s.Endpoints), MostEndpoints)] {
		if end, ok := trimEndpoint(e, s.AddressType); ok {
			out.Endpoints = append(out.Endpoints, end)
		}
	}
	return out, len(out.Ports) > 0 && len(out.Endpoints) > 0
}

func trimEndpoint(e discoveryv1.Endpoint, family discoveryv1.AddressType) (Endpoint, bool) {
	if len(e.Addresses) == 0 {
		return Endpoint{}, false
	}
	a, err := netip.ParseAddr(e.Addresses[0]) // all of them stand for one endpoint
	if err != nil || unusable(a) || a.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return Endpoint{}, false
	}
	c := e.Conditions
	out := Endpoint{Addr: a, Ready: c.Ready == nil || *c.Ready, Serving: c.Serving == nil || *c.Serving,
		Terminating: c.Terminating != nil && *c.Terminating}
	if e.NodeName != nil {
		out.Node = *e.NodeName
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.ForZones = append(out.ForZones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.ForNodes = append(out.ForNodes, n.Name)
		}
	}
	return out, true
}
