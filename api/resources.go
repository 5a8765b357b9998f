package api

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass is the quality of service class of a pod (N-7.37). It looks at cpu and memory only, of main and
// init containers, or of the pod itself when it has resources of its own.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	var all []corev1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil && (len(qosOnly(r.Requests)) > 0 || len(qosOnly(r.Limits)) > 0) {
		all = append(all, *r)
	} else {
		for i := range pod.Spec.InitContainers {
			all = append(all, pod.Spec.InitContainers[i].Resources)
		}
		for i := range pod.Spec.Containers {
			all = append(all, pod.Spec.Containers[i].Resources)
		}
	}
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	guaranteed := true
	for _, r := range all {
		own := qosOnly(r.Limits)
		guaranteed = guaranteed && len(own) == 2
		add(limits, own)
		add(requests, qosOnly(r.Requests))
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	for name, q := range requests {
		if limit, ok := limits[name]; !ok || limit.Cmp(q) != 0 {
			guaranteed = false
		}
	}
	if guaranteed && len(requests) == len(limits) {
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// qosOnly keeps cpu and memory above zero.
func qosOnly(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := list[name]; ok && q.Sign() > 0 {
			out[name] = q
		}
	}
	return out
}

// Requests is what a pod asks of a node: containers run side by side, init containers one after the other
// beside the sidecars already started, and the larger need counts (N-10.9).
func Requests(pod *corev1.Pod) corev1.ResourceList {
	out := aggregate(pod, requestsOf)
	add(out, pod.Spec.Overhead)
	return out
}

// Limits is the same sum over limits. A resource that some container leaves unlimited has no entry: what the
// others are limited to does not bound the pod.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	out := aggregate(pod, limitsOf)
	for name := range out {
		if pod.Spec.Resources != nil {
			if _, ok := pod.Spec.Resources.Limits[name]; ok {
				continue
			}
		}
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if q, ok := list[i].Resources.Limits[name]; !ok || q.IsZero() {
					delete(out, name)
				}
			}
		}
	}
	for name, q := range pod.Spec.Overhead {
		if sum, ok := out[name]; ok {
			sum.Add(q)
			out[name] = sum
		}
	}
	return out
}

func requestsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }
func limitsOf(r *corev1.ResourceRequirements) corev1.ResourceList   { return r.Limits }

func aggregate(pod *corev1.Pod, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	total := corev1.ResourceList{}
	for i := range pod.Spec.Containers {
		add(total, of(&pod.Spec.Containers[i].Resources))
	}
	sidecars, peak := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		need := sidecars.DeepCopy()
		add(need, of(&c.Resources))
		if IsSidecar(c) {
			sidecars = need
		}
		raise(peak, need)
	}
	add(total, sidecars)
	raise(total, peak)
	if pod.Spec.Resources != nil {
		for name, q := range of(pod.Spec.Resources) {
			total[name] = q.DeepCopy()
		}
	}
	return total
}

// IsSidecar says whether an init container goes on running beside the main containers (N-7.20).
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func add(to, from corev1.ResourceList) {
	for name, q := range from {
		sum, ok := to[name]
		if !ok {
			sum = resource.Quantity{Format: q.Format}
		}
		sum.Add(q)
		to[name] = sum
	}
}

func raise(to, from corev1.ResourceList) {
	for name, q := range from {
		if have, ok := to[name]; !ok || have.Cmp(q) < 0 {
			to[name] = q.DeepCopy()
		}
	}
}
