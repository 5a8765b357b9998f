package poster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/images"
	"ledge/node/devices"
	"ledge/node/machine"
)

// Facts is everything that a status is made of.
type Facts struct {
	// What the board is told, as in Config.
	Name         string
	Version      string
	Config       StatusConfig
	Registration Registration

	// What a look shows.
	Sample   machine.Sample
	Engine   string // libcontainer://v1.5.2
	Pressure map[corev1.NodeConditionType]bool
	Faults   []string // why the Node is not ready
	Troubles string   // those of them that nobody ordered
	Images   []images.Image
	Handlers []corev1.NodeRuntimeHandler
	Extra    []corev1.NodeCondition   // beside Kubernetes' own
	Devices  map[string]devices.Count // of every class, by resource; nil: the board counts none
	Plugins  map[string]devices.Count // of every resource that a device plugin has, or had
	Now      time.Time
}

// fill writes the status of the Node: pure, but for the object it is given.
func (f Facts) fill(node *corev1.Node) {
	st := &node.Status
	switch ips := f.Registration.PickIPs(f.Sample.Addresses); {
	case f.Registration.External && len(st.Addresses) > 0: // the cloud's controller owns them (N-1.44)
	case f.Registration.External && len(f.Registration.NodeIPs) == 0:
		st.Addresses = f.addresses(nil)
	case len(ips) > 0 || len(st.Addresses) == 0: // else they stay as they were (N-1.22)
		st.Addresses = f.addresses(ips)
	}
	others := api.ExtendedOf(st.Capacity) // whoever added them keeps them
	st.Capacity, st.Allocatable = f.Config.Capacity(f.Sample), f.Config.Allocatable(f.Sample)
	maps.Copy(st.Capacity, others)
	maps.Copy(st.Allocatable, others)
	f.devices(st)
	st.NodeInfo = corev1.NodeSystemInfo{MachineID: f.Sample.MachineID, SystemUUID: f.Sample.SystemUUID, BootID: f.Sample.BootID,
		KernelVersion: f.Sample.KernelVersion, OSImage: f.Sample.OSImage, ContainerRuntimeVersion: f.Engine,
		KubeletVersion: f.Version, OperatingSystem: f.Sample.OS, Architecture: f.Sample.Arch}
	if f.Sample.SwapTotal > 0 {
		st.NodeInfo.Swap = &corev1.NodeSwapStatus{Capacity: &f.Sample.SwapTotal}
	}
	st.DaemonEndpoints.KubeletEndpoint.Port = int32(f.Config.Port) // N-1.66
	st.Images = imageList(f.Images)
	yes := true
	st.RuntimeHandlers = f.Handlers
	st.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &yes}
	f.conditions(st)
}

// devices counts those of the board. A class that has had one keeps its line, with 0; one without any has none, and what is no class any
// more loses it.
func (f Facts) devices(st *corev1.NodeStatus) {
	counted(st, f.Plugins)
	if f.Devices == nil {
		return
	}
	for name := range st.Capacity {
		if _, is := f.Devices[string(name)]; !is && strings.HasPrefix(string(name), devices.Domain) {
			delete(st.Capacity, name)
			delete(st.Allocatable, name)
		}
	}
	counted(st, f.Devices)
}

// counted writes counts; what has never been there gets no line.
func counted(st *corev1.NodeStatus, list map[string]devices.Count) {
	for text, n := range list {
		name := corev1.ResourceName(text)
		if _, was := st.Capacity[name]; was || n.Capacity > 0 {
			st.Capacity[name], st.Allocatable[name] = count(n.Capacity), count(n.Allocatable)
		}
	}
}

// addresses follow N-1.42: InternalIP, one or two, then Hostname.
func (f Facts) addresses(ips []netip.Addr) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range ips {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	if f.Registration.ExternalIP.IsValid() {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: f.Registration.ExternalIP.String()})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: f.Name})
}

// said is an error in a kubelet's words.
type said string

func (s said) Error() string { return string(s) }

// overReserved refuses reservations of more than there is (N-1.60).
func (f Facts) overReserved() error {
	capacity := f.Config.Capacity(f.Sample)
	capacity[PID] = count(f.Sample.PIDMax)
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		if have, want := capacity[name], f.Config.Reserved(name); want.Cmp(have) > 0 {
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
func (f Facts) conditions(st *corev1.NodeStatus) {
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		words := pressureWords[t]
		if f.Pressure[t] {
			f.condition(st, t, corev1.ConditionTrue, words[0], words[1])
		} else {
			f.condition(st, t, corev1.ConditionFalse, words[2], words[3])
		}
	}
	faults := slices.Clone(f.Faults)
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
	for _, c := range f.Extra {
		if c.Status == "" {
			st.Conditions = slices.DeleteFunc(st.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
			continue
		}
		f.condition(st, c.Type, c.Status, c.Reason, clipped(c.Message))
	}
}

// mostMessage is what a condition beside Kubernetes' own may say, in bytes: some of it may be what others have written, and the Node is
// sent whole.
const mostMessage = 2 << 10

func clipped(message string) string {
	if len(message) > mostMessage {
		return strings.ToValidUTF8(message[:mostMessage], "") + "..."
	}
	return message
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

func (f Facts) condition(st *corev1.NodeStatus, t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) {
	now := metav1.Time{Time: f.Now.Truncate(time.Second)}
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
