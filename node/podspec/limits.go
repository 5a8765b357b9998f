package podspec

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/pressure"
	"ledge/runtime"
)

// ResourceConfig says how pods are bounded. Zero values are Kubernetes' defaults.
type ResourceConfig struct {
	PodPids    int64         // podPidsLimit; 0: none (N-7.46)
	OneByOne   bool          // singleProcessOOMKill: only the process the kernel chose dies (N-7.44)
	NoCPUQuota bool          // cpuCFSQuota: false
	CPUPeriod  time.Duration // cpuCFSQuotaPeriod; 0: 100 ms (N-7.40)
	Swap       SwapRule
	MemoryQoS  MemoryQoS
	// Unenforced: enforceNodeAllocatable without "pods": reservations do not bound the pods (N-1.61).
	Unenforced bool
}

// MemoryQoS is N-7.45, which is off unless its gate is on.
type MemoryQoS struct {
	On        bool
	Throttle  float64 // memoryThrottlingFactor; 0: 0.9
	Protected bool    // memoryReservationPolicy: TieredReservation
}

// Limits turns what pods ask for into cgroup settings. It is a value: the same pod on the same board gives the same.
type Limits struct {
	ResourceConfig
	CgroupV2               bool
	MemoryTotal, SwapTotal int64               // of the board
	Allocatable            int64               // memory that pods may have
	ForPods                corev1.ResourceList // what all pods together may use
	PIDMax, PIDReserved    int64
	// OwnTasks are the processes that are not of pods, 0 if that is not known; SpareTasks how many more the board must be able to
	// start when pods have taken all they can.
	OwnTasks, SpareTasks int64
	Statics              FromFiles
}

// SpareTasks is three quarters of what the eviction threshold keeps, so that it is met before nothing can be started any more:
// systemd could not restart anything then, and a program in Go that is refused a thread ends.
func SpareTasks(p pressure.Policy, pidMax int64) int64 {
	if line := p.Hard(pressure.PIDAvailable).Of(pidMax); line > 0 {
		return line * 3 / 4
	}
	return pidMax / 40
}

// tasks bounds the processes of all pods together; 0: no bound.
func (l Limits) tasks() int64 {
	keep := l.PIDReserved
	if l.OwnTasks > 0 {
		keep = max(keep, l.OwnTasks+l.SpareTasks)
	}
	if l.Unenforced || keep == 0 || l.PIDMax == 0 {
		return 0
	}
	return max(1, l.PIDMax-keep)
}

// Cgroup is the pod's place in the hierarchy (N-7.39).
func Cgroup(pod *corev1.Pod) string {
	return path.Join(groupOf(pod.Status.QOSClass), "pod"+string(pod.UID))
}

// The cgroups that pods stand in, by class.
const (
	AllPods    = "kubepods"
	burstable  = "kubepods/burstable"
	besteffort = "kubepods/besteffort"
)

func groupOf(qos corev1.PodQOSClass) string {
	switch qos {
	case corev1.PodQOSGuaranteed:
		return AllPods
	case corev1.PodQOSBurstable:
		return burstable
	}
	return besteffort
}

// shares turns milli-CPUs into cgroup shares (N-7.40).
func shares(milli int64) uint64 {
	if milli <= 0 {
		return 2
	}
	return uint64(min(max(min(milli, math.MaxInt64/1024)*1024/1000, 2), 262144))
}

// ioWeight shares out I/O as CPU is: by the same number that v2 makes of shares (N-7.41). Kubernetes leaves I/O alone; on
// one card for everything that lets a best-effort pod stop the others.
func ioWeight(shares uint64) uint64 { return 1 + ((shares-2)*9999)/262142 }

func (l Limits) cpu(out *runtime.Resources, request, limit int64) {
	out.CPUShares = shares(request)
	out.IOWeight = ioWeight(out.CPUShares)
	if limit <= 0 || l.NoCPUQuota {
		return
	}
	period := int64(100_000)
	if l.CPUPeriod > 0 {
		period = l.CPUPeriod.Microseconds()
	}
	out.CPUQuotaUS, out.CPUPeriodUS = max(limit*period/1000, 1000), uint64(period)
}

// Pod bounds the pod as a whole (N-7.42, N-7.46). A limit exists only if every container has one, or the pod itself.
func (l Limits) Pod(pod *corev1.Pod) runtime.Resources {
	out := runtime.Resources{CPUShares: 2, IOWeight: 1, PidsLimit: l.PodPids, HugePages: hugePages(api.Requests(pod))}
	if pod.Status.QOSClass == corev1.PodQOSBestEffort {
		return out
	}
	request, limit := api.Requests(pod), api.Limits(pod)
	l.cpu(&out, request.Cpu().MilliValue(), limit.Cpu().MilliValue())
	out.MemoryBytes = limit.Memory().Value()
	l.protect(&out, pod.Status.QOSClass, request.Memory().Value())
	return out
}

// Container follows N-7.38, N-7.40 and N-7.44. Huge pages are limited to what is requested (that is validated).
func (l Limits) Container(pod *corev1.Pod, c *corev1.Container) runtime.Resources {
	adj := oomScoreAdj(pod, c, l.MemoryTotal)
	need, most := c.Resources.Requests, api.WithPodLimits(c, pod).Resources.Limits
	out := runtime.Resources{MemoryBytes: most.Memory().Value(), OOMScoreAdj: &adj, KillAllOnOOM: !l.OneByOne,
		SwapBytes: l.swapOf(pod, c), HugePages: hugePages(most)}
	request := need.Cpu().MilliValue()
	if _, ok := need[corev1.ResourceCPU]; !ok {
		request = most.Cpu().MilliValue()
	}
	l.cpu(&out, request, most.Cpu().MilliValue())
	l.protect(&out, pod.Status.QOSClass, need.Memory().Value())
	l.throttle(&out, need.Memory().Value(), c.Resources.Limits.Memory().Value())
	return out
}

