package node

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/node/podspec"
	"ledge/node/podstate"
	"ledge/runtime"
)

// A pod may be resized while it runs. What it asks for (spec) is first granted, if the board has it, and then set:
//
//	spec  --room on the board?-->  granted  --Engine.Limit, or a restart-->  actual
//	      PodResizePending                  PodResizeInProgress
//
// What is granted stands in the pod's status (allocatedResources), where a restarted brain finds it.

type granted map[string]corev1.ResourceRequirements

// resizeRetry is how soon a resize that had no room, or could not be set, is tried again if nothing else happens.
const resizeRetry = 5 * time.Second

// resizing is where a pod's resize has got to.
type resizing struct {
	w       *worker
	granted granted
	pending *corev1.PodCondition // there is no room for what is asked for
	trouble error                // what is granted could not be set
}

// sized is the pod as its resources are granted. Everything about it is computed from that, not from the spec.
func (z *resizing) sized(in podstate.Input) *corev1.Pod {
	pod := in.Pod
	if z.granted == nil {
		z.granted = api.Granted(pod)
	}
	want := granted(api.Wanted(pod))
	z.pending = nil
	ending := in.Gone || in.Stop != nil || pod.DeletionTimestamp != nil || terminal(pod.Status.Phase)
	if !equality.Semantic.DeepEqual(z.granted, want) {
		if ending {
			pod = api.WithResources(pod, z.granted)
		} else if reason, message := z.w.a.grants.grant(pod, z.w.a.outlook.last().allocatable); reason != "" {
			z.pending = &corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, Message: message}
			pod = api.WithResources(pod, z.granted)
		} else {
			z.granted = want
		}
	}
	z.w.a.grants.hold(pod)
	return pod
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// setSizes brings the limits of what runs to what is granted: what grows grows from the outside in, what shrinks from
// the inside out, so that a container never has more than its pod.
func (z *resizing) setSizes(ctx context.Context, pod *corev1.Pod) {
	z.trouble = nil
	l := z.w.a.limits()
	st, made := z.w.a.engine.pod(z.w.uid)
	have, want := st.Pod.Resources, l.Pod(pod)
	steps := z.containerSizes(l, pod)
	if !made || !resized(have, want) && len(steps) == 0 {
		return
	}
	outer := want
	outer.CPUQuotaUS, outer.MemoryBytes = larger(have.CPUQuotaUS, want.CPUQuotaUS), larger(have.MemoryBytes, want.MemoryBytes)
	set := func(at runtime.Place, r runtime.Resources) bool {
		err := z.w.a.cfg.Engine.Limit(ctx, at, r)
		if err != nil && !errors.Is(err, runtime.ErrNotFound) {
			z.trouble = err
		}
		return err == nil
	}
	here := runtime.Place{Pod: string(z.w.uid)}
	if resized(have, outer) && !set(here, outer) {
		return
	}
	for _, s := range steps {
		if !set(runtime.Place{Container: s.Container}, s.want) {
			return
		}
		z.containerSized(s.Container, s.want)
	}
	if resized(outer, want) && !set(here, want) {
		return
	}
	z.w.a.engine.podSized(z.w.uid, want)
}

type sizeStep struct {
	Container string
	want      runtime.Resources
}

// containerSizes are the containers that run with other limits than they are granted, and need no restart for them.
func (z *resizing) containerSizes(l podspec.Limits, pod *corev1.Pod) []sizeStep {
	var out []sizeStep
	for i := range z.w.seen.Containers {
		st := &z.w.seen.Containers[i]
		c := api.ContainerNamed(pod, st.Name)
		if c == nil || st.Phase != runtime.Running || st.Labels[podstate.LabelResize] != podstate.ResizeKey(pod, c) {
			continue
		}
		if want := l.Container(pod, c); resized(st.Resources, want) {
			out = append(out, sizeStep{st.ID, want})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Container < out[j].Container })
	return out
}

