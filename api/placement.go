package api

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// What follows says where a pod may be. The scheduler asks before it binds a pod, and the node before it runs one.

// Tolerates says whether one toleration covers one taint (N-3.31).
func Tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false // Lt and Gt are alpha
}

// Tolerated finds the first toleration that covers a taint (N-3.22), nil when none does.
func Tolerated(tolerations []corev1.Toleration, taint *corev1.Taint) *corev1.Toleration {
	for i := range tolerations {
		if Tolerates(&tolerations[i], taint) {
			return &tolerations[i]
		}
	}
	return nil
}

// MatchesNode is nodeSelector and the required terms of node affinity together (N-10.6).
func MatchesNode(pod *corev1.Pod, node *corev1.Node) bool {
	for k, v := range pod.Spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return false
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		if req := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; req != nil {
			return slices.ContainsFunc(req.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return MatchesTerm(&t, node) })
		}
	}
	return true
}

// MatchesTerm: all expressions and fields of a term; an empty or malformed term matches nothing.
func MatchesTerm(t *corev1.NodeSelectorTerm, node *corev1.Node) bool {
	if len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 {
		return false
	}
	for i := range t.MatchExpressions {
		if !matches(&t.MatchExpressions[i], node.Labels) {
			return false
		}
	}
	for i := range t.MatchFields {
		f := &t.MatchFields[i]
		if f.Key != "metadata.name" || !matches(f, map[string]string{"metadata.name": node.Name}) {
			return false
		}
	}
	return true
}

func matches(r *corev1.NodeSelectorRequirement, set map[string]string) bool {
	have, ok := set[r.Key]
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return ok && slices.Contains(r.Values, have)
	case corev1.NodeSelectorOpNotIn:
		return !ok || !slices.Contains(r.Values, have)
	case corev1.NodeSelectorOpExists:
		return ok
	case corev1.NodeSelectorOpDoesNotExist:
		return !ok
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return false
		}
		a, errA := strconv.ParseInt(have, 10, 64)
		b, errB := strconv.ParseInt(r.Values[0], 10, 64)
		if !ok || errA != nil || errB != nil {
			return false
		}
		return (r.Operator == corev1.NodeSelectorOpGt && a > b) || (r.Operator == corev1.NodeSelectorOpLt && a < b)
	}
	return false
}

// HostPort is one port a pod takes on its node.
type HostPort struct {
	IP       string
	Protocol corev1.Protocol
	Port     int32
}

// HostPorts are those of all containers that run side by side.
func HostPorts(pod *corev1.Pod) []HostPort {
	var out []HostPort
	collect := func(cs []corev1.Container) {
		for i := range cs {
			for _, p := range cs[i].Ports {
				if p.HostPort > 0 {
					out = append(out, HostPort{IP: wildcard(p.HostIP), Protocol: tcp(p.Protocol), Port: p.HostPort})
				}
			}
		}
	}
	collect(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if IsSidecar(&pod.Spec.InitContainers[i]) {
			collect(pod.Spec.InitContainers[i : i+1])
		}
	}
	return out
}

func wildcard(ip string) string {
	if ip == "" {
		return "0.0.0.0"
	}
	return ip
}

func tcp(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// PortsTaken says whether one of these pods has a host port that the pod wants (N-10.11).
func PortsTaken(pod *corev1.Pod, on []*corev1.Pod) bool {
	want := HostPorts(pod)
	if len(want) == 0 {
		return false
	}
	for _, p := range on {
		for _, have := range HostPorts(p) {
			for _, w := range want {
				if w.Port == have.Port && w.Protocol == have.Protocol &&
					(w.IP == have.IP || w.IP == "0.0.0.0" || have.IP == "0.0.0.0") {
					return true
				}
			}
		}
	}
	return false
}
