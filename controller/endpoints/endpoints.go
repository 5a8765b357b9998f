// Package endpoints decides what stands behind Services. It is pure: a Service, the pods that it selects and what there is go in, what is
// to be written comes out.
//
//	Service, pods, nodes, slices     -> Slices  -> slices to make, change and delete
//	Service, pods, Endpoints         -> Legacy  -> the Endpoints object that older programs read
//	Endpoints made by hand, slices   -> Mirror  -> slices to make, change and delete
//
// Nothing has to be remembered between two looks: whoever dies between any two writes of a plan leaves something from which the next plan
// comes to the same end. Writes are in an order in which an address is never missing: it may be in two slices for a moment, and the
// next plan takes it out of one.
package endpoints

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
)

const (
	// Manager is whose slices those are that come from pods, by their label endpointslice.kubernetes.io/managed-by.
	Manager = "endpointslice-controller.k8s.io"
	// full is the number of endpoints in a slice: the smaller a slice, the less is written and sent for one pod that changes; the larger,
	// the fewer objects there are.
	full = 100
)

// Where tells the zone of a node, "" without one. !ok: there is no such node.
type Where func(node string) (zone string, ok bool)

// Wanted says that a Service gets its endpoints from pods.
func Wanted(svc *corev1.Service) bool {
	return len(svc.Spec.Selector) > 0 && svc.Spec.Type != corev1.ServiceTypeExternalName && svc.DeletionTimestamp == nil
}

// Slices says what to write, so that the slices of a Service name the pods behind it. pods are those that it selects; existing are the
// slices with its name and this package's label. Pods on nodes that do not exist are left out.
func Slices(svc *corev1.Service, pods []*corev1.Pod, where Where, existing []*discoveryv1.EndpointSlice) Plan {
	return slicesOf(full, svc, pods, where, existing)
}

func slicesOf(capacity int, svc *corev1.Service, pods []*corev1.Pod, where Where, existing []*discoveryv1.EndpointSlice) Plan {
	f := frame{namespace: svc.Namespace, service: svc.Name, labels: labelsOf(svc, discoveryv1.LabelManagedBy, Manager), capacity: capacity,
		owner: *metav1.NewControllerRef(svc, api.Services.GVK()), born: svc.CreationTimestamp.Time}
	f.labels[discoveryv1.LabelServiceName] = svc.Name
	pods = slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	var groups []*group
	for _, family := range families(svc) {
		groups = append(groups, groupsOf(svc, pods, where, family)...)
	}
	return f.plan(groups, existing)
}

// groupsOf puts the pods that have an address of a family into groups by the ports that they serve. Without any there is an empty group,
// for a slice that says so.
func groupsOf(svc *corev1.Service, pods []*corev1.Pod, where Where, family discoveryv1.AddressType) (out []*group) {
	by := map[string]*group{}
	for _, p := range pods {
		e, ok := endpointOf(svc, p, where, family)
		if !ok {
			continue
		}
		ports := portsOf(svc, p)
		g := by[portsKey(ports)]
		if g == nil {
			g = &group{family: family, ports: ports, since: map[identity]time.Time{}}
			by[portsKey(ports)] = g
			out = append(out, g)
		}
		g.want = append(g.want, e)
		g.since[identify(&e)] = changedAt(p)
	}
	if len(out) == 0 {
		out = append(out, &group{family: family, empty: true})
	}
	return out
}