// resized compares what a resize can change: what follows from requests too. Limits that went from some to none stay: that
// cannot be asked for.
func resized(have, want runtime.Resources) bool {
	for file, value := range want.Unified {
		if have.Unified[file] != value {
			return true
		}
	}
	if h, w := have.SwapBytes, want.SwapBytes; h != nil && w != nil && *h != *w {
		return true
	}
	return have.CPUShares != want.CPUShares || have.CPUQuotaUS != want.CPUQuotaUS && want.CPUQuotaUS != 0 ||
		have.MemoryBytes != want.MemoryBytes && want.MemoryBytes != 0
}

// larger of two limits, of which 0 is none.
func larger(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

func (z *resizing) containerSized(id string, r runtime.Resources) {
	for i := range z.w.seen.Containers {
		if st := &z.w.seen.Containers[i]; st.ID == id {
			st.Resources = st.Resources.With(r)
		}
	}
	z.w.a.engine.containerSized(z.w.uid, id, r)
}

// tellSizes puts into a status what is granted, what holds, and how far a resize has got.
func (z *resizing) tellSizes(pod *corev1.Pod, out *corev1.PodStatus) {
	l := z.w.a.limits()
	busy := z.tellPodSize(l, pod, out)
	for _, list := range [][]corev1.ContainerStatus{out.InitContainerStatuses, out.ContainerStatuses} {
		for i := range list {
			c := api.ContainerNamed(pod, list[i].Name)
			if c == nil {
				continue
			}
			have, was := c.Resources, api.ContainerStatusNamed(pod, list[i].Name)
			have.Claims = nil
			if now := z.running(list[i].ContainerID); now != nil && was != nil && was.Resources != nil &&
				resized(now.Resources, l.Container(pod, c)) {
				have, busy = *was.Resources, true
			}
			list[i].AllocatedResources = c.Resources.Requests
			list[i].Resources = have.DeepCopy()
		}
	}
	if terminal(out.Phase) {
		busy, z.pending, z.trouble = false, nil, nil
	}
	setResize(out, corev1.PodResizePending, z.pending, pod.Generation)
	var progress *corev1.PodCondition
	if busy || z.trouble != nil {
		progress = &corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if err := z.trouble; err != nil {
			progress.Reason, progress.Message = corev1.PodReasonError, err.Error()
		}
	}
	setResize(out, corev1.PodResizeInProgress, progress, pod.Generation)
}

// tellPodSize does so for the pod as a whole; busy means that its cgroup is not there yet.
func (z *resizing) tellPodSize(l podspec.Limits, pod *corev1.Pod, out *corev1.PodStatus) (busy bool) {
	out.AllocatedResources = api.Requests(pod)
	out.Resources = &corev1.ResourceRequirements{Requests: api.Requests(pod), Limits: api.Limits(pod)}
	st, made := z.w.a.engine.pod(z.w.uid)
	if !made || !resized(st.Pod.Resources, l.Pod(pod)) || terminal(out.Phase) {
		return false
	}
	if was := pod.Status.Resources; was != nil {
		out.Resources = was.DeepCopy()
	}
	return true
}

func (z *resizing) running(containerID string) *runtime.Status {
	for i := range z.w.seen.Containers {
		if st := &z.w.seen.Containers[i]; st.Phase == runtime.Running && podstate.IDPrefix+st.ID == containerID {
			return st
		}
	}
	return nil
}

// setResize puts a condition in, or with nil takes it out.
func setResize(out *corev1.PodStatus, kind corev1.PodConditionType, c *corev1.PodCondition, generation int64) {
	i := slices.IndexFunc(out.Conditions, func(o corev1.PodCondition) bool { return o.Type == kind })
	if c == nil {
		if i >= 0 {
			out.Conditions = slices.Delete(out.Conditions, i, i+1)
		}
		return
	}
	c.ObservedGeneration, c.LastTransitionTime = generation, metav1.Time{Time: time.Now().Truncate(time.Second)}
	if i < 0 {
		out.Conditions = append(out.Conditions, *c)
		return
	}
	c.LastTransitionTime = out.Conditions[i].LastTransitionTime
	out.Conditions[i] = *c
}
