//lint:file-ignore SA1019 older programs read Endpoints, and people write them

package endpoints

import (
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Mirrorer is whose slices those are that come from Endpoints made by hand.
	Mirrorer = "endpointslicemirroring-controller.k8s.io"
	// fullMirror is what a slice may have at most, and Endpoints as well: each set of ports has one slice of a family.
	fullMirror = 1000
	// leaderElection is the annotation of Endpoints that are somebody's lock.
	leaderElection = "control-plane.alpha.kubernetes.io/leader"
)

// Mirrored says that Endpoints are for others to have as slices, if their Service has no selector.
func Mirrored(e *corev1.Endpoints) bool {
	_, lock := e.Annotations[leaderElection]
	return e.DeletionTimestamp == nil && e.Labels[discoveryv1.LabelSkipMirror] != "true" && !lock
}

// Mirror says what to write, so that slices say the same as Endpoints that somebody made by hand. existing are the slices with their name
// and this package's label for it.
func Mirror(e *corev1.Endpoints, existing []*discoveryv1.EndpointSlice) Plan {
	f := frame{namespace: e.Namespace, service: e.Name, capacity: fullMirror, labels: map[string]string{}, annotations: map[string]string{},
		owner: *metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints"))}
	maps.Copy(f.labels, e.Labels)
	maps.Copy(f.annotations, e.Annotations)
	f.labels[discoveryv1.LabelServiceName], f.labels[discoveryv1.LabelManagedBy] = e.Name, Mirrorer
	delete(f.annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(f.annotations, corev1.LastAppliedConfigAnnotation)
	var groups []*group
	for _, s := range repack(e.Subsets) {
		v4 := &group{family: discoveryv1.AddressTypeIPv4, ports: portsFrom(s.Ports), since: map[identity]time.Time{}}
		v6 := &group{family: discoveryv1.AddressTypeIPv6, ports: v4.ports, since: v4.since}
		each([]corev1.EndpointSubset{s}, func(_ *corev1.EndpointSubset, a *corev1.EndpointAddress, ready bool) {
			ip, err := netip.ParseAddr(a.IP)
			g := v4
			if ip = ip.Unmap(); ip.Is6() {
				g = v6
			}
			if err == nil {
				g.want = append(g.want, mirrored(a, ip, ready))
			}
		})
		for _, g := range []*group{v4, v6} {
			if len(g.want) > 0 {
				groups = append(groups, g)
			}
		}
	}
	return f.plan(groups, existing)
}

// mirrored is an address as an endpoint.
func mirrored(a *corev1.EndpointAddress, ip netip.Addr, ready bool) discoveryv1.Endpoint {
	out := discoveryv1.Endpoint{Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		NodeName: a.NodeName, TargetRef: a.TargetRef}
	if a.Hostname != "" {
		out.Hostname = &a.Hostname
	}
	return out
}

func portsFrom(in []corev1.EndpointPort) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for i := range in {
		p := &in[i]
		out = append(out, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return out
}
