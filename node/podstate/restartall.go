package podstate

import (
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/runtime"
)

// A container may end in a way that has the whole pod begin again (restartPolicyRules with RestartAllContainers): what
// runs is killed, all records go, and init containers are first again. Sandbox, addresses, volumes and ephemeral
// containers stay.
//
//	a container ended so --> kill the others --> discard all records, the culprit's last --> begin again
//	AllContainersRestarting: True                                                            False
//
// The condition in the API is how a restarted brain goes on. From the last step on a container counts as one that waits
// and never ran in this sandbox, with the numbers of its attempts going on: that is Memory.Reset, until the API knows.

// The reason and message of containers that were ended for others.
const (
	restartingAll = "RestartingAllContainers"
	endedForAll   = "The container was ended to restart all containers of the pod"
)

// anew: it ran before all containers were restarted, and not since.
func (v *view) anew() bool {
	return v.latest == nil && v.past != nil && v.past.ContainerID == "" && v.past.LastTerminationState.Terminated != nil
}

// canRestartAll: some container has such a rule.
func (f *facts) canRestartAll() bool {
	return slices.ContainsFunc(f.views.ofPod(), func(v *view) bool {
		return slices.ContainsFunc(v.spec.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// restartsAll: such an end of this container has the pod begin again.
func (v *view) restartsAll(code int32) bool {
	action, ok := ruled(v.spec.RestartPolicyRules, code)
	return ok && action == corev1.ContainerRestartRuleActionRestartAllContainers
}

func (v *view) culprit() bool { return v.ended() && v.restartsAll(v.exitCode()) }

// restartsAll says whether the pod is on its way to begin again.
func (d *decision) restartsAll() bool {
	if d.facts.mem.Restarting || d.facts.in.Closing || !d.facts.canRestartAll() {
		return d.facts.mem.Restarting
	}
	// What the API says counts for a brain that has not been through it itself.
	begun := d.facts.mem.Reset == nil && slices.ContainsFunc(d.facts.in.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue
	})
	d.facts.mem.Restarting = begun || slices.ContainsFunc(d.facts.views.ofPod(), (*view).culprit)
	return d.facts.mem.Restarting
}

// restartAll takes the next step of that.
func (d *decision) restartAll() {
	var culprits, others []string
	for _, v := range slices.Concat(d.facts.views.main, d.facts.views.init) {
		if v.running() {
			d.destroy(v)
		}
		if v.latest == nil {
			continue
		}
		list := &others
		if v.culprit() {
			list = &culprits
		}
		for _, s := range append(slices.Clone(v.older), *v.latest) {
			*list = append(*list, s.ID)
		}
	}
	switch ids := append(others, culprits...); {
	case slices.ContainsFunc(d.facts.views.ofPod(), (*view).running):
	case len(ids) > 0:
		d.noteEnds()
		for _, id := range ids {
			d.do(Action{Verb: Discard, ID: id})
		}
	default:
		d.noteEnds()
		d.facts.mem.Restarting = false
		d.facts.views = viewsOf(d.facts.in, d.facts.mem.Reset)
		d.run()
	}
}

// destroy kills a container at once: what begins again has nothing to bring to an end.
func (d *decision) destroy(v *view) {
	id := v.latest.ID
	e, known := d.facts.mem.Ends[id]
	if known && !e.Killed.IsZero() && d.facts.in.Now.Before(e.Killed.Add(rekill)) {
		d.wake(e.Killed.Add(rekill))
		return
	}
	var event *EventNote
	if !known {
		e.Began = d.facts.in.Now
		event = &EventNote{v.spec.Name, corev1.EventTypeNormal, "Killing", "Stopping container " + v.spec.Name}
	}
	e.Signalled, e.Killed = d.facts.in.Now, d.facts.in.Now
	d.facts.mem.Ends[id] = e
	d.do(Action{Verb: Signal, Container: v.spec.Name, ID: id, Sig: syscall.SIGKILL, Event: event})
	d.wake(e.Killed.Add(rekill))
}

// endedForOthers tells whether the container was killed because all containers of the pod restart, by this brain or
// by the previous one. The previous brain wrote the restart to the API before it killed anything.
func (f *facts) endedForOthers(s *runtime.Status) bool {
	if !f.mem.Restarting || f.stopping() {
		return false
	}
	return !f.mem.Ends[s.ID].Killed.IsZero() || s.Exit.Signal == int(syscall.SIGKILL) &&
		slices.ContainsFunc(f.in.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue &&
				!s.Exit.FinishedAt.Before(c.LastTransitionTime.Time)
		})
}

// noteEnds keeps of each container that ran what its status is to say once its records are gone.
func (d *decision) noteEnds() {
	if d.facts.mem.Reset == nil {
		d.facts.mem.Reset = map[string]corev1.ContainerStatus{}
	}
	for _, v := range d.facts.views.ofPod() {
		next := int32(v.nextAttempt())
		if was, noted := d.facts.mem.Reset[v.spec.Name]; noted && was.RestartCount >= next || !v.everRan() || v.latest == nil &&
			v.past.State.Waiting != nil {
			continue
		}
		end := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: restartingAll, Message: endedForAll,
			FinishedAt: metav1.Time{Time: d.facts.in.Now}}
		switch {
		case v.latest == nil && v.past.State.Terminated != nil:
			end = v.past.State.Terminated.DeepCopy()
		case v.latest != nil && v.latest.Exit != nil:
			end = d.facts.terminated(v.latest)
		}
		var st corev1.ContainerStatus
		if v.past != nil {
			st = *v.past.DeepCopy()
		}
		st.Name, st.Image, st.ContainerID, st.RestartCount = v.spec.Name, v.spec.Image, "", next
		st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: restartingAll}}
		st.LastTerminationState = corev1.ContainerState{Terminated: end}
		st.Ready, st.Started, st.User, st.StopSignal = false, new(bool), nil, nil
		d.facts.mem.Reset[v.spec.Name] = st
	}
}
