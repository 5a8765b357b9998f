package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/testrun"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fleet is a little control plane: it keeps nodes and leases, and writes what the monitor says.
type fleet struct {
	m      *Monitor
	now    time.Time
	nodes  map[string]*corev1.Node
	leases map[string]*coordinationv1.Lease
	log    []string // "12s n1 NoExecute not-ready"
	last   Pass
}

func newFleet(s Settings) *fleet {
	return &fleet{m: NewMonitor(s), now: epoch, nodes: map[string]*corev1.Node{}, leases: map[string]*coordinationv1.Lease{}}
}

func (f *fleet) add(name string, labels map[string]string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(f.now)}}
	f.nodes[name] = n
	f.post(name, ready)
	return f.nodes[name]
}

// post is the agent's status heartbeat; "" leaves the Ready condition out.
func (f *fleet) post(name string, ready corev1.ConditionStatus) {
	if ready == "" {
		return
	}
	n := f.nodes[name].DeepCopy()
	f.nodes[name] = n
	c := api.NodeCondition(n, corev1.NodeReady)
	if c == nil {
		for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
			corev1.NodeReady} {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse})
		}
		c = api.NodeCondition(n, corev1.NodeReady)
	}
	for i := range n.Status.Conditions {
		o := &n.Status.Conditions[i]
		o.LastHeartbeatTime, o.Reason, o.Message = metav1.NewTime(f.now), "Kubelet", ""
		if o.Status == corev1.ConditionUnknown {
			o.Status = corev1.ConditionFalse
		}
	}
	c.Status = ready
}

// renew is the agent's lease heartbeat, stamped with whatever the agent believes the time to be.
func (f *fleet) renew(name string, stamp time.Time) {
	f.leases[name] = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: stamp}}}
}

func (f *fleet) step() Pass {
	var list []*corev1.Node
	for _, n := range f.nodes {
		list = append(list, n)
	}
	f.last = f.m.Step(list, f.leases, f.now)
	for _, c := range f.last.Changes {
		n := f.nodes[c.Node].DeepCopy()
		before := executing(n)
		if c.Silence(n, f.now) {
			f.logf("%s silent lost=%v", c.Node, c.Lost)
		}
		c.Apply(n, f.now)
		if after := executing(n); after != before {
			f.logf("%s %s", c.Node, after)
		}
		f.nodes[c.Node] = n
	}
	return f.last
}

func (f *fleet) logf(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf("%v ", f.now.Sub(epoch))+fmt.Sprintf(format, args...))
}

// run goes on for d, looking whenever the monitor asks to, with the beats of alive nodes every 10 s.
func (f *fleet) run(d time.Duration, alive ...string) {
	end := f.now.Add(d)
	for f.now.Before(end) {
		f.step()
		next := f.now.Add(f.last.Wake)
		if next.After(end) {
			next = end
		}
		f.now = next
		for _, name := range alive {
			if l := f.leases[name]; l == nil || f.now.Sub(l.Spec.RenewTime.Time) >= 10*time.Second {
				f.renew(name, f.now)
			}
		}
	}
}

func (f *fleet) taintsOf(name string) []string {
	var out []string
	for _, t := range f.nodes[name].Spec.Taints {
		if t.TimeAdded == nil {
			out = append(out, "no time!")
		}
		out = append(out, t.Key+":"+string(t.Effect))
	}
	slices.Sort(out)
	return out
}

