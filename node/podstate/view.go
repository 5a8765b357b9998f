package podstate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/runtime"
)

// role is what a container is for.
type role int

const (
	mainRole role = iota
	initRole
	sidecarRole // an init container that stays (N-7.20)
	ephemeralRole
)

// view is one container of the pod: its spec, what the engine holds of it, and what the API last said.
type view struct {
	pod    *corev1.Pod
	spec   *corev1.Container
	role   role
	latest *runtime.Status  // highest attempt
	prev   *runtime.Status  // the one before
	older  []runtime.Status // everything before latest
	past   *corev1.ContainerStatus
}

// outdated: it was started with another image than the pod now asks for, or with resources that take a restart to change.
func (v *view) outdated() bool {
	if v.latest == nil || v.role != mainRole && v.role != sidecarRole || v.latest.Labels[LabelImage] == "" {
		return false
	}
	return v.latest.Labels[LabelImage] != v.spec.Image || v.latest.Labels[LabelResize] != ResizeKey(v.pod, v.spec)
}

func (v *view) running() bool { return v.latest != nil && v.latest.Phase == runtime.Running }

// lost: the API says it ran, the engine knows nothing of it: a reboot, or a keeper that lost its records.
func (v *view) lost() bool {
	return v.latest == nil && v.past != nil && v.past.ContainerID != "" && v.past.State.Terminated == nil
}

// everRan: some attempt of it was started, by what the engine or the API knows.
func (v *view) everRan() bool {
	return v.latest != nil || v.past != nil && (v.past.ContainerID != "" || v.past.LastTerminationState.Terminated != nil)
}

// ended: it ran and does not run any more. What the API says of an init container's end counts only while its
// sandbox lives: after a boot init containers run again.
func (v *view) ended() bool {
	return v.latest != nil && v.latest.Phase == runtime.Exited || v.lost() || v.endKnown()
}

// endKnown: it ended for good earlier, its record is gone, the API still tells how.
func (v *view) endKnown() bool {
	return v.role != initRole && v.role != sidecarRole && v.latest == nil && v.past != nil && v.past.State.Terminated != nil
}

func (v *view) succeeded() bool { return v.ended() && v.exitCode() == 0 }

// exitCode is that of a container that has ended; what nobody saw was 137.
func (v *view) exitCode() int32 {
	switch {
	case v.endKnown():
		return v.past.State.Terminated.ExitCode
	case v.latest == nil || v.latest.Exit == nil || v.latest.Exit.Unknown:
		return 137
	}
	return int32(v.latest.Exit.Code)
}

func (v *view) finishedAt() time.Time {
	switch {
	case v.latest != nil && v.latest.Exit != nil:
		return v.latest.Exit.FinishedAt
	case v.endKnown():
		return v.past.State.Terminated.FinishedAt.Time
	}
	return time.Time{}
}

// endBefore is when the attempt before the next one ended by itself, if there was one: what the back-off counts from.
func (v *view) endBefore() (time.Time, bool) {
	if v.anew() { // only who has brought that about is held back
		t := v.past.LastTerminationState.Terminated
		return t.FinishedAt.Time, v.restartsAll(t.ExitCode)
	}
	return v.finishedAt(), v.ended() && !v.outdated()
}

func (v *view) nextAttempt() int {
	switch {
	case v.latest != nil:
		return v.latest.Attempt + 1
	case v.past != nil && v.past.ContainerID != "":
		return int(v.past.RestartCount) + 1
	case v.past != nil:
		return int(v.past.RestartCount)
	}
	return 0
}

// hook gives a hook of the container, or nil.
func (v *view) hook(name string) *corev1.LifecycleHandler {
	switch l := v.spec.Lifecycle; {
	case l == nil:
		return nil
	case name == PostStart:
		return l.PostStart
	default:
		return l.PreStop
	}
}

// reported: the API was told that this very instance runs or ran.
func (v *view) reported() bool {
	return v.past != nil && v.latest != nil && v.past.ContainerID == IDPrefix+v.latest.ID &&
		(v.past.State.Running != nil || v.past.State.Terminated != nil)
}

type views struct{ init, main, ephemeral []*view }

func (vs views) all() []*view { return slices.Concat(vs.init, vs.main, vs.ephemeral) }

func (vs views) anyRunning() bool { return slices.ContainsFunc(vs.all(), (*view).running) }

// mainStarted: some main container of this sandbox has run, so init is behind us.
func (vs views) mainStarted() bool {
	return slices.ContainsFunc(vs.main, func(v *view) bool { return v.latest != nil })
}

// ofPod are the containers that make up the pod, without ephemeral ones.
func (vs views) ofPod() []*view { return slices.Concat(vs.init, vs.main) }

// viewsOf looks at a pod's containers. When all were restarted together, reset holds what is true of each and what the API does not know
// yet.
func viewsOf(in Input, reset map[string]corev1.ContainerStatus) views {
	var out views
	spec, status := &in.Pod.Spec, &in.Pod.Status
	for i := range spec.InitContainers {
		c, r := &spec.InitContainers[i], initRole
		if api.IsSidecar(c) {
			r = sidecarRole
		}
		out.init = append(out.init, viewOf(in, c, status.InitContainerStatuses, r))
	}
	for i := range spec.Containers {
		out.main = append(out.main, viewOf(in, &spec.Containers[i], status.ContainerStatuses, mainRole))
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		out.ephemeral = append(out.ephemeral, viewOf(in, &c, status.EphemeralContainerStatuses, ephemeralRole))
	}
	for _, v := range out.ofPod() {
		r, ok := reset[v.spec.Name]
		since := v.latest == nil || v.latest.Attempt >= int(r.RestartCount)
		if ok && since && (v.past == nil || v.past.RestartCount < r.RestartCount || v.past.RestartCount == r.RestartCount &&
			v.past.ContainerID == "") {
			v.past = &r
		}
	}
	return out
}

func viewOf(in Input, c *corev1.Container, past []corev1.ContainerStatus, r role) *view {
	v := &view{pod: in.Pod, spec: c, role: r}
	for i := range past {
		if past[i].Name == c.Name {
			v.past = &past[i]
		}
	}
	for i := range in.Seen.Containers {
		s := &in.Seen.Containers[i]
		if s.Name != c.Name {
			continue
		}
		switch {
		case v.latest == nil || s.Attempt > v.latest.Attempt:
			if v.latest != nil {
				v.older = append(v.older, *v.latest)
			}
			v.prev, v.latest = v.latest, s
		default:
			v.older = append(v.older, *s)
			if v.prev == nil || s.Attempt > v.prev.Attempt {
				v.prev = s
			}
		}
	}
	return v
}
