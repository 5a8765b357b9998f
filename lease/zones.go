package lease

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ZoneState is how a zone fares as a whole (N-3.37).
type ZoneState string

// The zone states.
const (
	ZoneInitial           ZoneState = "Initial" // not looked at yet
	ZoneNormal            ZoneState = "Normal"
	ZonePartialDisruption ZoneState = "PartialDisruption"
	ZoneFullDisruption    ZoneState = "FullDisruption"
)

// ZoneOf is the key of a node's zone (N-3.35). All nodes that say nothing share the empty one.
func ZoneOf(node *corev1.Node) string {
	region := first(node.Labels, corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion)
	zone := first(node.Labels, corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone)
	if region == "" && zone == "" {
		return ""
	}
	return region + ":\x00:" + zone
}

func first(labels map[string]string, keys ...string) string {
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			return v
		}
	}
	return ""
}

// StateOf judges a zone by how many of its nodes are ready (N-3.37).
func StateOf(ready, notReady int, s Settings) ZoneState {
	switch {
	case ready == 0 && notReady > 0:
		return ZoneFullDisruption
	case notReady > 2 && float64(notReady)/float64(notReady+ready) >= s.UnhealthyThreshold:
		return ZonePartialDisruption
	}
	return ZoneNormal
}

// EvictionRate is how many nodes of a zone of that size may be tainted NoExecute per second (N-3.38).
func EvictionRate(state ZoneState, size int, s Settings) float64 {
	switch {
	case state != ZonePartialDisruption:
		return s.EvictionRate
	case size > s.LargeZone:
		return s.SecondaryEvictionRate
	}
	return 0
}

// bucket lets one node through at a time, at a rate per second.
type bucket struct {
	rate   float64
	tokens float64
	at     time.Time
}

func (b *bucket) level(now time.Time) float64 {
	return min(1, b.tokens+b.rate*now.Sub(b.at).Seconds())
}

func (b *bucket) take(now time.Time) bool {
	if b.rate <= 0 || b.level(now) < 1 {
		return false
	}
	b.tokens, b.at = 0, now
	return true
}

// swap changes the rate. A token that was used stays used: the new bucket starts empty if the old one was (N-3.40).
func (b *bucket) swap(rate float64, now time.Time) {
	full := b.rate > 0 && b.level(now) >= 1
	*b = bucket{rate: rate, at: now}
	if full {
		b.tokens = 1
	}
}

// wait is how long until the next node may pass; false when none ever will at this rate.
func (b *bucket) wait(now time.Time) (time.Duration, bool) {
	if b.rate <= 0 {
		return 0, false
	}
	// One nanosecond more than computed: rounding must not wake us just too early, again and again.
	return time.Duration((1-b.level(now))/b.rate*float64(time.Second)) + 1, true
}

// zone is what the monitor remembers of a zone.
type zone struct {
	state ZoneState
	limit bucket
	queue []string // nodes that wait for their NoExecute taint, in order (N-3.39)

	// Counted afresh in each pass.
	ready, notReady int
}

func newZone(s Settings, now time.Time) *zone {
	return &zone{state: ZoneInitial, limit: bucket{rate: s.EvictionRate, tokens: 1, at: now}}
}

func (z *zone) enter(state ZoneState, s Settings, now time.Time) {
	z.state = state
	z.limit.swap(EvictionRate(state, z.ready+z.notReady, s), now)
}

func (z *zone) enqueue(node string) {
	if !slices.Contains(z.queue, node) {
		z.queue = append(z.queue, node)
	}
}

func (z *zone) dequeue(node string) {
	z.queue = slices.DeleteFunc(z.queue, func(n string) bool { return n == node })
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
