package node

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/node/machine"
)

func nodeCondition(n *corev1.Node, t corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// looks counts how often the board is looked at for its status.
func (r *rig) looks() *atomic.Int64 {
	n := new(atomic.Int64)
	r.cfg.Conditions = func() []corev1.NodeCondition { n.Add(1); return nil }
	return n
}

// TestFastStatus: until the node first is ready it is looked at every 100 ms, for two minutes (N-2.16). Nothing of it is asked
// of the API, which tells of the Node what there is to tell.
func TestFastStatus(t *testing.T) {
	with(t, nil, func(r *rig) {
		looks := r.looks()
		r.engine.SetAway(true)
		r.begin()
		r.pass(time.Minute)
		c := nodeCondition(r.node(), corev1.NodeReady)
		if c.Status != corev1.ConditionFalse ||
			c.Message != "container runtime status check may not have completed yet: fake: container engine unavailable" {
			t.Errorf("without an engine: %+v", c)
		}
		if r.agent.Ready() {
			t.Error("without an engine: the agent takes its Node for ready")
		}
		if n := looks.Load(); n < 500 {
			t.Errorf("%d looks in a minute before it is ready", n)
		}
		r.engine.SetAway(false)
		r.pass(300 * time.Millisecond) // the engine is asked every 200 ms
		if !isReady(r.node()) {
			t.Error("the node is not ready 300 ms after its engine")
		}
		if !r.agent.Ready() {
			t.Error("the agent does not take its Node for ready")
		}
		before := looks.Load()
		r.pass(time.Minute)
		if n := looks.Load() - before; n < 5 || n > 7 {
			t.Errorf("%d looks in a minute, one every 10 s is due (N-2.11)", n)
		}
		if n := r.via.count("get nodes"); n > 2 {
			t.Errorf("the API was asked for the Node %d times", n)
		}
	})
}

func TestFastStatusEnds(t *testing.T) {
	with(t, nil, func(r *rig) {
		looks := r.looks()
		r.engine.SetAway(true)
		r.begin()
		r.pass(121 * time.Second)
		before := looks.Load()
		r.pass(time.Minute)
		if n := looks.Load() - before; n < 5 || n > 7 {
			t.Errorf("%d looks in a minute, two minutes after the start", n)
		}
	})
}

// TestStatusIsSent when it changed, and else every five minutes, the first time and after changes spread by half of
// that either way (N-2.12, N-2.13).
func TestStatusIsSent(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pass(20 * time.Second)
		before := r.via.count("update nodes")
		wait := func() time.Duration {
			start, n := time.Now(), r.via.count("update nodes")
			for r.via.count("update nodes") == n {
				if r.pass(time.Second); time.Since(start) > 20*time.Minute {
					t.Fatal("no report for 20 minutes")
				}
			}
			return time.Since(start)
		}
		first := wait()
		if first > 7*time.Minute+45*time.Second {
			t.Errorf("first report after %s", first)
		}
		for range 3 {
			if gap := wait(); gap < 5*time.Minute || gap > 5*time.Minute+12*time.Second {
				t.Errorf("report after %s", gap)
			}
		}
		if n := r.via.count("update nodes") - before; n != 4 {
			t.Errorf("%d reports", n)
		}
		beat := nodeCondition(r.node(), corev1.NodeReady)
		if time.Since(beat.LastHeartbeatTime.Time) > 2*time.Second || time.Since(beat.LastTransitionTime.Time) < 10*time.Minute {
			t.Errorf("times of the condition: %+v", beat)
		}
		r.board.change(func(s *machine.Sample) { s.KernelVersion = "6.13" })
		if gap := wait(); gap > 11*time.Second {
			t.Errorf("a change was told after %s", gap)
		}
	})
}

