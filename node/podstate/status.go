package podstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/runtime"
)

// IDPrefix stands before a container's ID in status, as Kubernetes writes <runtime>://<id>.
const IDPrefix = "libcontainer://"

// report says what the API is to be told.
type report struct {
	facts   *facts
	waiting waits
}

// status is what the API is to be told. It starts from what the API has, so that fields other writers own
// stay.
func (r *report) status() corev1.PodStatus {
	pod := r.facts.in.Pod
	out := *pod.Status.DeepCopy()
	if terminal(out.Phase) && r.facts.in.Seen.Removed {
		return out // N-7.10: nothing changes any more
	}
	out.InitContainerStatuses = r.containerStatuses(r.facts.views.init)
	out.ContainerStatuses = r.containerStatuses(r.facts.views.main)
	out.EphemeralContainerStatuses = r.containerStatuses(r.facts.views.ephemeral)
	out.Phase = r.facts.phase()
	out.ObservedGeneration = pod.Generation
	if out.StartTime == nil {
		out.StartTime = &metav1.Time{Time: r.facts.in.Now.Truncate(time.Second)}
	}
	if s := r.facts.in.Stop; s != nil && terminal(out.Phase) && !terminal(pod.Status.Phase) &&
		(out.Phase == corev1.PodFailed || r.facts.stopped(s.At)) {
		out.Reason, out.Message = s.Reason, s.Message
	}
	r.addresses(&out)
	r.conditions(&out)
	return out
}

func (r *report) addresses(out *corev1.PodStatus) {
	out.HostIP, out.HostIPs = "", nil
	for i, ip := range r.facts.in.HostIPs {
		if i == 0 {
			out.HostIP = ip
		}
		out.HostIPs = append(out.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(r.facts.in.Seen.IPs) == 0 {
		return // the last known address stays, as on Kubernetes, until a new sandbox has one
	}
	out.PodIP, out.PodIPs = r.facts.in.Seen.IPs[0], nil
	for _, ip := range r.facts.in.Seen.IPs {
		out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: ip})
	}
}

// phase follows N-7.8.
func (f *facts) phase() corev1.PodPhase {
	if terminal(f.in.Pod.Status.Phase) {
		return f.in.Pod.Status.Phase
	}
	if f.stopping() {
		return f.stoppedPhase()
	}
	switch {
	case f.ended() && f.views.anyRunning(): // sidecars
		return f.phaseBefore()
	case f.ended():
		return f.verdict()
	case !f.initDone():
		return corev1.PodPending
	}
	for _, v := range f.views.main {
		if !f.begun(v) && !v.ended() && !v.anew() && (v.prev == nil && v.nextAttempt() <= 1) {
			return corev1.PodPending // it never ran
		}
	}
	return corev1.PodRunning
}

// phaseBefore is the phase of a pod that is over but for what still runs.
func (f *facts) phaseBefore() corev1.PodPhase {
	if p := f.in.Pod.Status.Phase; p != "" {
		return p
	}
	return corev1.PodRunning
}

// initDone: every init container has succeeded and every sidecar has started. Once a main container has run it stays
// so.
func (f *facts) initDone() bool {
	at := f.initAt()
	for i, v := range f.views.init {
		switch {
		case i < at:
		case v.role == sidecarRole && !f.started(v), v.role == initRole && !v.succeeded():
			return false
		}
	}
	return true
}

// stoppedPhase: a terminal phase only once nothing runs (N-5.28, N-7.31).
func (f *facts) stoppedPhase() corev1.PodPhase {
	if f.views.anyRunning() {
		return f.phaseBefore()
	}
	if s := f.in.Stop; s != nil && !f.endedBefore(s.At) {
		return corev1.PodFailed
	}
	return f.verdict()
}

// endedBefore: the pod had come to its end by itself. One that was told to stop has not done its work, whatever code its
// containers choose to exit with.
func (f *facts) endedBefore(at time.Time) bool {
	return f.ended() && !slices.ContainsFunc(f.views.main, func(v *view) bool { return !v.finishedAt().Before(at) })
}

