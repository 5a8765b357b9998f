package pressure

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is what Step remembers from one look to the next.
type State struct {
	First map[key]time.Time                      // since when a threshold has been met
	Due   map[key]bool                           // it was, for its whole grace, at the last look
	Last  map[corev1.NodeConditionType]time.Time // when a condition was last seen
	Since map[corev1.NodeConditionType]time.Time // since when it holds
	Read  map[Signal]time.Time                   // the newest readings that were looked at
}

// Verdict is what one look has found.
type Verdict struct {
	Conditions map[corev1.NodeConditionType]bool
	// Due are the thresholds that are to be answered now, the one that goes first at the front.
	Due []Threshold
}

// Step takes one look: N-6.18, 1 to 7 and 9. all is from Policy.All.
func (p Policy) Step(s State, all []Threshold, seen Readings, now time.Time) (State, Verdict) {
	next := State{First: map[key]time.Time{}, Due: map[key]bool{}, Last: map[corev1.NodeConditionType]time.Time{},
		Since: map[corev1.NodeConditionType]time.Time{}, Read: map[Signal]time.Time{}}
	out := Verdict{Conditions: map[corev1.NodeConditionType]bool{}}
	short := map[corev1.NodeConditionType]bool{} // at this look
	for c, at := range s.Last {
		next.Last[c] = at
	}
	for _, t := range all {
		k := t.key()
		first, known := s.First[k]
		r, read := seen[t.Signal]
		if !read || r.Capacity <= 0 { // it decides nothing, and what was decided stays (N-6.7)
			if known {
				next.First[k], next.Due[k] = first, s.Due[k]
			}
			continue
		}
		next.Read[t.Signal] = r.At
		if !t.Met(r) && !(s.Due[k] && t.Unresolved(r)) {
			continue
		}
		if !known {
			first = now
		}
		next.First[k] = first
		next.Last[Conditions[t.Signal]], short[Conditions[t.Signal]] = now, true
		if now.Sub(first) < t.Grace {
			continue
		}
		next.Due[k] = true
		if old, ok := s.Read[t.Signal]; !ok || r.At.After(old) {
			out.Due = append(out.Due, t)
		}
	}
	for _, c := range Conditions {
		last, known := next.Last[c]
		if out.Conditions[c] = short[c] || known && now.Sub(last) < p.Transition; !out.Conditions[c] {
			delete(next.Last, c)
			continue
		}
		if next.Since[c] = now; !s.Since[c].IsZero() {
			next.Since[c] = s.Since[c]
		}
	}
	return next, out
}

// MetSince says since when a threshold has been met; zero: it is not.
func (s State) MetSince(t Threshold) time.Time { return s.First[t.key()] }

// Short says whether any threshold is met, minimum reclaim included: what was freed is not enough yet (N-6.18, 11).
func Short(all []Threshold, seen Readings) bool {
	for _, t := range all {
		if r, ok := seen[t.Signal]; ok && r.Capacity > 0 && t.Unresolved(r) {
			return true
		}
	}
	return false
}

// Dire says that of a hard threshold there is not even half left: nobody waits politely then.
func Dire(all []Threshold, seen Readings) bool {
	for _, t := range all {
		if r, ok := seen[t.Signal]; ok && !t.Soft && r.Capacity > 0 && r.Available < t.Below.Of(r.Capacity)/2 {
			return true
		}
	}
	return false
}

// How often memory is glanced at between two looks.
const (
	GlanceMost     = time.Second            // when no threshold is near
	GlanceMostTold = 5 * time.Second        // the same where the kernel tells when tasks wait for memory
	GlanceLeast    = 250 * time.Millisecond // when less than twice what a threshold asks for is there
	// GlanceRate is how many bytes a second may be used up without a glance being missed on the way from twice a threshold
	// to it: more than a pod can use up and still be evicted before the kernel has to kill.
	GlanceRate = 128 << 20
)

// News says whether a threshold is met that was not at the last look: then the next look shall not wait.
func News(all []Threshold, s State, seen Readings) bool {
	for _, t := range all {
		if r, ok := seen[t.Signal]; ok && r.Capacity > 0 && t.Met(r) && s.MetSince(t).IsZero() {
			return true
		}
	}
	return false
}

// GlanceAgain is how long a glance is good for, at most most: what GlanceRate takes until there is but twice what a
// threshold asks for.
func GlanceAgain(all []Threshold, seen Readings, most time.Duration) time.Duration {
	again := most
	for _, t := range all {
		r, ok := seen[t.Signal]
		if !ok || r.Capacity <= 0 {
			continue
		}
		if spare := float64(r.Available) - 2*float64(t.Below.Of(r.Capacity)); spare < again.Seconds()*GlanceRate {
			again = max(GlanceLeast, time.Duration(spare/GlanceRate*float64(time.Second)))
		}
	}
	return again
}

// How often disks and processes are looked at between two looks at everything.
const (
	RoomLeast = time.Second // also when the kernel tells that tasks wait for a disk or a processor
	RoomMost  = GlanceMostTold
)

// roomRates are how much a second may be used up without its line being passed unseen: bytes by a fast card or a USB disk,
// inodes by a program that makes empty files, processes by a fork bomb on a small board. Who is faster makes others wait for the
// disk or the processor, which the kernel tells.
var roomRates = map[corev1.ResourceName]float64{Storage: 128 << 20, Inodes: 10_000, PIDs: 500}

// RoomAgain is how long a look at disks and processes is good for: as long as they take, at these rates, to the nearest line that
// is not met.
func RoomAgain(all []Threshold, seen Readings) time.Duration {
	again := RoomMost
	for _, t := range all {
		r, ok := seen[t.Signal]
		rate, room := roomRates[t.Signal.Resource()]
		if !ok || !room || r.Capacity <= 0 || t.Met(r) {
			continue
		}
		if spare := float64(r.Available - t.Below.Of(r.Capacity)); spare < again.Seconds()*rate {
			again = max(RoomLeast, time.Duration(spare/rate*float64(time.Second)))
		}
	}
	return again
}

// PodsAtLeast is what all pods together have left of their limit at the least, going by the board alone: they cannot have
// used more of it than is used of all memory.
func PodsAtLeast(board Reading, limit int64) Reading {
	return Reading{Available: limit - (board.Capacity - board.Available), Capacity: limit, At: board.At}
}
