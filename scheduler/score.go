package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// maxScore is the best a node can get from one scorer, before its weight.
const maxScore = 100

// score sums LeastAllocated and ImageLocality (weight 1), NodeAffinity, InterPodAffinity and PodTopologySpread (2), and
// TaintToleration (3) (N-10.12, N-10.13).
func (c *Cluster) score(l *look, nodes []*nodeInfo) []int64 {
	pod := l.pod
	requests := amountsOf(scoredRequests(pod))
	taints := make([]int64, len(nodes))
	affinity := make([]int64, len(nodes))
	for i, n := range nodes {
		taints[i] = disliked(pod.Spec.Tolerations, n.node.Spec.Taints)
		affinity[i] = preferred(pod, n.node)
	}
	normalise(taints, true)
	normalise(affinity, false)
	company, even, present := c.companyOf(l.relations, nodes), c.evenness(l.relations, nodes), c.imagesPresent(pod, nodes)
	out := make([]int64, len(nodes))
	for i, n := range nodes {
		out[i] = leastAllocated(requests, n) + present[i] + 2*(affinity[i]+company[i]+even[i]) + 3*taints[i]
	}
	return out
}

// leastAllocated is the mean of what stays free of cpu and memory, in percent, in integers like Kubernetes'.
func leastAllocated(requests amounts, n *nodeInfo) int64 {
	var sum, weights int64
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		total := n.allocatable[name]
		if total == 0 {
			continue
		}
		weights++
		if used := n.scored[name] + requests[name]; used <= total {
			sum += (total - used) * maxScore / total
		}
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// disliked counts the PreferNoSchedule taints a pod does not tolerate.
func disliked(tolerations []corev1.Toleration, taints []corev1.Taint) int64 {
	var n int64
	for i := range taints {
		if soft(taints[i].Effect) && api.Tolerated(tolerations, &taints[i]) == nil {
			n++
		}
	}
	return n
}

// preferred sums the weights of the preferred node affinity terms a node matches.
func preferred(pod *corev1.Pod, node *corev1.Node) int64 {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil {
		return 0
	}
	var sum int64
	for i := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		t := &a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
		// Unlike a required term, an empty preferred term matches every node.
		empty := len(t.Preference.MatchExpressions) == 0 && len(t.Preference.MatchFields) == 0
		if empty || api.MatchesTerm(&t.Preference, node) {
			sum += int64(t.Weight)
		}
	}
	return sum
}

// normalise maps counts to 0..maxScore relative to the largest; reverse makes few the best.
func normalise(v []int64, reverse bool) {
	top := slices.Max(v)
	for i := range v {
		if top > 0 {
			v[i] = v[i] * maxScore / top
		}
		if reverse {
			v[i] = maxScore - v[i]
		}
	}
}

// scoredRequests is api.Requests with a guess for each container that does not say (N-10.12).
func scoredRequests(pod *corev1.Pod) corev1.ResourceList {
	if !slices.ContainsFunc(pod.Spec.Containers, unstated) && !slices.ContainsFunc(pod.Spec.InitContainers, unstated) {
		return api.Requests(pod)
	}
	guessed := *pod
	guessed.Spec.Containers = guess(pod.Spec.Containers)
	guessed.Spec.InitContainers = guess(pod.Spec.InitContainers)
	return api.Requests(&guessed)
}

func unstated(c corev1.Container) bool {
	_, cpu := c.Resources.Requests[corev1.ResourceCPU]
	_, memory := c.Resources.Requests[corev1.ResourceMemory]
	return !cpu || !memory
}

func guess(list []corev1.Container) []corev1.Container {
	out := slices.Clone(list)
	for i := range out {
		if !unstated(out[i]) {
			continue
		}
		requests := corev1.ResourceList{corev1.ResourceCPU: assumedCPU, corev1.ResourceMemory: assumedMemory}
		maps.Copy(requests, out[i].Resources.Requests)
		out[i].Resources.Requests = requests
	}
	return out
}