// stopped says that a container was still there to be stopped: of a pod that has succeeded, a sidecar (N-5.27).
func (f *facts) stopped(at time.Time) bool {
	return slices.ContainsFunc(slices.Concat(f.views.init, f.views.main), func(v *view) bool {
		return v.ended() && !v.finishedAt().Before(at)
	})
}

// verdict: every main container ended with 0, or not.
func (f *facts) verdict() corev1.PodPhase {
	for _, v := range f.views.main {
		if !v.succeeded() {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

func (r *report) containerStatuses(vs []*view) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, v := range vs {
		out = append(out, r.containerStatus(v))
	}
	return out
}

func (r *report) containerStatus(v *view) corev1.ContainerStatus {
	if v.latest == nil && v.past != nil && terminal(r.facts.in.Pod.Status.Phase) {
		return *v.past.DeepCopy() // it is over and its records are gone
	}
	st := corev1.ContainerStatus{Name: v.spec.Name, Image: v.spec.Image, ImageID: r.facts.in.Seen.Images[v.spec.Name].ID}
	if v.past != nil && st.ImageID == "" {
		st.ImageID = v.past.ImageID
	}
	st.LastTerminationState = r.lastState(v)
	switch {
	case v.running() && !r.facts.begun(v) && !r.facts.stopping():
		r.waiting.set(v.spec.Name, r.notYet(), "") // until its hook is done, as on Kubernetes
	case v.running():
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: stamp(v.latest.StartedAt)}
		st.Ready = (v.role == mainRole || v.role == sidecarRole) && r.facts.ready(v)
	case v.latest != nil:
		st.Ready = v.role == initRole && v.succeeded()
		st.State.Terminated = r.facts.terminated(v.latest)
	}
	if v.latest != nil {
		st.ContainerID = IDPrefix + v.latest.ID
		st.RestartCount = int32(v.latest.Attempt)
		st.StopSignal = r.reportedSignal(v)
		st.User = user(v.latest)
	} else if v.past != nil {
		// kept while the next attempt waits: it is how attempts are counted across a boot
		st.RestartCount, st.ContainerID = v.past.RestartCount, v.past.ContainerID
		if v.endKnown() {
			st.State.Terminated = v.past.State.Terminated.DeepCopy()
		}
	}
	r.waitingState(v, &st)
	started := r.facts.started(v)
	st.Started = &started
	return st
}

// reportedSignal is the stop signal of a container that chose one.
func (r *report) reportedSignal(v *view) *corev1.Signal {
	if l := v.spec.Lifecycle; l != nil {
		return l.StopSignal
	}
	return nil
}

// waitingState fills State for a container that neither runs nor rests for good.
func (r *report) waitingState(v *view, st *corev1.ContainerStatus) {
	w, waits := r.waiting[v.spec.Name]
	switch {
	case st.State.Running != nil:
	case waits:
		if t := st.State.Terminated; t != nil {
			st.LastTerminationState = corev1.ContainerState{Terminated: t}
		}
		st.State = corev1.ContainerState{Waiting: &w}
	case st.State.Terminated != nil:
	case r.facts.stopping() && !r.facts.views.anyRunning() && r.hadItsTurn(v):
		st.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown",
			Message: "The container could not be located when the pod was terminated"}
	case v.lost() && !r.facts.restarts(v):
		st.State.Terminated = unknownEnd(v.past)
	case v.anew() && r.facts.mem.Restarting:
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: restartingAll}
	default:
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: r.notYet()}
	}
}

// notYet is why a container waits that nothing is wrong with: Kubernetes says the same of all containers of a pod,
// init containers included (N-7.13).
func (r *report) notYet() string {
	if len(r.facts.views.init) > 0 {
		return "PodInitializing"
	}
	return "ContainerCreating"
}

// hadItsTurn: of a pod that is over, this container would have run. A main container's turn never comes when init was
// not finished, an init container's only if it or one after it ran; the first one's always does.
func (r *report) hadItsTurn(v *view) bool {
	if v.role != initRole && v.role != sidecarRole {
		return len(r.facts.views.init) == 0 || slices.ContainsFunc(r.facts.views.main, (*view).everRan) || r.facts.initDone()
	}
	last := 0
	for i, o := range r.facts.views.init {
		if o.everRan() {
			last = i
		}
	}
	return slices.Index(r.facts.views.init, v) <= last
}

