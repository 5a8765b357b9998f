package controller

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// mostIngress is how many addresses a Service has: it is written whenever a board comes or goes, and boards look at no more than these
// (network/service).
const mostIngress = 64

// balanced is what a Service of type LoadBalancer gets: addresses, or a reason why there are none.
type balanced struct {
	ingress       []corev1.LoadBalancerIngress
	taken, absent string
}

// claim is a port of all boards.
type claim struct {
	protocol corev1.Protocol
	port     int32
}

func (c claim) String() string { return fmt.Sprintf("%d/%s", c.port, c.protocol) }

// balances says that the boards are the load balancer of a Service. One with a class of its own is for somebody else.
func balances(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil && svc.DeletionTimestamp == nil
}

// balance gives Services of type LoadBalancer the addresses of the boards. Of two that want one port the younger waits. ready are the
// nodes on which endpoints of a Service are ready; only Services whose traffic stays on the board that it reached are asked about.
// also are further ports that are not to be had.
func balance(services []*corev1.Service, nodes []*corev1.Node, ready func(*corev1.Service) map[string]bool,
	also map[claim]holder) map[types.UID]balanced {
	out := map[types.UID]balanced{}
	holders := given(services)
	maps.Copy(holders, also)
	order := slices.DeleteFunc(slices.Clone(services), func(s *corev1.Service) bool { return !balances(s) })
	slices.SortFunc(order, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !takesTraffic(n) })
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, svc := range order {
		var b balanced
		for _, p := range svc.Spec.Ports {
			c := claim{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port}
			if by, is := holders[c]; is && by.uid != svc.UID && b.taken == "" {
				b.taken = fmt.Sprintf("port %s of the boards is %s", c, by.what)
			}
		}
		if b.taken == "" {
			for _, p := range svc.Spec.Ports {
				holders[claim{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port}] = holder{svc.UID, "that of service " + api.Key(svc).String()}
			}
			b.ingress, b.absent = ingress(svc, nodes, ready)
		}
		out[svc.UID] = b
	}
	return out
}

// holder is who has a port of the boards.
type holder struct {
	uid  types.UID
	what string
}

// boardsPorts are how people, and the control plane, come to a board. Whoever may make a Service must not stand there instead.
var boardsPorts = []int32{22, 10250}

// given are the ports of boards that are not to be had: node ports, the boards' own and that of the API.
func given(services []*corev1.Service) map[claim]holder {
	out := map[claim]holder{}
	for _, svc := range services {
		node := holder{svc.UID, "a node port of service " + api.Key(svc).String()}
		for _, p := range svc.Spec.Ports {
			if p.NodePort > 0 {
				out[claim{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.NodePort}] = node
			}
			if svc.Namespace == metav1.NamespaceDefault && svc.Name == "kubernetes" {
				out[claim{corev1.ProtocolTCP, cmp.Or(p.TargetPort.IntVal, p.Port)}] = holder{svc.UID, "that of the API"}
			}
		}
		if p := svc.Spec.HealthCheckNodePort; p > 0 {
			out[claim{corev1.ProtocolTCP, p}] = node
		}
	}
	for _, port := range boardsPorts {
		out[claim{corev1.ProtocolTCP, port}] = holder{what: "their own"}
	}
	return out
}

// takesTraffic says that a board is there for clients from outside.
func takesTraffic(n *corev1.Node) bool {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	return !excluded && n.DeletionTimestamp == nil && api.NodeReady(n)
}

// ingress is where a Service is reached. absent says why it has not the address that it asks for. What a board says of itself counts for
// that board alone: one address of a family, and the port of its door.
func ingress(svc *corev1.Service, nodes []*corev1.Node, ready func(*corev1.Service) map[string]bool) (
	out []corev1.LoadBalancerIngress, absent string) {
	var here map[string]bool
	local := svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if local {
		here = ready(svc)
	}
	mode, wanted, found := corev1.LoadBalancerIPModeVIP, svc.Spec.LoadBalancerIP, false
	for _, n := range nodes {
		door := n.Status.DaemonEndpoints.KubeletEndpoint.Port
		if slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == door && p.Protocol != corev1.ProtocolUDP }) {
			continue
		}
		for _, ip := range addressesOf(n, svc.Spec.IPFamilies) {
			found = found || ip == wanted
			there := slices.ContainsFunc(out, func(in corev1.LoadBalancerIngress) bool { return in.IP == ip })
			if (wanted == "" || ip == wanted) && (!local || here[n.Name]) && len(out) < mostIngress && !there {
				out = append(out, corev1.LoadBalancerIngress{IP: ip, IPMode: &mode})
			}
		}
	}
	if wanted != "" && !found {
		return nil, fmt.Sprintf("%s is the address of no board that takes traffic", wanted)
	}
	return out, ""
}

// addressesOf are a board's addresses, one of each of some families: that by which others know it, or else that of its own network.
func addressesOf(n *corev1.Node, families []corev1.IPFamily) (out []string) {
	has := map[corev1.IPFamily]bool{}
	for _, t := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			family := corev1.IPv6Protocol
			if ip.Is4() {
				family = corev1.IPv4Protocol
			}
			if a.Type == t && err == nil && !has[family] && (len(families) == 0 || slices.Contains(families, family)) {
				out, has[family] = append(out, ip.String()), true
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// withBalance puts what a Service gets into its status. It returns false where that is so already.
func withBalance(s *corev1.ServiceStatus, b balanced, generation int64, now time.Time) bool {
	was := s.DeepCopy()
	s.LoadBalancer.Ingress = b.ingress
	for _, w := range b.why() {
		if w.message == "" {
			apimeta.RemoveStatusCondition(&s.Conditions, w.condition)
			continue
		}
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: w.condition, Status: metav1.ConditionTrue, Reason: w.reason,
			Message: w.message, LastTransitionTime: metav1.NewTime(now), ObservedGeneration: generation})
	}
	return !apiequality.Semantic.DeepEqual(was, s)
}

// reason is why a Service waits, if there is a message.
type reason struct{ condition, reason, message string }

func (b *balanced) why() []reason {
	return []reason{{corev1.LoadBalancerPortsError, "PortTaken", b.taken}, {"LoadBalancerAddressError", "NoSuchBoard", b.absent}}
}