// protect keeps requested memory from being reclaimed (N-7.45).
func (l Limits) protect(out *runtime.Resources, qos corev1.PodQOSClass, request int64) {
	if !l.CgroupV2 || !l.MemoryQoS.On || !l.MemoryQoS.Protected || request <= 0 {
		return
	}
	file := map[corev1.PodQOSClass]string{corev1.PodQOSGuaranteed: "memory.min", corev1.PodQOSBurstable: "memory.low"}[qos]
	if file != "" {
		unified(out, file, request)
	}
}

// throttle slows a container down before it meets its limit (N-7.45).
func (l Limits) throttle(out *runtime.Resources, request, limit int64) {
	if !l.CgroupV2 || !l.MemoryQoS.On || request == limit {
		return
	}
	factor := l.MemoryQoS.Throttle
	if factor == 0 {
		factor = 0.9
	}
	if limit == 0 {
		limit = l.Allocatable
	}
	page := int64(os.Getpagesize())
	high := int64(float64(request)+factor*float64(limit-request)) / page * page
	if high > request {
		unified(out, "memory.high", high)
	}
}

func unified(out *runtime.Resources, file string, n int64) {
	if out.Unified == nil {
		out.Unified = map[string]string{}
	}
	out.Unified[file] = fmt.Sprint(n)
}

// hugePages are the huge pages of a list, by page size; the map is never nil, so that other sizes are refused.
func hugePages(list corev1.ResourceList) map[int64]int64 {
	out := map[int64]int64{}
	for name, q := range list {
		if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
			if s, err := resource.ParseQuantity(size); err == nil {
				out[s.Value()] = q.Value()
			}
		}
	}
	return out
}

// Groups bounds what pods stand in (N-1.61, N-7.43), in the order to be set.
func (l Limits) Groups(pods []*corev1.Pod) []Group {
	var cpu, low, keep int64
	for _, p := range pods {
		request := api.Requests(p)
		switch p.Status.QOSClass {
		case corev1.PodQOSBurstable:
			cpu += request.Cpu().MilliValue()
			low += request.Memory().Value()
		case corev1.PodQOSGuaranteed:
			keep += request.Memory().Value()
		}
	}
	all := runtime.Resources{CPUShares: shares(l.ForPods.Cpu().MilliValue()), MemoryBytes: l.ForPods.Memory().Value()}
	all.PidsLimit = l.tasks()
	b := runtime.Resources{CPUShares: shares(cpu), IOWeight: ioWeight(shares(cpu))}
	if l.CgroupV2 && l.MemoryQoS.On && l.MemoryQoS.Protected { // a cgroup is protected only as far as all above it are
		unified(&all, "memory.min", keep)
		unified(&all, "memory.low", low)
		unified(&b, "memory.low", low)
	}
	return []Group{{AllPods, all}, {burstable, b}, {besteffort, runtime.Resources{CPUShares: 2, IOWeight: 1}}}
}

// Group is a cgroup that pods stand in, and its bounds.
type Group struct {
	Name string
	Want runtime.Resources
}

// FromFiles are the static pods, by UID. Who brought them to the agent says so: annotations are what anybody wrote who may make
// pods, whereas a kubelet writes that of the source itself.
type FromFiles map[types.UID]bool

// Critical says whether the pod is not the first to go.
func (f FromFiles) Critical(pod *corev1.Pod) bool { return IsCritical(pod, f[pod.UID]) }

// IsCritical: the pod is not the first to go (N-6.30). Mirrors are not asked about: the agent runs none.
func IsCritical(pod *corev1.Pod, static bool) bool {
	return static || pod.Spec.Priority != nil && *pod.Spec.Priority >= SystemCritical
}

// SystemCritical is the priority from which a pod is never the first to go (N-10.15).
const SystemCritical = 2_000_000_000

// oomScoreAdj says whom the kernel shall kill first (N-7.38).
func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, memoryTotal int64) int {
	if pod.Spec.PriorityClassName == "system-node-critical" && pod.Spec.Priority != nil && *pod.Spec.Priority >= SystemCritical {
		return -997
	}
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return -997
	case corev1.PodQOSBestEffort, "":
		return 1000
	}
	if memoryTotal <= 0 {
		return 999
	}
	spare := spareRequest(pod)
	score := func(c *corev1.Container) int64 {
		return 1000 - 1000*(c.Resources.Requests.Memory().Value()+spare)/memoryTotal
	}
	adj := score(c)
	if sidecar(pod, c.Name) { // it goes no sooner than the first of those it serves
		first := int64(math.MinInt64)
		for i := range pod.Spec.Containers {
			first = max(first, score(&pod.Spec.Containers[i]))
		}
		adj = min(adj, first)
	}
	return int(min(max(adj, 3), 999))
}

func sidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && api.IsSidecar(&c) })
}

// spareRequest is each container's part of what the pod requests beyond its containers.
func spareRequest(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	whole, ok := pod.Spec.Resources.Requests[corev1.ResourceMemory]
	if !ok {
		return 0
	}
	sum, n := int64(0), int64(0)
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; api.IsSidecar(c) {
			sum, n = sum+c.Resources.Requests.Memory().Value(), n+1
		}
	}
	for i := range pod.Spec.Containers {
		sum, n = sum+pod.Spec.Containers[i].Resources.Requests.Memory().Value(), n+1
	}
	if n == 0 {
		return 0
	}
	return max(0, whole.Value()-sum) / n
}
