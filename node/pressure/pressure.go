// Package pressure decides whether the board is short of memory, disk or process numbers, and who has to go then. It is
// pure: functions of what was seen and the time. Effects are the agent's (package node).
//
//	readings --> Step --> conditions of the Node
//	                  \-> thresholds due --> free what nobody needs --> Rank --> one pod, with Message
//	a new pod, conditions --> Admit
package pressure

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal names a reading (N-6.1).
type Signal string

// The signals, as configuration files spell them.
const (
	MemoryAvailable       Signal = "memory.available"
	AllocatableMemory     Signal = "allocatableMemory.available" // of all pods together; never configured
	NodeFSAvailable       Signal = "nodefs.available"
	NodeFSInodesFree      Signal = "nodefs.inodesFree"
	ImageFSAvailable      Signal = "imagefs.available"
	ImageFSInodesFree     Signal = "imagefs.inodesFree"
	ContainerFSAvailable  Signal = "containerfs.available" // of writable layers; derived, never configured
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	PIDAvailable          Signal = "pid.available"
)

// Signals is all of them in the order in which they are answered when several are short: memory first (N-6.18).
var Signals = []Signal{MemoryAvailable, AllocatableMemory, NodeFSAvailable, NodeFSInodesFree, ImageFSAvailable, ImageFSInodesFree,
	ContainerFSAvailable, ContainerFSInodesFree, PIDAvailable}

// Conditions says which condition of the Node a signal raises.
var Conditions = map[Signal]corev1.NodeConditionType{
	MemoryAvailable:       corev1.NodeMemoryPressure,
	AllocatableMemory:     corev1.NodeMemoryPressure,
	NodeFSAvailable:       corev1.NodeDiskPressure,
	NodeFSInodesFree:      corev1.NodeDiskPressure,
	ImageFSAvailable:      corev1.NodeDiskPressure,
	ImageFSInodesFree:     corev1.NodeDiskPressure,
	ContainerFSAvailable:  corev1.NodeDiskPressure,
	ContainerFSInodesFree: corev1.NodeDiskPressure,
	PIDAvailable:          corev1.NodePIDPressure,
}

// What a board can be short of, as messages and events name it (N-6.33).
const (
	Memory  corev1.ResourceName = "memory"
	Storage corev1.ResourceName = "ephemeral-storage"
	Inodes  corev1.ResourceName = "inodes"
	PIDs    corev1.ResourceName = "pids"
)

// Resource is what a signal is about.
func (s Signal) Resource() corev1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemory:
		return Memory
	case NodeFSInodesFree, ImageFSInodesFree, ContainerFSInodesFree:
		return Inodes
	case PIDAvailable:
		return PIDs
	}
	return Storage
}

// Disk says whether space on a disk is what the signal is about: then files can be removed before pods.
func (s Signal) Disk() bool { return Conditions[s] == corev1.NodeDiskPressure }

// Limit is an amount, or a share of the capacity; with both, the smaller of the two.
type Limit struct {
	Amount int64
	// Percent is kept as a 32-bit float of the share, as Kubernetes does, so that the derived numbers agree
	// to the byte (N-1.59).
	Percent float32
	Format  resource.Format // in which the amount was given
}

// Of is the limit as an amount, for a capacity.
func (l Limit) Of(capacity int64) int64 {
	share := int64(float64(capacity) * float64(l.Percent))
	switch {
	case l.Percent == 0:
		return l.Amount
	case l.Amount == 0:
		return share
	}
	return min(l.Amount, share)
}

// quantity is the same for people to read.
func (l Limit) quantity(capacity int64) *resource.Quantity {
	if l.Percent == 0 && l.Format != "" {
		return resource.NewQuantity(l.Amount, l.Format)
	}
	return resource.NewQuantity(l.Of(capacity), resource.BinarySI)
}

// Threshold is met when less is available than it says.
type Threshold struct {
	Signal  Signal
	Below   Limit
	Reclaim Limit // above Below, before one that was met counts as resolved (N-6.13)
	Soft    bool
	Grace   time.Duration // of a soft one: how long it has to be met before a pod goes (N-6.19)
}

// Met is strict: equal is not less (N-6.11).
func (t Threshold) Met(r Reading) bool { return r.Available < t.Below.Of(r.Capacity) }

// Unresolved is Met with the minimum reclaim on top.
func (t Threshold) Unresolved(r Reading) bool {
	return r.Available-t.Reclaim.Of(r.Capacity) < t.Below.Of(r.Capacity) // the sum of the two may be too large for an int64
}