// TestSilenceAfterGrace: N-3.1, N-3.2, N-3.8, N-3.10, N-3.11.
// All that is remembered is in memory (N-3.5); it is the control plane that says Unknown (N-1.53).
func TestSilenceAfterGrace(t *testing.T) {
	f := newFleet(Settings{})
	f.add("n", nil, corev1.ConditionTrue)
	f.step()
	f.now = epoch.Add(40 * time.Second)
	if p := f.step(); len(p.Changes) != 0 {
		t.Fatalf("at exactly the grace: %+v", p.Changes)
	}
	f.now = f.now.Add(time.Nanosecond)
	p := f.step()
	if len(p.Changes) != 1 || !p.Changes[0].Silent || !p.Changes[0].Lost {
		t.Fatalf("after the grace: %+v", p.Changes)
	}
	for _, c := range f.nodes["n"].Status.Conditions {
		if c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusUnknown" || c.Message != "Kubelet stopped posting node status." ||
			!c.LastTransitionTime.Time.Equal(f.now) || !c.LastHeartbeatTime.Time.Equal(epoch) {
			t.Errorf("condition %+v", c)
		}
	}
	for range 5 {
		f.now = f.now.Add(time.Minute)
		if p := f.step(); len(p.Changes) != 0 {
			t.Fatalf("said twice: %+v", p.Changes)
		}
	}
	// A new observer does not know since when (N-3.11), but Unknown stays Unknown until the node is heard.
	f.m = NewMonitor(Settings{})
	f.step()
	if r := api.NodeCondition(f.nodes["n"], corev1.NodeReady); r.Status != corev1.ConditionUnknown {
		t.Errorf("restart made it %s", r.Status)
	}
	f.post("n", corev1.ConditionTrue)
	f.step()
	if got := f.taintsOf("n"); len(got) != 0 {
		t.Errorf("heard again, still %v", got)
	}
}

// TestNeverPosted: N-3.6, N-3.8, N-3.10, N-3.15 for a node made by hand.
func TestNeverPosted(t *testing.T) {
	f := newFleet(Settings{})
	f.add("n", nil, "")
	f.nodes["n"].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}}
	f.step()
	f.now = epoch.Add(60 * time.Second)
	if f.step(); api.NodeCondition(f.nodes["n"], corev1.NodeReady) != nil {
		t.Fatal("the startup grace is 60 s")
	}
	f.now = f.now.Add(time.Second)
	f.step()
	n := f.nodes["n"]
	if len(n.Status.Conditions) != 5 || api.NodeCondition(n, corev1.NodeNetworkUnavailable).Status != corev1.ConditionTrue {
		t.Fatalf("conditions %+v", n.Status.Conditions)
	}
	for _, c := range n.Status.Conditions[1:] {
		if c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusNeverUpdated" || c.Message != "Kubelet never posted node status." ||
			!c.LastHeartbeatTime.Time.Equal(epoch) {
			t.Errorf("condition %+v", c)
		}
	}
	want := []string{"node.kubernetes.io/network-unavailable:NoSchedule", "node.kubernetes.io/unreachable:NoSchedule"}
	if got := f.taintsOf("n"); !slices.Equal(got, want) {
		t.Errorf("taints %v, want %v", got, want)
	}
	f.run(10 * time.Minute)
	if len(f.log) != 1 {
		t.Errorf("its own writing was taken for a sign of life: %v", f.log)
	}

	g := newFleet(Settings{})
	g.add("n", nil, "")
	g.run(10*time.Minute, "n") // renews, never posts
	if len(g.log) != 0 || api.NodeCondition(g.nodes["n"], corev1.NodeReady) != nil {
		t.Errorf("N-3.10: a renewed lease is a sign of life: %v", g.log)
	}
}

// TestSignsOfLife: either heartbeat is enough, and the times written in them are only compared for change, so that a
// clock that jumps hours in either direction harms nobody (N-2.17, N-3.7, architecture: Observer's clock).
func TestSignsOfLife(t *testing.T) {
	for _, jump := range []time.Duration{-48 * time.Hour, 0, 48 * time.Hour, -56 * 365 * 24 * time.Hour} {
		byLease, byStatus := newFleet(Settings{}), newFleet(Settings{})
		byLease.add("n", nil, corev1.ConditionTrue)
		byStatus.add("n", nil, corev1.ConditionTrue)
		for i := range 60 {
			stamp := epoch.Add(time.Duration(i) * 10 * time.Second)
			if i > 30 {
				stamp = stamp.Add(jump)
			}
			byLease.renew("n", stamp)
			byLease.step()
			byLease.now = byLease.now.Add(30 * time.Second)
			byStatus.post("n", corev1.ConditionTrue)
			api.NodeCondition(byStatus.nodes["n"], corev1.NodeReady).LastHeartbeatTime = metav1.NewTime(stamp)
			byStatus.step()
			byStatus.now = byStatus.now.Add(30 * time.Second)
		}
		if len(byLease.log)+len(byStatus.log) != 0 {
			t.Errorf("jump of %s: %v %v", jump, byLease.log, byStatus.log)
		}
		byLease.now = byLease.now.Add(time.Minute) // a stamp far in the future does not help a dead node
		byLease.step()
		if len(byLease.log) == 0 {
			t.Errorf("jump of %s: dead and not noticed", jump)
		}
	}
}

