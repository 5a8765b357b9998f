package scheduler

import (
	"slices"

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
	reasonNear          = "node(s) didn't match pod affinity rules"
	reasonApart         = "node(s) didn't match pod anti-affinity rules"
	reasonRepelled      = "node(s) didn't satisfy existing pods anti-affinity rules"
	reasonSpread        = "node(s) didn't match pod topology spread constraints"
	reasonNoDomain      = reasonSpread + " (missing required label)"
)

// refusal is the reason why a node does not take a pod.
type refusal struct {
	reasons []string
	// curable: fewer pods on the node could change the answer (N-10.19).
	curable bool
}

func refuse(reason string) *refusal { return &refusal{reasons: []string{reason}} }

// filter asks one node for one pod; nil means it fits. The first filter that refuses speaks, in the order of N-10.5, and
// last the pods that are there already.
func (c *Cluster) filter(l *look, n *nodeInfo) *refusal {
	spec, pod := &n.node.Spec, l.pod
	switch {
	case c.cfg.Closed != nil && c.cfg.Closed(n.node.Name):
		return refuse(reasonUnschedulable)
	case spec.Unschedulable && !toleratesAll(pod.Spec.Tolerations, []corev1.Taint{cordon}, anyEffect):
		return refuse(reasonUnschedulable)
	case pod.Spec.NodeName != "" && pod.Spec.NodeName != n.node.Name:
		return refuse(reasonName)
	case !toleratesAll(pod.Spec.Tolerations, spec.Taints, hard):
		return refuse(reasonTaint)
	case !api.MatchesNode(pod, n.node):
		return refuse(reasonAffinity)
	case api.PortsTaken(pod, n.pods):
		return &refusal{reasons: []string{reasonPorts}, curable: true}
	}
	if r := n.fits(l); r != nil {
		return r
	}
	if r := c.hold(l, n); r != nil {
		return r
	}
	return l.relations.refuse(n.node)
}

var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func anyEffect(corev1.TaintEffect) bool { return true }
func hard(e corev1.TaintEffect) bool {
	return e == corev1.TaintEffectNoSchedule || e == corev1.TaintEffectNoExecute
}
func soft(e corev1.TaintEffect) bool { return e == corev1.TaintEffectPreferNoSchedule }

// fits sums resources (N-10.8). All that is short is named, not only the first.
func (n *nodeInfo) fits(l *look) *refusal {
	var out refusal
	lack := func(reason string, want, total int64) {
		out.reasons = append(out.reasons, reason)
		// A wish above the whole node is beyond help: no victim makes the node bigger.
		out.curable = (out.curable || len(out.reasons) == 1) && want <= total
	}
	if int64(len(n.pods))+1 > n.allocatable[corev1.ResourcePods] {
		lack(reasonPods, 1, n.allocatable[corev1.ResourcePods])
	}
	for _, name := range l.names {
		want, total := l.requests[name], n.allocatable[name]
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

func toleratesAll(tolerations []corev1.Toleration, taints []corev1.Taint, effect func(corev1.TaintEffect) bool) bool {
	for i := range taints {
		if effect(taints[i].Effect) && api.Tolerated(tolerations, &taints[i]) == nil {
			return false
		}
	}
	return true
}
