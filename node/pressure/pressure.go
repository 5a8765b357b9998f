// Package pressure decides whether the board is short of memory, disk or PIDs. It is pure: Step takes what was
// seen and the time. Evicting pods is later work; what is here raises and clears the Node's conditions.
package pressure

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Signal names a reading (N-6.1).
type Signal string

// The signals, as configuration files spell them.
const (
	MemoryAvailable   Signal = "memory.available"
	NodeFSAvailable   Signal = "nodefs.available"
	NodeFSInodesFree  Signal = "nodefs.inodesFree"
	ImageFSAvailable  Signal = "imagefs.available"
	ImageFSInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

// Conditions says which condition of the Node a signal raises.
var Conditions = map[Signal]corev1.NodeConditionType{
	MemoryAvailable:   corev1.NodeMemoryPressure,
	NodeFSAvailable:   corev1.NodeDiskPressure,
	NodeFSInodesFree:  corev1.NodeDiskPressure,
	ImageFSAvailable:  corev1.NodeDiskPressure,
	ImageFSInodesFree: corev1.NodeDiskPressure,
	PIDAvailable:      corev1.NodePIDPressure,
}

// Threshold is met when less than this is available: an amount, or a share of the capacity.
type Threshold struct {
	Amount int64
	// Percent is kept as a 32-bit float of the share, as Kubernetes does, so that the derived numbers agree
	// to the byte (N-1.59).
	Percent float32
}

// Of is the threshold as an amount, for a capacity.
func (t Threshold) Of(capacity int64) int64 {
	if t.Percent > 0 {
		return int64(float64(capacity) * float64(t.Percent))
	}
	return t.Amount
}

// DefaultHard are the thresholds that hold when nothing is configured (N-6.8, N-6.10).
func DefaultHard() map[Signal]Threshold {
	return map[Signal]Threshold{
		MemoryAvailable:   {Amount: 100 << 20},
		NodeFSAvailable:   {Percent: 0.10},
		NodeFSInodesFree:  {Percent: 0.05},
		ImageFSAvailable:  {Percent: 0.15},
		ImageFSInodesFree: {Percent: 0.05},
		PIDAvailable:      {Percent: 0.05},
	}
}

// Reading is one signal as observed. A signal that could not be read is absent (N-6.7).
type Reading struct{ Available, Capacity int64 }

// Readings are the signals of one moment.
type Readings map[Signal]Reading

// Transition is how long a condition stays True after it was last seen (N-6.14, N-6.19).
const Transition = 5 * time.Minute

// State is what Step remembers: when each condition was last seen.
type State struct {
	Last map[corev1.NodeConditionType]time.Time
}

// Step takes one look. The result says for each condition whether it holds.
func Step(s State, hard map[Signal]Threshold, seen Readings, now time.Time) (State, map[corev1.NodeConditionType]bool) {
	next := State{Last: maps.Clone(s.Last)}
	if next.Last == nil {
		next.Last = map[corev1.NodeConditionType]time.Time{}
	}
	for sig, t := range hard {
		r, ok := seen[sig]
		if !ok || r.Capacity <= 0 {
			continue
		}
		if r.Available < t.Of(r.Capacity) { // strictly less: N-6.11
			next.Last[Conditions[sig]] = now
		}
	}
	out := map[corev1.NodeConditionType]bool{}
	for _, c := range Conditions {
		last, seen := next.Last[c]
		out[c] = seen && now.Sub(last) < Transition
	}
	return next, out
}
