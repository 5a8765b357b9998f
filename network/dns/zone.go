package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Zone knows the names of a cluster: of each Service and slice it keeps what a name can lead to, and nothing else.
type Zone struct {
	domain string         // "cluster.local."
	board  string         // the Node's name
	self   netip.Addr     // where this is asked: the zone's name server
	ranges []netip.Prefix // of this board's pods: nobody else knows their names

	apex, server, master dnsmessage.Name // of the SOA

	mu         sync.RWMutex
	services   map[name]*service
	slices     map[name]*slice   // by their own names
	behind     map[name][]*slice // by those of their Services
	namespaces map[string]int    // with how many Services
	holders    map[netip.Addr][]*slice
	addressed  map[netip.Addr]name // cluster IPs

	heardServices, heardSlices chan struct{} // closed once it is known which there are
}

// name is an object's.
type name struct{ namespace, name string }

// service is what names need of a Service.
type service struct {
	headless bool
	addrs    []netip.Addr
	ports    []port
	target   string // of an ExternalName: "www.example.com."; else empty
	unready  bool   // its endpoints are told before they are ready
}

type port struct {
	name, protocol string // in small letters
	number         uint16
}

// slice is what names need of an EndpointSlice.
type slice struct {
	of        name // the Service
	ports     []port
	all       bool // it names no ports: those of the Service
	endpoints []endpoint
}

type endpoint struct {
	addr     netip.Addr
	hostname string // in small letters; empty: the address with dashes
	ready    bool
}

// mostAddresses is the most of a slice that is kept: the API takes no more endpoints.
const mostAddresses = 1000

// NewZone begins an empty zone. domain is such as cluster.local, self the address where it is asked, ranges those of the board's pods:
// for names of other addresses other resolvers are asked.
func NewZone(domain, board string, self netip.Addr, ranges ...netip.Prefix) (*Zone, error) {
	z := &Zone{domain: strings.ToLower(strings.TrimSuffix(domain, ".")) + ".", board: board, self: self, ranges: ranges,
		services: map[name]*service{}, slices: map[name]*slice{}, behind: map[name][]*slice{}, namespaces: map[string]int{},
		holders: map[netip.Addr][]*slice{}, addressed: map[netip.Addr]name{},
		heardServices: make(chan struct{}), heardSlices: make(chan struct{})}
	for to, text := range map[*dnsmessage.Name]string{&z.apex: z.domain, &z.server: "ns.dns." + z.domain, &z.master: "hostmaster." + z.domain} {
		var err error
		if *to, err = dnsmessage.NewName(text); err != nil {
			return nil, fmt.Errorf("cluster domain %s: %w", domain, err)
		}
	}
	return z, nil
}

// SetService takes a Service, new or changed.
func (z *Zone) SetService(s *corev1.Service) {
	n, trimmed := name{s.Namespace, s.Name}, trimService(s)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropService(n)
	z.services[n] = trimmed
	z.namespaces[n.namespace]++
	for _, a := range trimmed.addrs {
		z.addressed[a] = n
	}
}

// DeleteService forgets a Service.
func (z *Zone) DeleteService(namespace, service string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropService(name{namespace, service})
}

func (z *Zone) dropService(n name) {
	old := z.services[n]
	if old == nil {
		return
	}
	for _, a := range old.addrs {
		if z.addressed[a] == n {
			delete(z.addressed, a)
		}
	}
	delete(z.services, n)
	if z.namespaces[n.namespace]--; z.namespaces[n.namespace] == 0 {
		delete(z.namespaces, n.namespace)
	}
}

// SetSlice takes a slice, new or changed.
func (z *Zone) SetSlice(s *discoveryv1.EndpointSlice) {
	n, trimmed := name{s.Namespace, s.Name}, z.trimSlice(s)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropSlice(n)
	if trimmed == nil {
		return
	}
	z.slices[n] = trimmed
	z.behind[trimmed.of] = append(z.behind[trimmed.of], trimmed)
	for _, e := range trimmed.endpoints {
		if !slices.Contains(z.holders[e.addr], trimmed) {
			z.holders[e.addr] = append(z.holders[e.addr], trimmed)
		}
	}
}

// DeleteSlice forgets a slice.
func (z *Zone) DeleteSlice(namespace, slice string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropSlice(name{namespace, slice})
}

func (z *Zone) dropSlice(n name) {
	old := z.slices[n]
	if old == nil {
		return
	}
	delete(z.slices, n)
	without(z.behind, old.of, old)
	for _, e := range old.endpoints {
		without(z.holders, e.addr, old)
	}
}

// without takes a slice out of one of the lists, and the list with its last one.
func without[K comparable](lists map[K][]*slice, key K, s *slice) {
	lists[key] = slices.DeleteFunc(lists[key], func(o *slice) bool { return o == s })
	if len(lists[key]) == 0 {
		delete(lists, key)
	}
}

// KeepServices forgets those that keep does not know: they went while nobody listened.
func (z *Zone) KeepServices(keep func(namespace, name string) bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for n := range z.services {
		if !keep(n.namespace, n.name) {
			z.dropService(n)
		}
	}
}

// KeepSlices is KeepServices for slices.
func (z *Zone) KeepSlices(keep func(namespace, name string) bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for n := range z.slices {
		if !keep(n.namespace, n.name) {
			z.dropSlice(n)
		}
	}
}

func trimService(s *corev1.Service) *service {
	out := &service{unready: s.Spec.PublishNotReadyAddresses}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		out.target = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, ".")) + "."
		return out
	}
	for _, text := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(out.addrs, a.Unmap()) {
			out.addrs = append(out.addrs, a.Unmap())
		}
	}
	out.headless = s.Spec.ClusterIP == corev1.ClusterIPNone
	for _, p := range s.Spec.Ports {
		out.ports = append(out.ports, port{strings.ToLower(p.Name), protocol(p.Protocol), uint16(p.Port)})
	}
	return out
}

// trimSlice is nil for one that no name leads to. Where boards have one and the same network for pods, a pod of another board is left out:
// its address is that of some pod here.
func (z *Zone) trimSlice(s *discoveryv1.EndpointSlice) *slice {
	of := s.Labels[discoveryv1.LabelServiceName]
	if of == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	out := &slice{of: name{s.Namespace, of}, all: s.Ports == nil}
	for _, p := range s.Ports {
		if p.Port != nil {
			out.ports = append(out.ports, port{strings.ToLower(value(p.Name)), protocol(value(p.Protocol)), uint16(*p.Port)})
		}
	}
	for _, e := range s.Endpoints {
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		far := e.NodeName != nil && *e.NodeName != z.board
		for _, t := range e.Addresses {
			a, err := netip.ParseAddr(t)
			if err == nil && len(out.endpoints) < mostAddresses && !(far && z.pods(a)) {
				out.endpoints = append(out.endpoints, endpoint{a.Unmap().WithZone(""), strings.ToLower(value(e.Hostname)), ready})
			}
		}
	}
	return out
}

// pods says that an address is of this board's pods.
func (z *Zone) pods(a netip.Addr) bool {
	return slices.ContainsFunc(z.ranges, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

func protocol(p corev1.Protocol) string {
	if p == "" {
		return "tcp"
	}
	return strings.ToLower(string(p))
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// label is what an endpoint is called below its Service.
func (e endpoint) label() string {
	if e.hostname != "" {
		return e.hostname
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.addr.String())
}