// key tells thresholds apart: a signal has one hard and one soft at most.
type key struct {
	signal Signal
	soft   bool
}

func (t Threshold) key() key { return key{t.Signal, t.Soft} }

// Reading is one signal as observed. A signal that could not be read is absent (N-6.7).
type Reading struct {
	Available, Capacity int64
	At                  time.Time
}

// Readings are the signals of one moment.
type Readings map[Signal]Reading

// Policy is when the board is short, and how it answers. The zero value is the default.
type Policy struct {
	Thresholds  []Threshold   // as configured; nil: Default's
	Transition  time.Duration // how long a condition stays True after it was last seen (N-6.14, N-6.19); 0: 5 min, less: not at all
	MaxPodGrace time.Duration // what a pod gets that goes for a soft threshold (N-6.31)
}

// Transition is the default of Policy.Transition.
const Transition = 5 * time.Minute

// MonitorPeriod is how often a look is taken when nothing is near (N-6.14).
const MonitorPeriod = 10 * time.Second

// Default returns the policy of a board without configuration (N-6.8, N-6.10). Kubernetes' 100 MiB of memory are
// meant for servers; on a board of 256 MB they would keep nearly half of the memory from the pods. So the line is the
// smaller of 100 MiB and a tenth of the RAM.
func Default() Policy {
	return Policy{Thresholds: []Threshold{
		{Signal: MemoryAvailable, Below: Limit{Amount: 100 << 20, Percent: 0.10}},
		{Signal: NodeFSAvailable, Below: Limit{Percent: 0.10}},
		{Signal: NodeFSInodesFree, Below: Limit{Percent: 0.05}},
		{Signal: ImageFSAvailable, Below: Limit{Percent: 0.15}},
		{Signal: ImageFSInodesFree, Below: Limit{Percent: 0.05}},
		{Signal: PIDAvailable, Below: Limit{Percent: 0.05}},
	}, Transition: Transition}
}

// WithDefaults fills in what is not said.
func (p Policy) WithDefaults() Policy {
	if p.Thresholds == nil {
		p.Thresholds = Default().Thresholds
	}
	if p.Transition == 0 {
		p.Transition = Transition
	}
	return p
}

// Hard is the hard threshold of a signal; zero: there is none.
func (p Policy) Hard(s Signal) Limit {
	for _, t := range p.Thresholds {
		if t.Signal == s && !t.Soft {
			return t.Below
		}
	}
	return Limit{}
}

// ownPrograms is what the programs of a small board have mapped at most, systemd's and ledge's, when it begins to stand still.
const ownPrograms = 48 << 20

// Spare is memory.available where we go by the kernel's MemAvailable. The kernel calls the file pages available that processes have
// mapped, but most of them are programs at work, which read them again at once: a small board would stand still above its line. So some
// of those pages count as used: as many bytes as the hard threshold says, and up to twice as many where the board's own programs need
// more than that. The rest counts as available: a database that maps its file has page cache and nothing else.
func (p Policy) Spare(available, mapped, total int64) int64 {
	line := p.Hard(MemoryAvailable).Of(total)
	return available - max(0, min(mapped, max(line, min(2*line, ownPrograms))))
}

// Layout says what stands on which file system (N-6.17). That images have one of their own without writable layers
// does not happen here: the two are never apart.
type Layout int

// The layouts.
const (
	OneDisk   Layout = iota
	ImageDisk        // images and writable layers are on another disk than logs and volumes
)

// All returns every threshold to check: the configured ones and those derived from them. enforced means that a cgroup
// limits all pods together (N-6.15).
func (p Policy) All(layout Layout, enforced bool) []Threshold {
	source := map[Signal]Signal{NodeFSAvailable: ContainerFSAvailable, NodeFSInodesFree: ContainerFSInodesFree} // N-6.16
	if layout == ImageDisk {
		source = map[Signal]Signal{ImageFSAvailable: ContainerFSAvailable, ImageFSInodesFree: ContainerFSInodesFree}
	}
	var out []Threshold
	for _, s := range Signals {
		for _, t := range p.Thresholds {
			from := t.Signal
			switch {
			case from == s:
			case source[from] == s:
				t.Signal = s
			case s == AllocatableMemory && from == MemoryAvailable && enforced && !t.Soft:
				t.Signal = s
			default:
				continue
			}
			out = append(out, t)
		}
	}
	return out
}
