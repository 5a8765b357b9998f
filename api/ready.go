package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// NodeCondition is the condition of a node that has a type; nil: there is none. It may be changed in place.
func NodeCondition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// NodeReady says that a node is heard and runs pods.
func NodeReady(n *corev1.Node) bool {
	c := NodeCondition(n, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// PodReady says that a pod is what budgets call healthy.
func PodReady(p *corev1.Pod) bool {
	_, ready := ReadySince(p)
	return ready
}

// ReadySince is when a pod that is ready became so.
func ReadySince(p *corev1.Pod) (since time.Time, ready bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}
