package podstate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// restarts says whether an ended container is to be started again (N-7.9).
func (f *facts) restarts(v *view) bool {
	switch {
	case v.outdated():
		return true
	case v.role == ephemeralRole || v.role == initRole && v.succeeded():
		return false
	case v.role == sidecarRole:
		return true // as long as the pod lives (N-7.20)
	}
	return Restarts(f.in.Pod, v.spec, v.exitCode())
}

// Restarts is the restart policy for a main container, or an init container that has failed: its own, with its rules for
// exit codes, else the pod's.
func Restarts(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	policy := pod.Spec.RestartPolicy
	if own := c.RestartPolicy; own != nil {
		if _, ok := ruled(c.RestartPolicyRules, code); ok {
			return true
		}
		policy = corev1.RestartPolicy(*own)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

// ruled is what the first rule that an exit code matches has done about it.
func ruled(rules []corev1.ContainerRestartRule, code int32) (action corev1.ContainerRestartRuleAction, ok bool) {
	for _, r := range rules {
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, code)
		if in == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action, true
		}
	}
	return "", false
}

// mayRestart says whether a running container that is killed because of a probe comes back.
func (f *facts) mayRestart(v *view) bool {
	policy := f.in.Pod.Spec.RestartPolicy
	if own := v.spec.RestartPolicy; own != nil {
		policy = corev1.RestartPolicy(*own)
	}
	return v.role != ephemeralRole && policy != corev1.RestartPolicyNever
}

// Backoff is the restart delay of one container.
type Backoff struct {
	Delay time.Duration
	Last  time.Time // when Delay was last advanced: the last restart
}

const (
	backoffFirst = 10 * time.Second
	backoffMost  = 300 * time.Second
)

// fresh says that the container ran long enough for the past to be forgotten (N-7.15).
func (b Backoff) fresh(finished time.Time) bool {
	return b.Delay == 0 || finished.Sub(b.Last) > 2*backoffMost
}

// until is when a container that finished then may start again.
func (b Backoff) until(finished time.Time) (time.Time, time.Duration) {
	if b.fresh(finished) {
		return time.Time{}, 0
	}
	return finished.Add(b.Delay), b.Delay
}

// next advances the back-off at a restart: the first restart is at once and arms 10 s (N-7.14).
func (b Backoff) next(finished, now time.Time) Backoff {
	if b.fresh(finished) {
		return Backoff{Delay: backoffFirst, Last: now}
	}
	return Backoff{Delay: min(2*b.Delay, backoffMost), Last: now}
}

// retryAfter is the pause after the count-th failure of an effect: 10 s doubling to 5 min (N-7.16). The first
// retry of a sandbox or start comes sooner, since on a booting board the cause is often just order.
func retryAfter(count int) time.Duration {
	switch {
	case count <= 1:
		return 2 * time.Second
	case count > 6:
		return backoffMost
	}
	return min(backoffFirst<<(count-2), backoffMost)
}

// pullAgainAfter is the pause after the count-th failed pull of an image (N-7.16).
func pullAgainAfter(count int) time.Duration {
	if count > 5 {
		return backoffMost
	}
	return min(backoffFirst<<max(count-1, 0), backoffMost)
}