// families are the kinds of addresses that a Service has. One from before a server that gives them has both.
func families(svc *corev1.Service) []discoveryv1.AddressType {
	var out []discoveryv1.AddressType
	for _, f := range svc.Spec.IPFamilies {
		out = append(out, discoveryv1.AddressType(f)) // IPv4 and IPv6 in both
	}
	if len(out) > 0 {
		return out
	}
	if ip, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil {
		return []discoveryv1.AddressType{familyOf(ip)}
	}
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

func familyOf(ip netip.Addr) discoveryv1.AddressType {
	if ip.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

// labelsOf are the labels of a Service for what is behind it, with that of its manager.
func labelsOf(svc *corev1.Service, key, manager string) map[string]string {
	out := map[string]string{}
	for k, v := range svc.Labels {
		out[k] = v
	}
	delete(out, corev1.IsHeadlessService)
	delete(out, discoveryv1.LabelServiceName)
	if svc.Spec.ClusterIP == "" || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		out[corev1.IsHeadlessService] = ""
	}
	out[key] = manager
	return out
}

// endpointOf is a pod as an endpoint. !ok: it has ended, or has no address of the family, or its node is gone.
func endpointOf(svc *corev1.Service, p *corev1.Pod, where Where, family discoveryv1.AddressType) (e discoveryv1.Endpoint, ok bool) {
	ip, ok := addressOf(p, family)
	if !ok || ended(p) {
		return e, false
	}
	zone, known := where(p.Spec.NodeName)
	if !known && !svc.Spec.PublishNotReadyAddresses {
		return e, false
	}
	serving, terminating := api.PodReady(p), p.DeletionTimestamp != nil
	ready := svc.Spec.PublishNotReadyAddresses || serving && !terminating
	e = discoveryv1.Endpoint{Addresses: []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  targetOf(p)}
	if p.Spec.NodeName != "" {
		e.NodeName = &p.Spec.NodeName
	}
	if zone != "" {
		e.Zone = &zone
	}
	if named(svc, p) {
		e.Hostname = &p.Spec.Hostname
	}
	if ready {
		e.Hints = hintsFor(svc, &e)
	}
	return e, true
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// named says that a pod has a name of its own below that of a Service.
func named(svc *corev1.Service, p *corev1.Pod) bool {
	return p.Spec.Hostname != "" && p.Spec.Subdomain == svc.Name
}

func targetOf(p *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: api.Pods.Name, Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// addressOf is the address that a pod has of a family, if it is one at which others reach it.
func addressOf(p *corev1.Pod, family discoveryv1.AddressType) (string, bool) {
	ips := p.Status.PodIPs
	if len(ips) == 0 {
		ips = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text.IP)
		if ip = ip.Unmap(); err == nil && familyOf(ip) == family && len(api.ValidateEndpointIP(ip.String(), nil)) == 0 {
			return ip.String(), true
		}
	}
	return "", false
}

// hintsFor says who should use an endpoint first, where the Service wants its traffic close.
func hintsFor(svc *corev1.Service, e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	if svc.Spec.TrafficDistribution == nil {
		return nil
	}
	var h discoveryv1.EndpointHints
	switch *svc.Spec.TrafficDistribution {
	case corev1.ServiceTrafficDistributionPreferSameNode:
		if e.NodeName != nil {
			h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
		}
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
	default:
		return nil
	}
	if e.Zone != nil {
		h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if h.ForNodes == nil && h.ForZones == nil {
		return nil
	}
	return &h
}

// portsOf are the ports at which a pod serves a Service: a name may be another number in each pod, and one that a pod does not have is left
// out.
func portsOf(svc *corev1.Service, p *corev1.Pod) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for i := range svc.Spec.Ports {
		port := &svc.Spec.Ports[i]
		if number, ok := numberOf(port, p); ok {
			protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
			out = append(out, discoveryv1.EndpointPort{Name: &port.Name, Port: &number, Protocol: &protocol, AppProtocol: port.AppProtocol})
		}
	}
	return out
}

func numberOf(port *corev1.ServicePort, p *corev1.Pod) (int32, bool) {
	if port.TargetPort.Type == intstr.Int {
		return cmp.Or(port.TargetPort.IntVal, port.Port), true
	}
	is := func(has corev1.ContainerPort) bool {
		return has.Name == port.TargetPort.StrVal && has.Protocol == cmp.Or(port.Protocol, corev1.ProtocolTCP)
	}
	for i := range p.Spec.Containers {
		if at := slices.IndexFunc(p.Spec.Containers[i].Ports, is); at >= 0 {
			return p.Spec.Containers[i].Ports[at].ContainerPort, true
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		at := slices.IndexFunc(c.Ports, is)
		if at >= 0 && value(c.RestartPolicy) == corev1.ContainerRestartPolicyAlways { // others have ended before the pod serves anything
			return c.Ports[at].ContainerPort, true
		}
	}
	return 0, false
}

// changedAt is when it last changed whether a pod is ready.
func changedAt(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
