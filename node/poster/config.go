package poster

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/node/machine"
	"ledge/node/pressure"
)

// Registration says how the Node object is made.
type Registration struct {
	Off        bool // --register-node=false (N-1.12)
	Labels     map[string]string
	Taints     []corev1.Taint
	NodeIPs    []netip.Addr // --node-ip (N-1.20)
	ExternalIP netip.Addr
	// External: a cloud controller owns addresses and removes a taint (N-1.14).
	External bool
	// Again: register anew when the Node is deleted (N-1.34).
	Again bool
}

// PickIPs follows N-1.20 to N-1.22: the addresses asked for, if all are the board's, else the default route's. None:
// the board has no address now, or not the one it should have.
func (r Registration) PickIPs(have []netip.Addr) []netip.Addr {
	var asked []netip.Addr
	v6first := false
	for _, ip := range r.NodeIPs {
		switch {
		case ip.IsUnspecified():
			v6first = ip.Is6()
		case slices.Contains(have, ip):
			asked = append(asked, ip)
		default:
			return nil
		}
	}
	if len(asked) > 0 {
		return asked
	}
	for _, ip := range have {
		if ip.Is6() == v6first {
			return []netip.Addr{ip}
		}
	}
	return have[:min(len(have), 1)]
}

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

// WithDefaults has Kubernetes' defaults for what is zero.
func (c StatusConfig) WithDefaults() StatusConfig {
	c.UpdateEvery = cmp.Or(c.UpdateEvery, 10*time.Second)
	c.ReportEvery = cmp.Or(c.ReportEvery, 5*time.Minute)
	c.MaxPods = cmp.Or(c.MaxPods, 110)
	c.Eviction = c.Eviction.WithDefaults()
	return c
}

func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
func bytesOf(n int64) resource.Quantity {
	return *resource.NewQuantity(n, resource.BinarySI)
}

// Capacity is what the machine has (N-1.55).
func (c StatusConfig) Capacity(s machine.Sample) corev1.ResourceList {
	pods := c.MaxPods
	if c.PodsPerCore > 0 {
		pods = min(pods, s.CPUs*c.PodsPerCore)
	}
	out := corev1.ResourceList{
		corev1.ResourceCPU:              count(s.CPUs),
		corev1.ResourceMemory:           bytesOf(s.MemoryTotal),
		corev1.ResourceEphemeralStorage: bytesOf(s.NodeFS.Capacity),
		corev1.ResourcePods:             count(pods),
	}
	for size, n := range s.HugePages {
		out[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size)] = bytesOf(n)
	}
	return out
}

// PID is a reservation of process numbers (N-1.60).
const PID corev1.ResourceName = "pid"

// Reserved is what is kept for others than pods, kube and system together.
func (c StatusConfig) Reserved(name corev1.ResourceName) resource.Quantity {
	sum := c.KubeReserved[name].DeepCopy()
	sum.Add(c.SysReserved[name])
	return sum
}

// ForPods are the resources that all pods together may use: capacity less reservations, but not less eviction's (N-1.61).
func (c StatusConfig) ForPods(s machine.Sample, unenforced bool) corev1.ResourceList {
	out := c.Capacity(s)
	for name := range out {
		if !unenforced {
			take(out, name, c.Reserved(name))
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

// Allocatable is what the scheduler may give to pods (N-1.56 to N-1.58).
func (c StatusConfig) Allocatable(s machine.Sample) corev1.ResourceList {
	out := c.ForPods(s, false)
	take(out, corev1.ResourceMemory, bytesOf(c.Eviction.Hard(pressure.MemoryAvailable).Of(s.MemoryTotal)))
	take(out, corev1.ResourceEphemeralStorage, bytesOf(c.Eviction.Hard(pressure.NodeFSAvailable).Of(s.NodeFS.Capacity)))
	for _, n := range s.HugePages {
		take(out, corev1.ResourceMemory, bytesOf(n))
	}
	return out
}
