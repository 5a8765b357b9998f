package jobs

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// Back-off after failed pods, as on Kubernetes: firstBackOff after the first since the last success, doubling up to
// longestBackOff. It is told from the pods themselves, so it outlives this process.
const firstBackOff, longestBackOff = 10 * time.Second, 10 * time.Minute

// backOff is how long still no pod is made.
func (l *look) backOff() time.Duration {
	var success, failure time.Time
	for _, p := range l.pods {
		if p.Status.Phase == corev1.PodSucceeded && ended(p).After(success) {
			success = ended(p)
		}
	}
	var n int32
	for _, p := range l.pods {
		if !l.hasFailed(p) || api.PoweredOff(p) || !ended(p).After(success) {
			continue
		}
		n++
		if ended(p).After(failure) {
			failure = ended(p)
		}
	}
	return l.wait(n, failure)
}

// wait is what is left of the pause after a number of failures. A failure of a time to come is from a clock that was wrong.
func (l *look) wait(failures int32, last time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	pause := min(firstBackOff<<min(failures-1, 10), longestBackOff)
	return max(pause-max(l.now.Sub(last), 0), 0)
}

// ended is when a pod ended, as well as can be told: its last container did, it stopped being ready, it was deleted, or it was made.
func ended(p *corev1.Pod) time.Time {
	if t, ok := lastEnd(p); ok {
		return t
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	if t := p.DeletionTimestamp; t != nil {
		var grace int64
		if p.DeletionGracePeriodSeconds != nil {
			grace = *p.DeletionGracePeriodSeconds
		}
		return t.Add(-time.Duration(grace) * time.Second)
	}
	return p.CreationTimestamp.Time
}

// lastEnd is when the last container of a pod ended, if all have: sidecars end after the others.
func lastEnd(p *corev1.Pod) (last time.Time, ok bool) {
	sidecar := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		sidecar[c.Name] = c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	}
	look := func(c *corev1.ContainerStatus) bool {
		end := c.State.Terminated
		if end == nil || end.FinishedAt.IsZero() {
			return false
		}
		if end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
		return true
	}
	for i := range p.Status.ContainerStatuses {
		if !look(&p.Status.ContainerStatuses[i]) {
			return last, false
		}
	}
	for i := range p.Status.InitContainerStatuses {
		if c := &p.Status.InitContainerStatuses[i]; sidecar[c.Name] && !look(c) {
			return last, false
		}
	}
	return last, !last.IsZero()
}