// TestSilenceOnNewerNode: what was decided on an old reading is not applied to a newer one (N-3.9).
func TestSilenceOnNewerNode(t *testing.T) {
	f := newFleet(Settings{})
	f.add("n", nil, corev1.ConditionTrue)
	f.step()
	f.now = f.now.Add(time.Minute)
	p := f.m.Step([]*corev1.Node{f.nodes["n"]}, nil, f.now)
	f.post("n", corev1.ConditionTrue)
	if p.Changes[0].Silence(f.nodes["n"], f.now) {
		t.Error("silenced a node that has just been heard")
	}
	c := Change{Execute: ExecuteUnreachable}
	if c.Apply(f.nodes["n"], f.now); len(f.nodes["n"].Spec.Taints) != 0 {
		t.Error("tainted a node that has just been heard")
	}
}

// TestQueueOrder: lost nodes are tainted one per 10 s in the order they were lost; the two taints exclude each other
// and are swapped at once; Ready removes them (N-3.16, N-3.17, N-3.39).
func TestQueueOrder(t *testing.T) {
	f := newFleet(Settings{})
	alive := []string{"a", "b", "c", "d", "e"}
	for _, n := range append(alive, "x", "y", "z") {
		f.add(n, nil, corev1.ConditionTrue)
	}
	f.run(20*time.Second, append(alive, "x", "y")...)
	f.run(5*time.Minute, append(alive, "x")...)
	want := []string{"45s z silent lost=true", "45s z node.kubernetes.io/unreachable",
		"1m0s y silent lost=true", "1m0s y node.kubernetes.io/unreachable"}
	if !slices.Equal(f.log, want) {
		t.Fatalf("log %q", f.log)
	}
	if got := f.taintsOf("z"); !slices.Equal(got,
		[]string{"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"}) {
		t.Errorf("taints of z: %v", got)
	}
	f.log = nil
	f.post("y", corev1.ConditionFalse)
	f.post("z", corev1.ConditionFalse)
	f.step()
	if len(f.log) != 2 || !strings.HasSuffix(f.log[0], "not-ready") {
		t.Errorf("no swap at once: %q", f.log)
	}
	f.post("z", corev1.ConditionTrue)
	f.step()
	if got := f.taintsOf("z"); len(got) != 0 {
		t.Errorf("ready again, taints %v", got)
	}
}

// TestOneAtATime: nodes lost together are tainted one per 10 s, the first at once (N-3.38, N-3.39).
func TestOneAtATime(t *testing.T) {
	f := newFleet(Settings{})
	var alive []string
	for _, n := range []string{"a", "b", "c", "d"} {
		f.add(n, nil, corev1.ConditionTrue)
		alive = append(alive, n)
	}
	for _, n := range []string{"x", "y", "z"} {
		f.add(n, nil, corev1.ConditionTrue)
	}
	f.run(3*time.Minute, alive...)
	var got []string
	for _, l := range f.log {
		if strings.HasSuffix(l, "unreachable") {
			got = append(got, strings.Fields(l)[1])
			at, err := time.ParseDuration(strings.Fields(l)[0])
			if want := 45*time.Second + time.Duration(len(got)-1)*10*time.Second; err != nil || at < want || at > want+time.Millisecond {
				t.Errorf("%s, want at %s", l, want)
			}
		}
	}
	if !slices.Equal(got, []string{"x", "y", "z"}) {
		t.Errorf("order %v", got)
	}
}

