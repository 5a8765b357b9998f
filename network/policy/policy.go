// Package policy says who may talk to whom by network policies. It has two halves. The evaluator says of one connection whether it is
// allowed. The compiler says what the kernel of a board must know of the pods on it. They are written apart, and tests compare them. The
// package has no effects.
//
// A pod that no policy selects for a direction is open in that direction. One that is selected may have what any of these policies lets
// through. The board that a pod is on, and the pod itself, always reach it. Pods on a board's own network have no address of their own:
// they are the board.
package policy

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// World is what is known.
type World struct {
	Policies   []*networkingv1.NetworkPolicy
	Namespaces map[string]map[string]string // the labels of each
	Pods       []Pod                        // that policies may name as the other end
}

// Pod is what counts of a pod with a network of its own.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Addrs           []netip.Addr
	Ports           []Port // that have names
}

// Port is a named one of a pod.
type Port struct {
	Name, Protocol string
	Number         uint16
}

// End is one of a connection: a pod, or an address that is no pod's.
type End struct {
	Pod  *Pod
	Addr netip.Addr
}

// Connection is what somebody tries.
type Connection struct {
	From, To End
	Protocol string // "TCP", "UDP", "SCTP"
	Port     uint16
}

// Allowed says whether a connection may be made, by the rules of both ends.
func (w World) Allowed(c Connection) bool {
	if c.From.Pod != nil && c.From.Pod == c.To.Pod {
		return true
	}
	return w.leaves(c) && w.enters(c)
}

func (w World) enters(c Connection) bool {
	if c.To.Pod == nil {
		return true
	}
	open := true
	for _, p := range w.Policies {
		if !selects(p, c.To.Pod) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		open = false
		for _, r := range p.Spec.Ingress {
			if w.isAny(p, r.From, c.From) && onAny(r.Ports, c) {
				return true
			}
		}
	}
	return open
}

func (w World) leaves(c Connection) bool {
	if c.From.Pod == nil {
		return true
	}
	open := true
	for _, p := range w.Policies {
		if !selects(p, c.From.Pod) || !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			continue
		}
		open = false
		for _, r := range p.Spec.Egress {
			if w.goes(p, r, c) {
				return true
			}
		}
	}
	return open
}

// goes: a rule of a policy lets a connection out. The name of a port means one of a pod that is named as a pod; of the addresses of a block
// nobody knows what they call their ports.
func (w World) goes(p *networkingv1.NetworkPolicy, r networkingv1.NetworkPolicyEgressRule, c Connection) bool {
	if len(r.To) == 0 {
		return onAny(r.Ports, c)
	}
	return slices.ContainsFunc(r.To, func(x networkingv1.NetworkPolicyPeer) bool {
		to := c
		if x.IPBlock != nil {
			to.To.Pod = nil
		}
		return w.is(p, x, c.To) && onAny(r.Ports, to)
	})
}

func selects(p *networkingv1.NetworkPolicy, pod *Pod) bool {
	return p.Namespace == pod.Namespace && matches(&p.Spec.PodSelector, pod.Labels)
}

// matches: what cannot be read picks nothing.
func matches(s *metav1.LabelSelector, of map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && sel.Matches(labels.Set(of))
}

// isAny: the other end is one of these peers. None named: it may be anybody.
func (w World) isAny(p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, e End) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(x networkingv1.NetworkPolicyPeer) bool { return w.is(p, x, e) })
}

func (w World) is(p *networkingv1.NetworkPolicy, x networkingv1.NetworkPolicyPeer, e End) bool {
	if x.IPBlock != nil {
		in := func(cidr string) bool {
			n, err := netip.ParsePrefix(cidr)
			return err == nil && n.Contains(e.Addr)
		}
		return in(x.IPBlock.CIDR) && !slices.ContainsFunc(x.IPBlock.Except, in)
	}
	if e.Pod == nil {
		return false
	}
	switch {
	case x.NamespaceSelector == nil && e.Pod.Namespace != p.Namespace:
		return false
	case x.NamespaceSelector != nil:
		of, known := w.Namespaces[e.Pod.Namespace]
		if !known || !matches(x.NamespaceSelector, of) {
			return false
		}
	}
	return x.PodSelector == nil || matches(x.PodSelector, e.Pod.Labels)
}

// onAny: the connection is to one of these ports of the pod that is connected to. None named: it may be any.
func onAny(ports []networkingv1.NetworkPolicyPort, c Connection) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		switch {
		case protocolOf(p) != c.Protocol:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return c.To.Pod != nil && slices.Contains(c.To.Pod.Ports, Port{p.Port.StrVal, c.Protocol, c.Port})
		case p.EndPort != nil:
			return int32(c.Port) >= p.Port.IntVal && int32(c.Port) <= *p.EndPort
		}
		return int32(c.Port) == p.Port.IntVal
	})
}

func protocolOf(p networkingv1.NetworkPolicyPort) string {
	if p.Protocol == nil {
		return "TCP"
	}
	return string(*p.Protocol)
}
