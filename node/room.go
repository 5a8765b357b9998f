package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/devices"
	"ledge/node/podspec"
)

// room is what a pod finds on this board: a scheduler has looked at the same, but pods are also bound by hand, and two
// that were placed at the same time may not fit together.
type room struct {
	node        *corev1.Node // nil: it cannot be read just now; then only the board's own knowledge counts
	allocatable corev1.ResourceList
	pods        []*corev1.Pod // admitted and not over
	// held are the granted resources of pods in the middle of a resize; other pods are granted what they ask for.
	held    map[types.UID]corev1.ResourceList
	statics podspec.FromFiles
	devices map[string]devices.Count // that the board counts itself, by resource; nil: it counts none
	plugins map[string]devices.Count // that device plugins count, by resource
	// pluginsYoung: plugins may be about to register anew
	pluginsYoung bool
	young        bool // the board may have been switched on just now, and find more of them
}

// refuses asks for what a kubelet asks for, in its order and words (N-7.5); nil means that the pod fits. With lack it is
// resources alone that stand in the way, and how much of them.
func (r room) refuses(pod *corev1.Pod) (why *refusal, lack map[corev1.ResourceName]int64) {
	why, lack = r.resources(pod)
	other := r.predicates(pod)
	switch {
	case why == nil:
		return other, nil
	case other != nil:
		return why, nil
	}
	return why, lack
}

// resources: the sum of what pods ask for must fit in what is allocatable.
func (r room) resources(pod *corev1.Pod) (why *refusal, lack map[corev1.ResourceName]int64) {
	if r.allocatable == nil {
		return nil, nil
	}
	want := room{}.takes(pod)
	lack = map[corev1.ResourceName]int64{}
	names := slices.SortedFunc(maps.Keys(want), func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(resourceRank(a), resourceRank(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		need, have, used := want[name], figure(r.allocatable, name), int64(0)
		if api.IsExtended(name) {
			var counted bool
			if have, counted = r.extended(pod, name); !counted {
				continue
			}
		}
		for _, p := range r.pods {
			used += r.takes(p)[name]
		}
		if need == 0 || used+need <= have {
			continue
		}
		lack[name] = used + need - have
		_, plugged := r.plugins[string(name)]
		switch {
		case why == nil && plugged: // on Kubernetes this is not the scheduler's question but the device manager's
			why = &refusal{"UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to requested number of devices unavailable for %s. "+
				"Requested: %d, Available: %d, which is unexpected", name, need, max(0, have-used))}
		case why == nil:
			why = &refusal{"OutOf" + string(name),
				fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, need, used, have)}
		}
	}
	return why, lack
}

// extended is how much there is of an extended resource; false: nobody can tell now, which keeps no pod away.
func (r room) extended(pod *corev1.Pod, name corev1.ResourceName) (have int64, counted bool) {
	if n, is := r.plugins[string(name)]; is {
		return n.Allocatable, !r.statics[pod.UID] && !r.pluginsYoung
	}
	switch {
	case r.devices != nil && strings.HasPrefix(string(name), devices.Domain):
		own, is := r.devices[string(name)]
		// A pod that is turned away is not tried again, and one of a file nobody would make anew.
		return own.Allocatable, !is || !r.statics[pod.UID] && !r.young
	case r.node == nil || !has(r.node.Status.Allocatable, name):
		return 0, false // as on Kubernetes: it may be gone only for a while
	}
	return figure(r.node.Status.Allocatable, name), true
}

// resourceRank is the order in which resources are named.
func resourceRank(name corev1.ResourceName) int {
	order := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

func has(list corev1.ResourceList, name corev1.ResourceName) bool {
	_, ok := list[name]
	return ok
}

// takes is what a pod takes, itself as one pod among it.
func (r room) takes(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	list, ok := r.held[pod.UID]
	if !ok {
		list = api.Requests(pod)
	}
	out := map[corev1.ResourceName]int64{corev1.ResourcePods: 1}
	for name := range list {
		out[name] = figure(list, name)
	}
	return out
}

// predicates are everything but resources.
func (r room) predicates(pod *corev1.Pod) *refusal {
	failed := func(name, words string) *refusal {
		return &refusal{name, fmt.Sprintf("Predicate %s failed: %s", name, words)}
	}
	if n := r.node; n != nil {
		if os, asks := pod.Spec.NodeSelector[corev1.LabelOSStable]; asks && os != n.Labels[corev1.LabelOSStable] {
			return &refusal{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
		}
		if !api.MatchesNode(pod, n) {
			return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
		}
		if pod.Spec.NodeName != n.Name {
			return failed("NodeName", "node(s) didn't match the requested node name")
		}
	}
	if api.PortsTaken(pod, r.pods) {
		return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	if r.node == nil || api.IsMirror(pod) {
		return nil
	}
	for i := range r.node.Spec.Taints {
		t := &r.node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && api.Tolerated(pod.Spec.Tolerations, t) == nil {
			return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
		}
	}
	return nil
}

// victims chooses the pods that a critical one that lacks only resources may put an end to (N-7.6): as few as can be, of
// the lowest class that has them. nil: there is no way.
func (r room) victims(pod *corev1.Pod, lack map[corev1.ResourceName]int64) []*corev1.Pod {
	if !r.statics.Critical(pod) || len(lack) == 0 {
		return nil
	}
	var out []*corev1.Pod
	for _, p := range r.pods {
		if r.mayPreempt(pod, p) {
			out = append(out, p)
		}
	}
	if !r.covers(out, lack) {
		return nil
	}
	// Spare whom one can, the most valuable first: what is left is needed.
	slices.SortStableFunc(out, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(classRank(b), classRank(a)), cmp.Compare(priorityOf(b), priorityOf(a)), cmp.Compare(r.weight(b), r.weight(a)))
	})
	for i := 0; i < len(out); {
		if without := slices.Concat(out[:i], out[i+1:]); r.covers(without, lack) {
			out = without
		} else {
			i++
		}
	}
	return out
}

// covers says whether the end of these pods frees all that lacks.
func (r room) covers(pods []*corev1.Pod, lack map[corev1.ResourceName]int64) bool {
	for name, need := range lack {
		for _, p := range pods {
			need -= r.takes(p)[name]
		}
		if need > 0 {
			return false
		}
	}
	return true
}

// weight orders pods of one class and priority: memory counts, since it cannot be shared in time.
func (r room) weight(p *corev1.Pod) int64 { return r.takes(p)[corev1.ResourceMemory] }

func classRank(p *corev1.Pod) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}, p.Status.QOSClass)
}

func priorityOf(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

func (r room) mayPreempt(by, p *corev1.Pod) bool {
	return r.statics.Critical(by) && !r.statics.Critical(p) || priorityOf(by) > priorityOf(p)
}