// TestSingleNode: N-3.43. A lone board that is lost is never evicted, and NoSchedule tells the truth all the same.
func TestSingleNode(t *testing.T) {
	f := newFleet(Settings{})
	f.add("n", nil, corev1.ConditionTrue)
	f.run(time.Hour)
	if len(f.log) != 1 || f.log[0] != "45s n silent lost=true" {
		t.Errorf("log %q", f.log)
	}
	if got := f.taintsOf("n"); !slices.Equal(got, []string{"node.kubernetes.io/unreachable:NoSchedule"}) {
		t.Errorf("taints %v", got)
	}
	g := newFleet(Settings{FullDisruptionEvictions: true})
	g.add("n", nil, corev1.ConditionTrue)
	g.run(time.Hour)
	if len(g.log) != 2 {
		t.Errorf("with the switch: %q", g.log)
	}
}

// TestFullDisruption: N-3.41 and N-3.42.
func TestFullDisruption(t *testing.T) {
	f := newFleet(Settings{})
	zone := func(z string) map[string]string { return map[string]string{corev1.LabelTopologyZone: z} }
	for _, n := range []string{"a1", "a2"} {
		f.add(n, zone("a"), corev1.ConditionTrue)
	}
	for _, n := range []string{"b1", "b2"} {
		f.add(n, zone("b"), corev1.ConditionTrue)
	}
	f.run(time.Minute, "a1", "b1", "b2") // a2 is lost, zone a is not full
	if executing(f.nodes["a2"]) != ExecuteUnreachable {
		t.Fatalf("a2 not tainted: %q", f.log)
	}
	f.run(2 * time.Minute) // now nobody answers
	for name, n := range f.nodes {
		if executing(n) != ExecuteNone {
			t.Errorf("%s is evicted while all zones are down", name)
		}
		if r := api.NodeCondition(n, corev1.NodeReady); r.Status != corev1.ConditionUnknown {
			t.Errorf("%s is %s", name, r.Status)
		}
	}
	// One comes back: everyone gets a full fresh grace, then the rest follow one by one.
	f.log = nil
	f.post("b1", corev1.ConditionTrue)
	f.add("c1", zone("b"), corev1.ConditionTrue) // posts once, then falls silent: fresh grace from now
	back := f.now.Sub(epoch)
	f.run(39*time.Second, "b1")
	for _, l := range f.log {
		if strings.HasSuffix(l, "lost=true") || strings.HasSuffix(l, "unreachable") {
			t.Errorf("no fresh grace: %q (back at %s)", f.log, back)
		}
	}
	f.run(2*time.Minute, "b1")
	for _, n := range []string{"a1", "a2", "b2"} {
		if executing(f.nodes[n]) != ExecuteUnreachable {
			t.Errorf("%s never tainted: %q", n, f.log)
		}
	}
}

// TestExcludedNodes: N-3.36.
func TestExcludedNodes(t *testing.T) {
	f := newFleet(Settings{})
	f.add("n", map[string]string{"node.kubernetes.io/exclude-disruption": ""}, corev1.ConditionFalse)
	f.add("m", nil, corev1.ConditionTrue)
	p := f.step()
	if len(p.Zones) != 1 || p.Zones[0].Ready != 1 || p.Zones[0].NotReady != 0 {
		t.Errorf("zones %+v", p.Zones)
	}
	if executing(f.nodes["n"]) != ExecuteNotReady {
		t.Error("left out of statistics, not of tainting")
	}
}

// TestComingAndGoing: N-3.4.
func TestComingAndGoing(t *testing.T) {
	f := newFleet(Settings{})
	f.add("n", nil, corev1.ConditionTrue).Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	f.add("m", nil, corev1.ConditionTrue)
	if p := f.step(); len(p.Changes) != 2 || !p.Changes[0].Added || !p.Changes[1].Added {
		t.Errorf("changes %+v", p.Changes)
	}
	if executing(f.nodes["n"]) != ExecuteNone {
		t.Error("first sight removes NoExecute health taints")
	}
	delete(f.nodes, "n")
	if p := f.step(); !slices.Equal(p.Gone, []string{"n"}) {
		t.Errorf("gone %v", p.Gone)
	}
	if p := f.step(); len(p.Gone) != 0 || len(p.Changes) != 0 {
		t.Errorf("said twice: %+v", p)
	}
}

