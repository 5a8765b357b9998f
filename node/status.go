package node

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/node/machine"
	"ledge/node/pressure"
)

// StatusConfig says what the Node reports and how often. Zero values are Kubernetes' defaults.
type StatusConfig struct {
	UpdateEvery   time.Duration // 10 s (N-1.26)
	ReportEvery   time.Duration // 5 min (N-2.12)
	LeaseDuration time.Duration // 40 s (N-2.1)
	MaxPods       int64         // 110
	PodsPerCore   int64         // 0: no such bound
	KubeReserved  corev1.ResourceList
	SysReserved   corev1.ResourceList
	Eviction      pressure.Policy
	Port          uint16 // where the control plane reaches this board; 0: nowhere
	WorkingSet    bool   // memory in use is what Kubernetes calls so, page cache in use included
}

// facts is everything a status is made of.
type facts struct {
	name     string
	sample   machine.Sample
	cfg      StatusConfig
	reg      Registration
	engine   string // libcontainer://v1.5.2
	version  string
	pressure map[corev1.NodeConditionType]bool
	faults   []string // why the Node is not ready
	troubles string   // those of them that nobody ordered
	images   []corev1.ContainerImage
	extra    []corev1.NodeCondition // beside Kubernetes' own
	now      time.Time
}

// fill writes the status of the Node: pure, but for the object it is given.
func (f facts) fill(node *corev1.Node) {
	st := &node.Status
	switch ips := f.reg.pickIPs(f.sample.Addresses); {
	case f.reg.External && len(st.Addresses) > 0: // the cloud's controller owns them (N-1.44)
	case f.reg.External && len(f.reg.NodeIPs) == 0:
		st.Addresses = f.addresses(nil)
	case len(ips) > 0 || len(st.Addresses) == 0: // else they stay as they were (N-1.22)
		st.Addresses = f.addresses(ips)
	}
	others := api.ExtendedOf(st.Capacity) // whoever added them keeps them
	st.Capacity, st.Allocatable = f.capacity(), f.allocatable()
	maps.Copy(st.Capacity, others)
	maps.Copy(st.Allocatable, others)
	st.NodeInfo = corev1.NodeSystemInfo{MachineID: f.sample.MachineID, SystemUUID: f.sample.SystemUUID, BootID: f.sample.BootID,
		KernelVersion: f.sample.KernelVersion, OSImage: f.sample.OSImage, ContainerRuntimeVersion: f.engine,
		KubeletVersion: f.version, OperatingSystem: f.sample.OS, Architecture: f.sample.Arch}
	if f.sample.SwapTotal > 0 {
		st.NodeInfo.Swap = &corev1.NodeSwapStatus{Capacity: &f.sample.SwapTotal}
	}
	st.DaemonEndpoints.KubeletEndpoint.Port = int32(f.cfg.Port) // N-1.66
	st.Images = f.images
	yes := true
	st.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &yes}
	f.conditions(st)
}

// addresses follow N-1.42: InternalIP, one or two, then Hostname.
func (f facts) addresses(ips []netip.Addr) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range ips {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	if f.reg.ExternalIP.IsValid() {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: f.reg.ExternalIP.String()})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: f.name})
}

func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
func bytesOf(n int64) resource.Quantity {
	return *resource.NewQuantity(n, resource.BinarySI)
}

// capacity follows N-1.55.
func (f facts) capacity() corev1.ResourceList {
	pods := f.cfg.MaxPods
	if f.cfg.PodsPerCore > 0 {
		pods = min(pods, f.sample.CPUs*f.cfg.PodsPerCore)
	}
	out := corev1.ResourceList{
		corev1.ResourceCPU:              count(f.sample.CPUs),
		corev1.ResourceMemory:           bytesOf(f.sample.MemoryTotal),
		corev1.ResourceEphemeralStorage: bytesOf(f.sample.NodeFS.Capacity),
		corev1.ResourcePods:             count(pods),
	}
	for size, n := range f.sample.HugePages {
		out[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size)] = bytesOf(n)
	}
	return out
}

// resourcePID is a reservation of process numbers (N-1.60).
const resourcePID corev1.ResourceName = "pid"

