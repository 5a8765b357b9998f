package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Back-off after a failed write: from firstAttempt, doubling up to latestAttempt.
	firstAttempt, latestAttempt = time.Second, 5 * time.Minute
	// Back-off after losing young pods: once max(freeLosses, replicas) are lost, wait firstPause before the next,
	// doubling up to longestPause; forget all that when no pod was lost for the time young. Kubernetes makes the next
	// pod at once, and a board that refuses its pods fills with their records.
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
	freeLosses               = 4
	young                    = 2 * longestPause
)

// kept is what is remembered of a controller, in its present generation.
type kept struct {
	generation int64
	pods       map[types.UID]time.Time // its pods, since when they have been seen
	losses     int                     // young pods that ended or went, and not by us
	lastLoss   time.Time
	failing    *attempts // nil: its last write did not fail
}

// attempts are those to make or delete pods of one controller.
type attempts struct {
	reason, message string // of the condition
	tries           int
	next            time.Time
}

// look sees which of the pods have ended or gone since the last look, and counts the young ones.
func (k *kept) look(pods []*corev1.Pod, now time.Time) {
	seen := map[types.UID]time.Time{}
	for _, p := range pods {
		since, ok := k.pods[p.UID]
		if !ok {
			since = now
		}
		seen[p.UID] = since
		delete(k.pods, p.UID)
	}
	if now.Sub(k.lastLoss) >= young {
		k.losses = 0
	}
	for _, since := range k.pods {
		if now.Sub(since) < young {
			k.losses, k.lastLoss = k.losses+1, now
		}
	}
	k.pods = seen
}

// pause is how long still no pod is made in the place of those that were lost.
func (k *kept) pause(want int, now time.Time) time.Duration {
	beyond := k.losses - max(want, freeLosses)
	if beyond <= 0 {
		return 0
	}
	return k.lastLoss.Add(min(firstPause<<min((beyond-1)/max(want, 1), 9), longestPause)).Sub(now)
}

// failed notes a write that failed, and says when to try again.
func (k *kept) failed(reason string, err error, now time.Time) time.Duration {
	if k.failing == nil {
		k.failing = &attempts{}
	}
	f := k.failing
	wait := min(firstAttempt<<min(f.tries, 9), latestAttempt)
	f.reason, f.message, f.next = reason, err.Error(), now.Add(wait)
	f.tries++
	return wait
}

// retry is how long still nothing is tried again.
func (k *kept) retry(now time.Time) time.Duration {
	if k.failing == nil {
		return 0
	}
	return k.failing.next.Sub(now)
}
