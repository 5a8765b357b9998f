package node

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

const periodUS = 100_000

// podCgroup is the pod's place in the hierarchy (N-7.39).
func podCgroup(pod *corev1.Pod) string {
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return path.Join("kubepods", "pod"+string(pod.UID))
	case corev1.PodQOSBurstable:
		return path.Join("kubepods", "burstable", "pod"+string(pod.UID))
	}
	return path.Join("kubepods", "besteffort", "pod"+string(pod.UID))
}

// shares turns milli-CPUs into cgroup shares (N-7.40).
func shares(milli int64) uint64 {
	if milli <= 0 {
		return 2
	}
	return uint64(min(max(milli*1024/1000, 2), 262144))
}

// quota turns a CPU limit into microseconds a period; 0 is no limit (N-7.40).
func quota(milli int64) int64 {
	if milli <= 0 {
		return 0
	}
	return max(milli*periodUS/1000, 1000)
}

// podResources bounds the pod as a whole (N-7.42). A limit exists only if every container has one.
func podResources(pod *corev1.Pod) runtime.Resources {
	out := runtime.Resources{CPUShares: 2}
	if pod.Status.QOSClass == corev1.PodQOSBestEffort {
		return out
	}
	var req, cpu, mem int64
	allCPU, allMem := true, true
	for _, c := range pod.Spec.Containers {
		req += cpuRequest(&c)
		if l := c.Resources.Limits.Cpu().MilliValue(); l > 0 {
			cpu += l
		} else {
			allCPU = false
		}
		if l := c.Resources.Limits.Memory().Value(); l > 0 {
			mem += l
		} else {
			allMem = false
		}
	}
	for _, c := range pod.Spec.InitContainers { // they run alone and may need more
		req = max(req, cpuRequest(&c))
		allCPU = allCPU && c.Resources.Limits.Cpu().MilliValue() > 0
		allMem = allMem && c.Resources.Limits.Memory().Value() > 0
		cpu = max(cpu, c.Resources.Limits.Cpu().MilliValue())
		mem = max(mem, c.Resources.Limits.Memory().Value())
	}
	out.CPUShares = shares(req)
	if allCPU {
		out.CPUQuotaUS, out.CPUPeriodUS = quota(cpu), periodUS
	}
	if allMem {
		out.MemoryBytes = mem
	}
	return out
}

func cpuRequest(c *corev1.Container) int64 {
	if r := c.Resources.Requests.Cpu().MilliValue(); r > 0 {
		return r
	}
	return c.Resources.Limits.Cpu().MilliValue()
}

// containerResources follows N-7.38, N-7.40 and N-7.44.
func containerResources(pod *corev1.Pod, c *corev1.Container, memoryTotal int64) runtime.Resources {
	adj := oomScoreAdj(pod, c, memoryTotal)
	out := runtime.Resources{CPUShares: shares(cpuRequest(c)), MemoryBytes: c.Resources.Limits.Memory().Value(),
		OOMScoreAdj: &adj, KillAllOnOOM: true}
	if q := quota(c.Resources.Limits.Cpu().MilliValue()); q > 0 {
		out.CPUQuotaUS, out.CPUPeriodUS = q, periodUS
	}
	if out.MemoryBytes > 0 { // NoSwap is the default behaviour (N-8.2)
		zero := int64(0)
		out.SwapBytes = &zero
	}
	return out
}

// systemCritical is the priority from which a pod is never the first to go (N-10.15).
const systemCritical = 2_000_000_000

func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, memoryTotal int64) int {
	if pod.Spec.PriorityClassName == "system-node-critical" && pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical {
		return -997
	}
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return -997
	case corev1.PodQOSBurstable:
		if memoryTotal <= 0 {
			return 999
		}
		return int(min(max(1000-1000*c.Resources.Requests.Memory().Value()/memoryTotal, 3), 999))
	}
	return 1000
}
