package lease

import (
	"cmp"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// Settings are the monitor's numbers. Zero means the default; a negative number is nothing at all, a negative rate never.
type Settings struct {
	Period       time.Duration // how often it looks at least: 5 s (N-3.1)
	Grace        time.Duration // 40 s (N-3.2)
	StartupGrace time.Duration // for a node that never posted: 60 s (N-3.1)

	EvictionRate          float64 // nodes per second: 0.1 (N-3.38)
	SecondaryEvictionRate float64 // in a large zone that is partly down: 0.01
	LargeZone             int     // more nodes than this make a zone large: 50
	UnhealthyThreshold    float64 // 0.55 (N-3.37)
	// FullDisruptionEvictions goes on tainting when every zone is down (N-3.43).
	FullDisruptionEvictions bool
}

func (s Settings) withDefaults() Settings {
	s.Period = cmp.Or(s.Period, 5*time.Second)
	s.Grace = cmp.Or(s.Grace, 40*time.Second)
	s.StartupGrace = cmp.Or(s.StartupGrace, time.Minute)
	s.EvictionRate = cmp.Or(s.EvictionRate, 0.1)
	s.SecondaryEvictionRate = cmp.Or(s.SecondaryEvictionRate, 0.01)
	s.LargeZone = cmp.Or(s.LargeZone, 50)
	s.UnhealthyThreshold = cmp.Or(s.UnhealthyThreshold, 0.55)
	return s
}

// Monitor remembers what it has seen of nodes. All of it is in memory only, so that after a restart every node gets
// a full fresh grace (N-3.5, N-3.11). It is for one goroutine.
type Monitor struct {
	s     Settings
	nodes map[string]*watched
	zones map[string]*zone
}

type watched struct {
	Health
	zone    string
	tainted time.Time // when NoExecute was last decided: the write needs a moment until it can be seen
	spared  time.Time // no NoExecute before this: all zones were down until lately (N-3.42)
}

// NewMonitor is an observer that has seen nothing yet.
func NewMonitor(s Settings) *Monitor {
	return &Monitor{s: s.withDefaults(), nodes: map[string]*watched{}, zones: map[string]*zone{}}
}

// Change is what should be written about one node.
type Change struct {
	Node  string
	Added bool // seen for the first time (N-3.4)
	// Silent: its conditions should turn Unknown; see Silence.
	Silent bool
	// Lost: the node was Ready until then (N-3.12).
	Lost    bool
	Execute Execute

	judged *corev1.NodeCondition // the Ready condition that Silent was decided on
}

// ZoneStatus describes a zone after a pass.
type ZoneStatus struct {
	Zone            string
	State, Was      ZoneState
	Ready, NotReady int
}

// Pass is what one look at everything came to.
type Pass struct {
	Changes []Change // by node name
	Gone    []string // nodes that vanished (N-3.4), by name
	Zones   []ZoneStatus
	Wake    time.Duration // look again after this long, or when a node changes
}

// sight is one node during a pass.
type sight struct {
	node   *corev1.Node
	after  *corev1.Node // as it will be once silenced: taints follow the new conditions in the same pass (N-3.21)
	ready  *corev1.NodeCondition
	change Change
}

// Step looks at all nodes and leases at one moment and says what to write. leases is by node name. Called again on
// the same sight at the same moment it repeats nothing but what has not been written yet.
func (m *Monitor) Step(nodes []*corev1.Node, leases map[string]*coordinationv1.Lease, now time.Time) Pass {
	var out Pass
	sights := make([]*sight, 0, len(nodes))
	present := make(map[string]*sight, len(nodes))
	for _, n := range nodes {
		s := m.look(n, leases[n.Name], now)
		sights = append(sights, s)
		present[n.Name] = s
	}
	slices.SortFunc(sights, func(a, b *sight) int { return cmp.Compare(a.node.Name, b.node.Name) })
	for _, name := range sortedKeys(m.nodes) {
		if present[name] == nil {
			out.Gone = append(out.Gone, name)
			delete(m.nodes, name)
		}
	}
	m.count(sights)
	for _, s := range sights {
		m.queue(s, now)
	}
	out.Zones = m.disruption(sights, now)
	out.Wake = m.release(present, now)
	for _, s := range sights {
		if s.change.Added || s.change.Silent || s.change.would(s.after, now) {
			out.Changes = append(out.Changes, s.change)
		}
	}
	return out
}

// look assesses one node.
func (m *Monitor) look(n *corev1.Node, lease *coordinationv1.Lease, now time.Time) *sight {
	s := &sight{node: n, after: n, ready: api.NodeCondition(n, corev1.NodeReady), change: Change{Node: n.Name}}
	w := m.nodes[n.Name]
	if w == nil {
		w = &watched{}
		m.nodes[n.Name] = w
		s.change.Added = true
		s.change.Execute = ExecuteNone // N-3.4
	}
	w.zone = ZoneOf(n)
	if m.zones[w.zone] == nil {
		m.zones[w.zone] = newZone(m.s, now)
	}
	w.Health, s.change.Silent = Assess(w.Health, n, lease, now, m.s)
	if s.change.Silent {
		s.change.judged = s.ready
		s.change.Lost = s.ready != nil && s.ready.Status == corev1.ConditionTrue
		after := *n
		after.Status.Conditions = unknown(n, now)
		s.after, s.ready = &after, api.NodeCondition(&after, corev1.NodeReady)
	}
	return s
}

// excludeLabel leaves a node out of its zone's statistics, not out of tainting (N-3.36).
const excludeLabel = "node.kubernetes.io/exclude-disruption"

// count fills the zones' numbers (N-3.37) and forgets zones that nobody is in.
func (m *Monitor) count(sights []*sight) {
	used := map[string]bool{}
	for _, z := range m.zones {
		z.ready, z.notReady = 0, 0
	}
	for _, s := range sights {
		key := m.nodes[s.node.Name].zone
		used[key] = true
		if _, excluded := s.node.Labels[excludeLabel]; excluded {
			continue
		}
		if s.ready != nil && s.ready.Status == corev1.ConditionTrue {
			m.zones[key].ready++
		} else {
			m.zones[key].notReady++
		}
	}
	for key := range m.zones {
		if !used[key] {
			delete(m.zones, key)
		}
	}
}

// queue decides about NoExecute for one node (N-3.17).
func (m *Monitor) queue(s *sight, now time.Time) {
	w := m.nodes[s.node.Name]
	for key, z := range m.zones {
		if key != w.zone {
			z.dequeue(s.node.Name) // it moved
		}
	}
	has, want := executing(s.node), due(s.ready)
	if s.change.Added {
		has = ExecuteNone
	}
	switch {
	case want == ExecuteKeep:
	case want != ExecuteNone && now.Before(w.spared):
		m.zones[w.zone].dequeue(s.node.Name)
	case want == ExecuteNone:
		m.zones[w.zone].dequeue(s.node.Name)
		s.change.Execute = ExecuteNone
	case has == want:
	case has != ExecuteNone:
		s.change.Execute = want // one of the two is swapped for the other at once
	case w.tainted.IsZero() || now.Sub(w.tainted) >= m.s.Period:
		m.zones[w.zone].enqueue(s.node.Name)
	}
}

// disruption moves zones between states (N-3.38 to N-3.43).
func (m *Monitor) disruption(sights []*sight, now time.Time) []ZoneStatus {
	var out []ZoneStatus
	all, were := true, true
	next := map[string]ZoneState{}
	for _, key := range sortedKeys(m.zones) {
		z := m.zones[key]
		if z.ready+z.notReady == 0 {
			continue // only nodes that do not count
		}
		next[key] = StateOf(z.ready, z.notReady, m.s)
		all = all && next[key] == ZoneFullDisruption
		were = were && z.state == ZoneFullDisruption
		out = append(out, ZoneStatus{Zone: key, State: next[key], Was: z.state, Ready: z.ready, NotReady: z.notReady})
	}
	stop := all && len(next) > 0 && !m.s.FullDisruptionEvictions
	resume := were && !all && len(next) > 0 && !m.s.FullDisruptionEvictions
	for key, state := range next {
		z := m.zones[key]
		switch {
		case stop:
			z.state = state
			z.limit.swap(0, now)
		case resume || z.state != state:
			z.enter(state, m.s, now)
		}
	}
	if stop {
		// Nothing answers: more likely it is us. Nobody is evicted (N-3.41).
		for _, s := range sights {
			s.change.Execute = ExecuteNone
		}
	}
	if resume {
		for _, w := range m.nodes {
			// N-3.42. Kubernetes sets the probe times only, so that a node which is Unknown already is tainted at once: a switch that
			// was off for ten minutes would cost a shed its pods.
			w.Probe, w.spared = now, now.Add(m.s.Grace)
		}
	}
	return out
}

// release lets queued nodes through as their zones' rates allow (N-3.39) and says when to look again.
func (m *Monitor) release(present map[string]*sight, now time.Time) time.Duration {
	wake := m.s.Period
	for _, key := range sortedKeys(m.zones) {
		z := m.zones[key]
		for len(z.queue) > 0 && z.limit.take(now) {
			name := z.queue[0]
			z.queue = z.queue[1:]
			if s := present[name]; s != nil { // the token is spent even if the node has gone
				s.change.Execute = due(s.ready)
				m.nodes[name].tainted = now
			}
		}
		if wait, ok := z.limit.wait(now); ok && len(z.queue) > 0 {
			wake = min(wake, wait)
		}
	}
	return wake
}
