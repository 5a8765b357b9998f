package scheduler

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// Why a node was refused, in Kubernetes' words: tools and people match on them.
const (
	reasonUnschedulable = "node(s) were unschedulable"
	reasonName          = "node(s) didn't match the requested node name"
	reasonTaint         = "node(s) had untolerated taint(s)"
	reasonAffinity      = "node(s) didn't match Pod's node affinity/selector"
	reasonPorts         = "node(s) didn't have free ports for the requested pod ports"
	reasonPods          = "Too many pods"
)

// refusal is why one node does not take one pod.
type refusal struct {
	reasons []string
	// curable: fewer pods on the node could change the answer (N-10.19).
	curable bool
}

func refuse(reason string) *refusal { return &refusal{reasons: []string{reason}} }

// filter asks one node for one pod; nil means it fits. The first filter that refuses speaks, in the order of N-10.5.
func (c *Cluster) filter(pod *corev1.Pod, n *nodeInfo, requests amounts) *refusal {
	spec := &n.node.Spec
	switch {
	case c.cfg.Closed != nil && c.cfg.Closed(n.node.Name):
		return refuse(reasonUnschedulable)
	case spec.Unschedulable && !toleratesAll(pod.Spec.Tolerations, []corev1.Taint{cordon}, anyEffect):
		return refuse(reasonUnschedulable)
	case pod.Spec.NodeName != "" && pod.Spec.NodeName != n.node.Name:
		return refuse(reasonName)
	case !toleratesAll(pod.Spec.Tolerations, spec.Taints, hard):
		return refuse(reasonTaint)
	case !matchesAffinity(pod, n.node):
		return refuse(reasonAffinity)
	case portsTaken(pod, n.pods):
		return &refusal{reasons: []string{reasonPorts}, curable: true}
	}
	return n.fits(requests)
}

var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func anyEffect(corev1.TaintEffect) bool { return true }
func hard(e corev1.TaintEffect) bool {
	return e == corev1.TaintEffectNoSchedule || e == corev1.TaintEffectNoExecute
}
func soft(e corev1.TaintEffect) bool { return e == corev1.TaintEffectPreferNoSchedule }

// fits sums resources (N-10.8). All that is short is named, not only the first.
func (n *nodeInfo) fits(requests amounts) *refusal {
	var out refusal
	lack := func(reason string, want, total int64) {
		out.reasons = append(out.reasons, reason)
		// A wish above the whole node is beyond help: no victim makes the node bigger.
		out.curable = (out.curable || len(out.reasons) == 1) && want <= total
	}
	if int64(len(n.pods))+1 > n.allocatable[corev1.ResourcePods] {
		lack(reasonPods, 1, n.allocatable[corev1.ResourcePods])
	}
	for _, name := range sortedNames(requests) {
		want, total := requests[name], n.allocatable[name]
		if want > 0 && name != corev1.ResourcePods && want > total-n.requested[name] {
			lack("Insufficient "+string(name), want, total)
		}
	}
	if out.reasons == nil {
		return nil
	}
	return &out
}

func sortedNames(a amounts) []corev1.ResourceName {
	out := make([]corev1.ResourceName, 0, len(a))
	for name := range a {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

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

func toleratesAll(tolerations []corev1.Toleration, taints []corev1.Taint, effect func(corev1.TaintEffect) bool) bool {
	for i := range taints {
		if effect(taints[i].Effect) && Tolerated(tolerations, &taints[i]) == nil {
			return false
		}
	}
	return true
}

// matchesAffinity is nodeSelector and the required terms of node affinity together (N-10.6).
func matchesAffinity(pod *corev1.Pod, node *corev1.Node) bool {
	for k, v := range pod.Spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return false
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		if req := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; req != nil {
			return slices.ContainsFunc(req.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return matchesTerm(&t, node) })
		}
	}
	return true
}

// matchesTerm: all expressions and fields of a term; an empty or malformed term matches nothing.
func matchesTerm(t *corev1.NodeSelectorTerm, node *corev1.Node) bool {
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

// hostPort is one port a pod takes on its node.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var out []hostPort
	collect := func(cs []corev1.Container) {
		for i := range cs {
			for _, p := range cs[i].Ports {
				if p.HostPort > 0 {
					out = append(out, hostPort{ip: wildcard(p.HostIP), protocol: tcp(p.Protocol), port: p.HostPort})
				}
			}
		}
	}
	collect(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if api.IsSidecar(&pod.Spec.InitContainers[i]) {
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

// portsTaken: N-10.11.
func portsTaken(pod *corev1.Pod, on []*corev1.Pod) bool {
	want := hostPorts(pod)
	if len(want) == 0 {
		return false
	}
	for _, p := range on {
		for _, have := range hostPorts(p) {
			for _, w := range want {
				if w.port == have.port && w.protocol == have.protocol &&
					(w.ip == have.ip || w.ip == "0.0.0.0" || have.ip == "0.0.0.0") {
					return true
				}
			}
		}
	}
	return false
}