// TestWritesThatFail: what was not written is said again; what was, but cannot be seen yet, costs no second token.
func TestWritesThatFail(t *testing.T) {
	f := newFleet(Settings{})
	f.add("n", nil, corev1.ConditionFalse)
	f.add("m", nil, corev1.ConditionTrue)
	list := func() []*corev1.Node { return []*corev1.Node{f.nodes["n"], f.nodes["m"]} }
	executes := 0
	for range 60 { // nothing is ever written
		for _, c := range f.m.Step(list(), nil, f.now).Changes {
			if c.Node == "n" && c.Execute == ExecuteNotReady {
				executes++
			}
		}
		f.now = f.now.Add(time.Second)
		f.post("m", corev1.ConditionTrue)
		f.post("n", corev1.ConditionFalse)
	}
	if executes != 6 {
		t.Errorf("tried %d times in a minute, want one per 10 s", executes)
	}
}

// wouldAsApply: what is said beforehand of a change is what comes of it, and saying so changes nothing.
func wouldAsApply(t *testing.T, n *corev1.Node, execute Execute, now time.Time) {
	t.Helper()
	c, kept, changed := Change{Execute: execute}, n.DeepCopy(), n.DeepCopy()
	would := c.would(n, now)
	if !equality.Semantic.DeepEqual(n, kept) {
		t.Fatalf("asking changed %s: %+v", n.Name, n)
	}
	if did := c.Apply(changed, now); did != would || did == equality.Semantic.DeepEqual(changed, kept) {
		t.Fatalf("%q would change %s: %v, did: %v, %+v", execute, n.Name, would, did, changed)
	}
}

// TestMonitorProperties drives fleets through random weather and checks what must never be: a node that is heard is
// not silenced, nobody is evicted while all zones are down, and no zone is tainted faster than its rate allows.
func TestMonitorProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range testrun.Rounds(150) {
		f := newFleet(Settings{})
		count := 1 + r.IntN(12)
		for i := range count {
			labels := map[string]string{corev1.LabelTopologyZone: fmt.Sprint(r.IntN(3))}
			f.add(fmt.Sprintf("n%d", i), labels, corev1.ConditionTrue)
		}
		up := map[string]bool{}
		heard := map[string]time.Time{}
		zones := map[string][]time.Time{}
		for range 200 {
			for i := range count {
				name := fmt.Sprintf("n%d", i)
				if r.IntN(20) == 0 {
					up[name] = !up[name]
				}
				if up[name] {
					f.post(name, corev1.ConditionTrue)
					heard[name] = f.now
				}
			}
			before := map[string]Execute{}
			for name, n := range f.nodes {
				before[name] = executing(n)
			}
			f.log = nil
			if r.IntN(20) == 0 { // copies are dear
				wouldAsApply(t, f.nodes[fmt.Sprintf("n%d", r.IntN(count))],
					[]Execute{ExecuteKeep, ExecuteNone, ExecuteNotReady, ExecuteUnreachable}[r.IntN(4)], f.now)
			}
			p := f.step()
			full := true
			for _, z := range p.Zones {
				full = full && z.State == ZoneFullDisruption
			}
			for name, n := range f.nodes {
				ready := api.NodeCondition(n, corev1.NodeReady)
				if at, ok := heard[name]; ok && f.now.Sub(at) < 40*time.Second && ready.Status != corev1.ConditionTrue {
					t.Fatalf("%s was heard %s ago and is %s", name, f.now.Sub(at), ready.Status)
				}
				now := executing(n)
				if full && now != ExecuteNone {
					t.Fatalf("%s has %s while all zones are down", name, now)
				}
				if now != ExecuteNone && before[name] == ExecuteNone {
					zones[ZoneOf(n)] = append(zones[ZoneOf(n)], f.now)
				}
				if ready.Status == corev1.ConditionTrue && len(n.Spec.Taints) != 0 {
					t.Fatalf("%s is ready and tainted %v", name, n.Spec.Taints)
				}
			}
			f.now = f.now.Add(time.Duration(1+r.IntN(10000)) * time.Millisecond)
		}
		for z, times := range zones {
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < 10*time.Second {
					t.Fatalf("zone %q tainted two nodes within %s", z, gap)
				}
			}
		}
	}
}
