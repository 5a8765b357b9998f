package controller

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"ledge/api"
	"ledge/lease"
)

// Metrics counts what the loops do, under Kubernetes' names (N-3.34, N-3.44, N-3.49).
type Metrics struct {
	mu      sync.Mutex
	evicted int64
	evict   api.Durations // from the end of the toleration to the deletion
	zones   []lease.ZoneStatus
	tainted map[string]int64 // nodes that got a NoExecute taint, by zone
	node    api.Durations
	all     api.Durations
	forced  map[forced]int64
	failed  map[forced]int64
}

type forced struct{ namespace, reason string }

// NewMetrics has counted nothing.
func NewMetrics() *Metrics {
	health := []float64{0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384}
	return &Metrics{tainted: map[string]int64{}, forced: map[forced]int64{}, failed: map[forced]int64{},
		evict: api.Durations{Bounds: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}},
		node:  api.Durations{Bounds: health}, all: api.Durations{Bounds: health}}
}

// note changes the numbers.
func (m *Metrics) note(change func(*Metrics)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *Metrics) forcedDelete(namespace, reason string, err error) {
	m.note(func(m *Metrics) {
		if err != nil {
			m.failed[forced{namespace, reason}]++
			return
		}
		m.forced[forced{namespace, reason}]++
	})
}

// Text is all of it in Prometheus' form.
func (m *Metrics) Text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var t api.MetricText
	t.Head("taint_eviction_controller_pod_deletions_total", "counter",
		"[ALPHA] Total number of Pods deleted by TaintEvictionController since its start.")
	t.Line("taint_eviction_controller_pod_deletions_total", float64(m.evicted))
	histogram := func(name, help string, d *api.Durations) {
		t.Head(name, "histogram", help)
		t.Histogram(name, d)
	}
	histogram("taint_eviction_controller_pod_deletion_duration_seconds",
		"[ALPHA] Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.", &m.evict)
	m.zoneText(&t)
	histogram("node_collector_update_node_health_duration_seconds",
		"[ALPHA] Duration in seconds for NodeController to update the health of a single node.", &m.node)
	histogram("node_collector_update_all_nodes_health_duration_seconds",
		"[ALPHA] Duration in seconds for NodeController to update the health of all nodes.", &m.all)
	for name, counts := range map[string]map[forced]int64{"pods_total": m.forced, "pod_errors_total": m.failed} {
		name = "pod_gc_collector_force_delete_" + name
		t.Head(name, "counter", "[ALPHA] Forced deletions of pods, by namespace and reason, since the start.")
		keys := slices.Collect(maps.Keys(counts))
		sort.Slice(keys, func(i, j int) bool {
			return cmp.Or(cmp.Compare(keys[i].namespace, keys[j].namespace), cmp.Compare(keys[i].reason, keys[j].reason)) < 0
		})
		for _, key := range keys {
			t.Line(name, float64(counts[key]), "namespace", key.namespace, "reason", key.reason)
		}
	}
	return t.String()
}

func (m *Metrics) zoneText(t *api.MetricText) {
	zone := func(key string) string { return strings.ReplaceAll(key, "\x00", "") } // as text may be
	gauge := func(name, help string, of func(lease.ZoneStatus) int) {
		t.Head(name, "gauge", help)
		for _, z := range m.zones {
			t.Line(name, float64(of(z)), "zone", zone(z.Zone))
		}
	}
	gauge("node_collector_zone_size", "[ALPHA] Gauge measuring number of registered Nodes per zones.",
		func(z lease.ZoneStatus) int { return z.Ready + z.NotReady })
	gauge("node_collector_zone_health", "[ALPHA] Gauge measuring percentage of healthy nodes per zone.",
		func(z lease.ZoneStatus) int { return 100 * z.Ready / (z.Ready + z.NotReady) })
	gauge("node_collector_unhealthy_nodes_in_zone", "[ALPHA] Gauge measuring number of not Ready Nodes per zones.",
		func(z lease.ZoneStatus) int { return z.NotReady })
	t.Head("node_collector_evictions_total", "counter",
		"[STABLE] Number of Node evictions that happened since current instance of NodeController started.")
	for _, key := range slices.Sorted(maps.Keys(m.tainted)) {
		t.Line("node_collector_evictions_total", float64(m.tainted[key]), "zone", zone(key))
	}
}

// timed calls do and says how long it took.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}