// reserved is what is kept for others than pods, kube and system together.
func (f facts) reserved(name corev1.ResourceName) resource.Quantity {
	sum := f.cfg.KubeReserved[name].DeepCopy()
	sum.Add(f.cfg.SysReserved[name])
	return sum
}

// forPods is what all pods together may use: capacity without reservations, but not less eviction's (N-1.61).
func (f facts) forPods(unenforced bool) corev1.ResourceList {
	out := f.capacity()
	for name := range out {
		if !unenforced {
			take(out, name, f.reserved(name))
		}
	}
	return out
}

func take(from corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	have, ok := from[name]
	if !ok {
		return
	}
	have.Sub(q)
	if have.Sign() < 0 {
		have = count(0)
	}
	from[name] = have
}

// allocatable follows N-1.56 to N-1.58.
func (f facts) allocatable() corev1.ResourceList {
	out := f.forPods(false)
	take(out, corev1.ResourceMemory, bytesOf(f.cfg.Eviction.Hard(pressure.MemoryAvailable).Of(f.sample.MemoryTotal)))
	take(out, corev1.ResourceEphemeralStorage, bytesOf(f.cfg.Eviction.Hard(pressure.NodeFSAvailable).Of(f.sample.NodeFS.Capacity)))
	for _, n := range f.sample.HugePages {
		take(out, corev1.ResourceMemory, bytesOf(n))
	}
	return out
}

// overReserved refuses reservations of more than there is (N-1.60).
func (f facts) overReserved() error {
	capacity := f.capacity()
	capacity[resourcePID] = count(f.sample.PIDMax)
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		if have, want := capacity[name], f.reserved(name); want.Cmp(have) > 0 {
			return said(fmt.Sprintf("Resource %q has a reservation of %s but capacity of %s. Expected capacity >= reservation.",
				name, want.String(), have.String()))
		}
	}
	return nil
}

// pressureWords are reason and message of a pressure condition: when it holds, when not (N-1.47).
var pressureWords = map[corev1.NodeConditionType][4]string{
	corev1.NodeMemoryPressure: {"KubeletHasInsufficientMemory", "kubelet has insufficient memory available",
		"KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
	corev1.NodeDiskPressure: {"KubeletHasDiskPressure", "kubelet has disk pressure",
		"KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
	corev1.NodePIDPressure: {"KubeletHasInsufficientPID", "kubelet has insufficient PID available",
		"KubeletHasSufficientPID", "kubelet has sufficient PID available"},
}

// conditions follow N-1.46 to N-1.48, in that order.
func (f facts) conditions(st *corev1.NodeStatus) {
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		words := pressureWords[t]
		if f.pressure[t] {
			f.condition(st, t, corev1.ConditionTrue, words[0], words[1])
		} else {
			f.condition(st, t, corev1.ConditionFalse, words[2], words[3])
		}
	}
	faults := slices.Clone(f.faults)
	if missing := missingCapacity(st.Capacity); missing != "" {
		faults = append(faults, missing)
	}
	switch len(faults) {
	case 0:
		f.condition(st, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	case 1:
		f.condition(st, corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", faults[0])
	default:
		f.condition(st, corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "["+strings.Join(faults, ", ")+"]")
	}
	for _, c := range f.extra {
		if c.Status == "" {
			st.Conditions = slices.DeleteFunc(st.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
			continue
		}
		f.condition(st, c.Type, c.Status, c.Reason, c.Message)
	}
}

func missingCapacity(have corev1.ResourceList) string {
	var missing []string
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage} {
		if q := have[r]; q.IsZero() {
			missing = append(missing, string(r))
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("missing node capacity for resources: %s", strings.Join(missing, ", "))
}

func (f facts) condition(st *corev1.NodeStatus, t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) {
	now := metav1.Time{Time: f.now.Truncate(time.Second)}
	c := corev1.NodeCondition{Type: t, Status: s, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	i := slices.IndexFunc(st.Conditions, func(o corev1.NodeCondition) bool { return o.Type == t })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if st.Conditions[i].Status == s {
		c.LastTransitionTime = st.Conditions[i].LastTransitionTime
	}
	st.Conditions[i] = c
}
