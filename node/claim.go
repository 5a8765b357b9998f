package node

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/podstate"
)

// stop asks for the pod's end, and gives what holds now that it has been.
func (w *worker) stop(s podstate.Stop) *podstate.Stop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopLocked(s)
}

func (w *worker) stopLocked(s podstate.Stop) *podstate.Stop {
	s.At = time.Now()
	if w.stopw != nil {
		s = w.stopw.Joined(s)
	}
	w.stopw = &s
	w.endStartLocked()
	w.poke()
	return &s
}

// claim stops the pod only if nobody has stopped it yet and it has not ended; otherwise it does nothing and returns
// false. After true the end counts as the claimant's, whatever a container dies of first.
func (w *worker) claim(s podstate.Stop) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopw != nil || w.over || w.isEnded() {
		return false
	}
	w.stopLocked(s)
	return true
}

// finish notes whether the pod has come to its end by itself. False: it was asked to stop since that was decided.
func (w *worker) finish(in podstate.Input, out podstate.Output) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in.Stop == nil && w.stopw != nil {
		return false
	}
	w.over = terminal(out.Status.Phase)
	return true
}

// mayStop says that nobody on the board has asked for the pod's end yet, and that it has not ended by itself.
func (w *worker) mayStop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopw == nil && !w.over
}

// errEnding: a start was given up because the pod is to end; what is to be done now is decided anew.
var errEnding = errors.New("the pod is to end")

// untilEnding is the context of a start. It ends when the pod is to: a start that hangs must not hold that up.
func (w *worker) untilEnding(ctx context.Context, pod *corev1.Pod) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endStart = end
	if w.pod.DeletionTimestamp != nil && pod.DeletionTimestamp == nil { // since this start was decided
		w.endStartLocked()
	}
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.endStart = nil
		end(nil)
	}
}

func (w *worker) endStartLocked() {
	if w.endStart != nil {
		w.endStart(errEnding)
	}
}
