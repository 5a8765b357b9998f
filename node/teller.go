package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/internal/grumble"
	"ledge/node/podstate"
)

// statusWriter tells the API the status of one pod. It belongs to the goroutine of the pod's worker.
type statusWriter struct {
	home  podHome
	owner statusOwner

	heldSince time.Time     // when a status was left to the next step; zero: all is told
	silence   time.Duration // before a status that could not be written is tried again; 0: the last one was written
	grumble   grumble.Once
}

// statusOwner is told what a write has shown of the pod.
type statusOwner interface {
	written(pod *corev1.Pod) // as it is now
	offer(pod *corev1.Pod)   // it was changed by somebody else
	vanished()               // it is gone, or another one has its name
}

// statusHeld is how long the status of a pod that comes up or ends may stay untold.
const statusHeld = 200 * time.Millisecond

// How long to wait before a status that the API did not take is written again.
const (
	firstSilence = time.Second
	mostSilence  = 10 * time.Second
)

// onItsWay reports whether the status may be left to the next step. Either the pod has not run yet, and only draws nearer to
// that: the next step follows these actions at once. Or it has been told to end, and most do so in a moment. Each status told is
// a flush to the card and work for whoever watches, and the pod, or a shutdown, would wait for it.
func (s *statusWriter) onItsWay(in podstate.Input, out podstate.Output) bool {
	was, is := in.Pod.Status.Phase, out.Status.Phase
	comes := len(out.Do) > 0 && in.Pod.DeletionTimestamp == nil && was == corev1.PodPending && is == corev1.PodPending
	goes := in.Stop != nil && was == corev1.PodRunning && is == corev1.PodRunning && !equality.Semantic.DeepEqual(in.Pod.Status, out.Status)
	if in.Gone || !comes && !goes {
		s.heldSince = time.Time{}
		return false
	}
	if s.heldSince.IsZero() {
		s.heldSince = in.Now
	}
	return in.Now.Sub(s.heldSince) < statusHeld
}

// writeHeld writes a status that has been held so long. If the pod is not any more what it was made from, the next step,
// which has been poked, will see to that: what has been decided is to be carried out, for the worker remembers it as done.
func (s *statusWriter) writeHeld(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus, long time.Duration) {
	if !s.heldSince.IsZero() && time.Since(s.heldSince) >= long {
		s.write(ctx, pod, status)
	}
}

// rest is how long the status needs no look: at most that long.
func (s *statusWriter) rest(most time.Duration) time.Duration {
	if s.silence > 0 {
		most = s.silence
	}
	if !s.heldSince.IsZero() {
		most = min(most, max(0, statusHeld-time.Since(s.heldSince)))
	}
	return most
}

// write writes the status if it differs from what the API has. False: the pod is not any more what the status was
// made from, and has to be looked at anew. An API that cannot be reached, or has no room, is no reason to leave the
// pod alone: containers are restarted and stopped all the same, and only what depends on the API having heard the
// pod's end (Decide knows) waits for it.
func (s *statusWriter) write(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) bool {
	s.heldSince = time.Time{}
	if equality.Semantic.DeepEqual(pod.Status, status) {
		s.silence = 0
		return true
	}
	next := pod.DeepCopy()
	next.Status = status
	got, err := s.home.UpdateStatus(ctx, next)
	if apierrors.IsConflict(err) {
		fresh, gerr := s.home.Get(ctx, pod.Namespace, pod.Name)
		switch {
		case gerr != nil:
			err = gerr
		case fresh.UID != pod.UID:
			s.owner.vanished()
			return false
		case fresh.ResourceVersion != pod.ResourceVersion:
			s.owner.offer(fresh)
			return false
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		s.owner.vanished()
		return false
	case err != nil:
		if ctx.Err() == nil {
			s.grumble.About("cannot write pod status", err, "pod", api.Key(pod))
		}
		s.silence = min(max(2*s.silence, firstSilence), mostSilence)
		return true
	}
	s.silence = 0
	s.grumble.About("", nil)
	s.owner.written(got)
	return true
}
