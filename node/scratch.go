package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/node/volume"
)

// measureEvery is how often scratch space with a limit is measured, as a kubelet looks at it.
const measureEvery = 10 * time.Second

// boundVolumes evicts pods whose scratch space on disk has grown beyond its limit (N-6.34). Only pods that have such
// a limit cost anything.
func (a *Agent) boundVolumes(ctx context.Context) error {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, pod := range a.Pods() {
			if volume.Measured(pod) && !isCritical(pod) && pod.Status.StartTime != nil {
				a.boundVolumesOf(ctx, pod)
			}
		}
	}
}

func (a *Agent) boundVolumesOf(ctx context.Context, pod *corev1.Pod) {
	over, err := a.volumes.Overfull(ctx, pod)
	if err != nil && ctx.Err() == nil {
		slog.Warn("cannot measure the volumes of a pod", "pod", api.Key(pod), "err", err)
	}
	if over == nil {
		return
	}
	a.mu.Lock()
	w := a.workers[pod.UID]
	a.mu.Unlock()
	if w == nil || !w.mayStop() {
		return
	}
	message := fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", over.Volume, over.Limit.String())
	a.event(pod, corev1.EventTypeWarning, "Evicted", message)
	grace := time.Second
	w.stop(podstate.Stop{Reason: "Evicted", Message: message, Grace: &grace})
}
