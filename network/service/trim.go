// Package service decides what a board forwards: Services, EndpointSlices and a few facts of the board come in, and what the
// kernel should do goes out. It has no effects. Heard is the one copy of them that a board keeps, for its rules and for names.
//
// The meaning is that of kube-proxy. It keeps two lists of endpoints for a port: those of all boards (traffic policy Cluster),
// thinned by hints of zone or node, and those of this board (Local). Endpoints that end serve only where no ready one is left.
package service

import (
	"net/netip"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Service is what is kept of a v1 Service, to forward it and to answer for its name. The letters are those of what is remembered on disk.
type Service struct {
	Name          string         `json:"n"` // namespace/name
	Created       time.Time      `json:"c,omitzero"`
	UID           types.UID      `json:"id,omitempty"` // events may be about it
	ClusterIPs    []netip.Addr   `json:"a,omitempty"`
	Ports         []Port         `json:"p,omitempty"`
	Cut           bool           `json:"ct,omitempty"` // it has more ports
	InternalLocal bool           `json:"il,omitempty"` // traffic policy of ClusterIPs
	ExternalLocal bool           `json:"el,omitempty"` // traffic policy of node ports and load balancers
	Balanced      []netip.Addr   `json:"b,omitempty"`
	ByBoards      bool           `json:"bb,omitempty"` // Balanced are addresses of boards
	Sources       []netip.Prefix `json:"s,omitempty"`  // that may use Balanced; none: all
	// Unreadable: a source range could not be understood. Nobody may use Balanced then: it was meant for few.
	Unreadable bool          `json:"u,omitempty"`
	Sticky     time.Duration `json:"st,omitempty"`
	HealthPort uint16        `json:"h,omitempty"`

	Elsewhere bool   `json:"o,omitempty"`  // another program forwards it
	Headless  bool   `json:"hl,omitempty"` // its name leads to its endpoints
	Unready   bool   `json:"ur,omitempty"` // its endpoints are told before they are ready
	Target    string `json:"t,omitempty"`  // of an ExternalName
}

// Forwards says whether this board leads connections to it.
func (s *Service) Forwards() bool { return len(s.ClusterIPs) > 0 && !s.Elsewhere }

// Port is one of a Service.
type Port struct {
	Name     string `json:"n,omitempty"`
	Protocol string `json:"r"`
	Port     uint16 `json:"p"`
	Node     uint16 `json:"o,omitempty"`
}

// Slice is what is kept of an EndpointSlice.
type Slice struct {
	Service   string     `json:"s"`           // namespace/name
	Ports     []Port     `json:"p,omitempty"` // Node is not used
	AllPorts  bool       `json:"l,omitempty"` // it names no ports: those of the Service
	Headless  bool       `json:"h,omitempty"` // it says that nobody forwards its Service
	ByHand    bool       `json:"b,omitempty"` // somebody else than the control plane wrote it, and may not have said that
	Endpoints []Endpoint `json:"e"`
}

// Endpoint is one of a Slice.
type Endpoint struct {
	Addr        netip.Addr `json:"a"`
	Ready       bool       `json:"r,omitempty"`
	Serving     bool       `json:"s,omitempty"`
	Terminating bool       `json:"t,omitempty"`
	Node        string     `json:"n,omitempty"`
	Host        string     `json:"h,omitempty"` // in small letters; empty: the address with dashes
	Pod         string     `json:"p,omitempty"` // of this board: its name
	Hints       *Hints     `json:"i,omitempty"`
}

// Hints say for whom an endpoint is meant.
type Hints struct {
	Zones []string `json:"z,omitempty"`
	Nodes []string `json:"n,omitempty"`
}

// Key is the name in two parts.
func Key(name string) types.NamespacedName {
	namespace, name, _ := strings.Cut(name, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
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

// managedByLoop are slices that the control plane's own loop writes.
const managedByLoop = "endpointslice-controller.k8s.io"

// Trim keeps of a Service what a board needs.
func Trim(s *corev1.Service) *Service {
	out := &Service{Name: s.Namespace + "/" + s.Name, Created: s.CreationTimestamp.Time, Unready: s.Spec.PublishNotReadyAddresses}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		out.Target = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, ".")) + "."
		return out
	}
	out.UID = s.UID
	_, out.Elsewhere = s.Labels[proxyNameLabel]
	out.ClusterIPs, out.Headless = clusterIPs(s), s.Spec.ClusterIP == corev1.ClusterIPNone
	out.Cut = len(s.Spec.Ports) > mostPorts
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
		out.ByBoards = s.Spec.LoadBalancerClass == nil
		out.Balanced = balanced(s.Status.LoadBalancer.Ingress)
		out.Sources, out.Unreadable = sources(s.Spec.LoadBalancerSourceRanges)
		if out.ExternalLocal {
			out.HealthPort = portOf(s.Spec.HealthCheckNodePort)
		}
	}
	return out
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

// protocol shares one string among all ports.
func protocol(p *corev1.Protocol) string {
	if p == nil || *p == "" {
		return string(corev1.ProtocolTCP)
	}
	return unique.Make(string(*p)).Value()
}

// TrimSlice keeps of an EndpointSlice what the board of that name needs; nil: nothing of it.
func TrimSlice(s *discoveryv1.EndpointSlice, board string) *Slice {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	out := &Slice{Service: s.Namespace + "/" + name, AllPorts: s.Ports == nil}
	_, out.Headless = s.Labels[corev1.IsHeadlessService]
	out.ByHand = s.Labels[discoveryv1.LabelManagedBy] != managedByLoop
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
		if end, ok := trimEndpoint(e, s.AddressType, board); ok {
			out.Endpoints = append(out.Endpoints, end)
		}
	}
	if len(out.Endpoints) == 0 {
		return nil
	}
	return out
}

func trimEndpoint(e discoveryv1.Endpoint, family discoveryv1.AddressType, board string) (Endpoint, bool) {
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
	if e.Hostname != nil {
		out.Host = strings.ToLower(*e.Hostname)
	}
	if e.NodeName != nil {
		out.Node = unique.Make(*e.NodeName).Value()
	}
	if out.Node == board && e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		out.Pod = e.TargetRef.Name
	}
	if e.Hints == nil || len(e.Hints.ForZones)+len(e.Hints.ForNodes) == 0 {
		return out, true
	}
	out.Hints = &Hints{}
	for _, z := range e.Hints.ForZones {
		out.Hints.Zones = append(out.Hints.Zones, unique.Make(z.Name).Value())
	}
	for _, n := range e.Hints.ForNodes {
		out.Hints.Nodes = append(out.Hints.Nodes, unique.Make(n.Name).Value())
	}
	return out, true
}

func (h *Hints) zones() []string {
	if h == nil {
		return nil
	}
	return h.Zones
}

func (h *Hints) nodes() []string {
	if h == nil {
		return nil
	}
	return h.Nodes
}