// lastState is how the attempt before the one in State ended.
func (r *report) lastState(v *view) corev1.ContainerState {
	var t *corev1.ContainerStateTerminated
	switch {
	case v.latest != nil && v.prev != nil && v.prev.Exit != nil:
		t = r.facts.terminated(v.prev)
	case v.past == nil:
	case v.endKnown():
		t = v.past.LastTerminationState.Terminated
	case v.latest == nil || v.past.ContainerID != "" && v.past.ContainerID != IDPrefix+v.latest.ID:
		// the engine lost the attempt before this one, the API still knows it
		if t = v.past.LastTerminationState.Terminated; v.past.State.Terminated != nil {
			t = v.past.State.Terminated
		} else if v.past.State.Running != nil {
			t = unknownEnd(v.past)
		}
	default:
		t = v.past.LastTerminationState.Terminated
	}
	return corev1.ContainerState{Terminated: t.DeepCopy()}
}

// unknownEnd stands for an end nobody saw: the board went down, or the keeper's records were lost.
func unknownEnd(past *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown",
		Message: "The container could not be located when the pod was restarted", ContainerID: past.ContainerID}
	if past.State.Running != nil {
		t.StartedAt = past.State.Running.StartedAt
	}
	return t
}

func (f *facts) terminated(s *runtime.Status) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ContainerID: IDPrefix + s.ID, StartedAt: stamp(s.StartedAt),
		Message: f.in.Seen.Messages[s.ID]}
	if s.Exit == nil {
		return t
	}
	t.ExitCode, t.Signal, t.FinishedAt = int32(s.Exit.Code), int32(s.Exit.Signal), stamp(s.Exit.FinishedAt)
	switch {
	case s.Exit.Unknown:
		t.ExitCode, t.Reason = 137, "ContainerStatusUnknown"
		t.Message = "The container ended while the keeper was away; how is not known"
	case s.Exit.OOMKilled:
		t.Reason = "OOMKilled"
		if t.Message == "" { // the container's own word goes first
			t.Message = oomMessage(s.Exit)
		}
	case f.endedForOthers(s):
		t.Reason, t.Message = restartingAll, endedForAll
	case s.Exit.Code == 0:
		t.Reason = "Completed"
	default:
		t.Reason = "Error"
	}
	return t
}

// oomMessage says how much memory there was: whoever sets limits has to know.
func oomMessage(x *runtime.Exit) string {
	used, limit := "", "The board, or all pods together, ran out of memory"
	if x.MemoryPeak > 0 {
		used = fmt.Sprintf(", and it had used up to %s", resource.NewQuantity(x.MemoryPeak, resource.BinarySI))
	}
	if x.MemoryLimit > 0 {
		limit = fmt.Sprintf("The kernel killed it at its memory limit of %s", resource.NewQuantity(x.MemoryLimit, resource.BinarySI))
	}
	return limit + used
}

func stamp(t time.Time) metav1.Time { return metav1.Time{Time: t.Truncate(time.Second)} }

