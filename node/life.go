package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/node/probe"
	"ledge/runtime"
)

// decide asks podstate, and has the containers probed that it names. A container that may be probed for the first time
// begins with what the API last knew of it, which then counts at once.
func (w *worker) decide(in podstate.Input) podstate.Output {
	out := podstate.Decide(in)
	var targets []probe.Target
	for _, s := range in.Seen.Containers {
		if c := api.ContainerNamed(in.Pod, s.Name); c != nil && slices.Contains(out.Probe, s.ID) {
			targets = append(targets, probe.Target{Spec: c, ID: s.ID, StartedAt: s.StartedAt, Was: lastHealth(in.Pod, s.ID)})
		}
	}
	if !w.probes.Sync(podIP(in), targets, out.Ending) {
		return out
	}
	in.Seen.Health = w.health()
	return podstate.Decide(in)
}

func podIP(in podstate.Input) string {
	if len(in.Seen.IPs) > 0 {
		return in.Seen.IPs[0]
	}
	return in.Pod.Status.PodIP // a brain that has just begun
}

// lastHealth is what the API was last told of this very instance.
func lastHealth(pod *corev1.Pod, id string) probe.Health {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.ContainerID == podstate.IDPrefix+id {
			return probe.Health{Started: s.Started != nil && *s.Started, Ready: s.Ready}
		}
	}
	return probe.Health{}
}

// health is what the probes have found, in podstate's words.
func (w *worker) health() map[string]podstate.Health {
	words := map[probe.Kind]string{probe.Startup: "startup", probe.Liveness: "liveness"}
	out := map[string]podstate.Health{}
	for id, h := range w.probes.Health() {
		out[id] = podstate.Health{Started: h.Started, Ready: h.Ready, Failed: words[h.Failed]}
	}
	return out
}

// hookEnds are the hooks that have come to their end, of containers that the engine still holds.
func (w *worker) hookEnds(containers []runtime.Status) map[string]podstate.HookEnd {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]podstate.HookEnd{}
	for _, c := range containers {
		for _, hook := range []string{podstate.PostStart, podstate.PreStop} {
			key := podstate.HookKey(hook, c.ID)
			if end, ok := w.hooked[key]; ok {
				out[key] = end
			}
		}
	}
	w.hooked = maps.Clone(out)
	return out
}

// runHook begins a lifecycle hook; its end is told by poking the worker.
func (w *worker) runHook(ctx context.Context, pod *corev1.Pod, act podstate.Action) {
	c := api.ContainerNamed(pod, act.Container)
	if c == nil || c.Lifecycle == nil {
		return
	}
	handler, reason, words := c.Lifecycle.PostStart, "FailedPostStartHook", "PostStartHook failed"
	if act.Hook == podstate.PreStop {
		handler, reason, words = c.Lifecycle.PreStop, "FailedPreStopHook", "PreStopHook failed"
	}
	ip := podIP(podstate.Input{Pod: pod, Seen: w.seen})
	w.helpers.Go(func() {
		hctx, cancel := ctx, func() {}
		if !act.Until.IsZero() {
			hctx, cancel = context.WithDeadline(ctx, act.Until)
		}
		defer cancel()
		err := w.a.hands.untilAvailable(hctx, func() error { return w.a.prober.Hook(hctx, handler, c, act.ID, ip) })
		if ctx.Err() != nil {
			return // the brain goes; the next one begins the hook again
		}
		end := podstate.HookEnd{Failed: err != nil}
		// One that used up the grace is given up without a word; its container may then end before it does.
		late := !act.Until.IsZero() && !time.Now().Before(act.Until)
		if err != nil && !late {
			// What the hook answered stays on the board: it may hold secrets.
			slog.Warn("lifecycle hook failed", "pod", api.Key(pod), "container", c.Name, "hook", act.Hook, "err", err)
			w.a.containerEvent(pod, c.Name, corev1.EventTypeWarning, reason, words)
		}
		w.mu.Lock()
		w.hooked[podstate.HookKey(act.Hook, act.ID)] = end
		w.mu.Unlock()
		w.poke()
	})
}

// untilAvailable repeats what a keeper that was restarted meanwhile could not do: a container must not pay for that.
func (h *hands) untilAvailable(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, runtime.ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}