// TestNodeEvents of N-1.50 and N-1.51.
func TestNodeEvents(t *testing.T) {
	with(t, nil, func(r *rig) {
		all := []string{"NodeReady", "NodeNotReady", "NodeHasInsufficientMemory", "NodeHasSufficientMemory", "NodeHasDiskPressure",
			"NodeHasNoDiskPressure", "NodeSchedulable", "NodeNotSchedulable", "Rebooted"}
		r.engine.SetAway(true)
		r.begin()
		r.engine.SetAway(false)
		r.pass(time.Minute)
		r.board.change(func(s *machine.Sample) { s.MemoryAvailable = 1 << 20 })
		r.pass(11 * time.Second)
		r.board.change(func(s *machine.Sample) { s.MemoryAvailable = 2 << 30 })
		r.pass(6 * time.Minute)
		for _, cordon := range []string{"true", "null"} {
			patch := api.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"unschedulable":` + cordon + `}}`)}
			if _, err := r.Patch(r.Context(), api.Nodes, "", "n", patch, api.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			r.pass(11 * time.Second)
		}
		r.want("events", r.events.of(all...),
			"Normal NodeReady n: Node n status is now: NodeReady",
			"Normal NodeHasInsufficientMemory n: Node n status is now: NodeHasInsufficientMemory",
			"Normal NodeHasSufficientMemory n: Node n status is now: NodeHasSufficientMemory",
			"Normal NodeNotSchedulable n: Node n status is now: NodeNotSchedulable",
			"Normal NodeSchedulable n: Node n status is now: NodeSchedulable")
		r.board.change(func(s *machine.Sample) { s.BootID = "boot-2" })
		before := len(r.events.of(all...))
		r.engine.SetAway(true)
		time.AfterFunc(time.Second, func() { r.engine.SetAway(false) })
		r.begin()
		r.pass(time.Minute)
		r.want("events after a reboot", r.events.of(all...)[before:], "Warning Rebooted n: Node n has been rebooted, boot id: boot-2")
	})
}

// TestNodeDeleted: the agent does not make its Node again (N-1.34), unless it was told to.
func TestNodeDeleted(t *testing.T) {
	for _, again := range []bool{false, true} {
		with(t, nil, func(r *rig) {
			r.cfg.Registration.Again = again
			r.begin()
			r.pass(time.Minute)
			if _, err := r.Delete(r.Context(), api.Nodes, "", "n", api.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			r.pass(time.Minute)
			_, err := r.Get(r.Context(), api.Nodes, "", "n")
			if (err == nil) != again {
				t.Errorf("again %v: %v", again, err)
			}
			if n := r.via.count("create nodes"); !again && n != 1 {
				t.Errorf("%d creates", n)
			}
		})
	}
}

// TestNotRegistered: with --register-node=false the agent makes no Node, and keeps the status and the lease of one that
// somebody else made (N-1.12).
func TestNotRegistered(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.cfg.Registration.Off = true
		r.begin()
		r.pass(time.Minute)
		if n := r.via.count("create nodes") + r.via.count("create leases"); n > 0 {
			t.Errorf("%d creates", n)
		}
		n := &corev1.Node{}
		n.Name = "n"
		if _, err := api.Create(r.Context(), r.Client, api.Nodes, n); err != nil {
			t.Fatal(err)
		}
		r.pass(11 * time.Second)
		if !isReady(r.node()) || r.node().Labels[corev1.LabelOSStable] != "linux" { // N-1.33
			t.Errorf("%+v %v", r.node().Status.Conditions, r.node().Labels)
		}
		if _, err := r.Get(r.Context(), coordination.Leases, corev1.NamespaceNodeLease, "n"); err != nil {
			t.Error(err)
		}
	})
}

// TestAddressLost: while a board has no address its Node keeps the last one, and so do its pods: a link that flaps
// must not rewrite every pod (N-1.22, N-1.43).
func TestAddressLost(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p")
		r.pass(time.Minute)
		rev, addrs := r.get("p").ResourceVersion, r.node().Status.Addresses
		r.board.change(func(s *machine.Sample) { s.Addresses = nil })
		r.pass(time.Minute)
		if now := r.node().Status.Addresses; len(now) != len(addrs) || now[0] != addrs[0] {
			t.Errorf("addresses %v, were %v", now, addrs)
		}
		if now := r.get("p"); now.ResourceVersion != rev || now.Status.HostIP != "192.0.2.10" {
			t.Errorf("the pod was written: %+v", now.Status)
		}
		r.board.change(func(s *machine.Sample) { s.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.77")} })
		r.pass(11 * time.Second)
		if now := r.node().Status.Addresses[0].Address; now != "192.0.2.77" {
			t.Errorf("new address: %s", now)
		}
	})
}

// TestLeaseFollowsNode: no Lease before its Node, and renewed every 10 s (N-2.2, N-2.3).
func TestLeaseFollowsNode(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.via.breaks(failing("create nodes", errBoom))
		r.begin()
		r.pass(time.Minute)
		if n := r.via.count("create leases"); n > 0 {
			t.Errorf("%d tries to make a lease without a node", n)
		}
		r.via.breaks(nil)
		r.pass(8 * time.Second) // the next try to register may be 7 s away
		if n := r.via.count("create leases"); n != 1 {
			t.Errorf("%d leases made", n)
		}
		r.pass(time.Minute)
		if n := r.via.count("update leases"); n < 5 || n > 7 {
			t.Errorf("%d renewals in a minute", n)
		}
	})
}

var errBoom = errors.New("boom")
