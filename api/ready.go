package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