// conditions follow N-7.11 and N-7.12.
func (r *report) conditions(out *corev1.PodStatus) {
	over := terminal(out.Phase)
	reason := ""
	switch out.Phase {
	case corev1.PodSucceeded:
		reason = "PodCompleted"
	case corev1.PodFailed:
		reason = "PodFailed"
	}
	r.condition(out, corev1.PodScheduled, true, "", "")
	if r.facts.in.Seen.Sandbox || over || !r.facts.in.Seen.Standing || !has(out, corev1.PodReadyToStartContainers) {
		r.condition(out, corev1.PodReadyToStartContainers, r.facts.in.Seen.Sandbox && !over, "", "")
	} // else a brain that has just begun would write "no" and then "yes" for every pod
	if names := r.uninitialized(out); len(names) > 0 && !r.facts.initDone() && out.Phase != corev1.PodSucceeded && !r.staysInitialized(out) {
		r.condition(out, corev1.PodInitialized, false, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %s", names))
	} else {
		r.condition(out, corev1.PodInitialized, true, pick(out.Phase == corev1.PodSucceeded, "PodCompleted"), "")
	}
	names := r.unready(out)
	ready, msg := len(names) == 0 && !over, ""
	if !ready && !over {
		reason, msg = "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", names)
	}
	r.condition(out, corev1.ContainersReady, ready, reason, msg)
	if ready {
		if shut := gatesShut(r.facts.in.Pod.Spec.ReadinessGates, out.Conditions); len(shut) > 0 {
			ready, reason, msg = false, "ReadinessGatesNotReady", strings.Join(shut, ", ")
		}
	}
	r.condition(out, corev1.PodReady, ready, reason, msg)
	if r.facts.canRestartAll() {
		if busy := r.facts.mem.Restarting && !over; busy {
			r.condition(out, corev1.AllContainersRestarting, true, "RestartAllContainersStarted", "container exited with restart policy rule")
		} else {
			r.condition(out, corev1.AllContainersRestarting, false, pick(out.Phase == corev1.PodFailed, "PodFailed"), "")
		}
	}
	if s := r.facts.in.Stop; s != nil && s.Disruption != "" {
		r.condition(out, corev1.DisruptionTarget, true, s.Disruption, cmp.Or(s.Says, s.Message))
	}
}

// staysInitialized: a pod that begins again in place does not lose that condition, as on Kubernetes.
func (r *report) staysInitialized(out *corev1.PodStatus) bool {
	return r.facts.canRestartAll() && slices.ContainsFunc(out.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
	})
}

func has(out *corev1.PodStatus, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(out.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
}

func pick(yes bool, s string) string {
	if yes {
		return s
	}
	return ""
}

// unready names the main containers and sidecars that are not ready.
func (r *report) unready(out *corev1.PodStatus) names {
	var list names
	for i, s := range out.InitContainerStatuses {
		if r.facts.views.init[i].role == sidecarRole && !s.Ready {
			list = append(list, s.Name)
		}
	}
	for _, s := range out.ContainerStatuses {
		if !s.Ready {
			list = append(list, s.Name)
		}
	}
	return list
}

// uninitialized names the init containers that have not succeeded and the sidecars that have not started.
func (r *report) uninitialized(out *corev1.PodStatus) names {
	var list names
	for i, s := range out.InitContainerStatuses {
		if sidecar := r.facts.views.init[i].role == sidecarRole; sidecar && !*s.Started || !sidecar && !s.Ready {
			list = append(list, s.Name)
		}
	}
	return list
}

// gatesShut says which conditions that others have to set keep a pod from being ready (N-7.12).
func gatesShut(gates []corev1.PodReadinessGate, have []corev1.PodCondition) []string {
	var list []string
	for _, g := range gates {
		i := slices.IndexFunc(have, func(c corev1.PodCondition) bool { return c.Type == g.ConditionType })
		switch {
		case i < 0:
			list = append(list, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case have[i].Status != corev1.ConditionTrue:
			list = append(list, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", g.ConditionType, have[i].Status))
		}
	}
	return list
}

// names prints as Kubernetes' messages do: [a b].
type names []string

func (n names) String() string { return "[" + strings.Join(n, " ") + "]" }

func (r *report) condition(out *corev1.PodStatus, t corev1.PodConditionType, ok bool, reason, message string) {
	status := corev1.ConditionFalse
	if ok {
		status = corev1.ConditionTrue
	}
	c := corev1.PodCondition{Type: t, Status: status, Reason: reason, Message: message,
		LastTransitionTime: stamp(r.facts.in.Now), ObservedGeneration: r.facts.in.Pod.Generation}
	i := slices.IndexFunc(out.Conditions, func(o corev1.PodCondition) bool { return o.Type == t })
	if i < 0 {
		out.Conditions = append(out.Conditions, c)
		return
	}
	if old := out.Conditions[i]; old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	out.Conditions[i] = c
}
