package node

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/machine"
	"ledge/node/poster"
)

// TestRegisteredBefore: what a restart changes on a Node that exists, and what it does not (N-1.30 to N-1.33, N-1.19).
func TestRegisteredBefore(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.cfg.Registration = poster.Registration{Labels: map[string]string{"tier": "edge", corev1.LabelTopologyZone: "a"},
			Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}}
		r.begin()
		r.pass(time.Minute)
		uid := r.node().UID
		patch := api.Patch{Type: types.MergePatchType,
			Data: []byte(`{"metadata":{"labels":{"mine":"x","kubernetes.io/os":"windows"}},"spec":{"taints":null}}`)}
		if _, err := r.Patch(r.Context(), api.Nodes, "", "n", patch, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(11 * time.Second)
		if os := r.node().Labels[corev1.LabelOSStable]; os != "linux" { // N-1.33: at every look
			t.Errorf("os %q", os)
		}
		r.cfg.Registration = poster.Registration{Labels: map[string]string{"tier": "core", "other": "y", corev1.LabelTopologyZone: "b"},
			Taints: []corev1.Taint{{Key: "k2", Effect: corev1.TaintEffectNoSchedule}}}
		r.begin()
		r.pass(time.Minute)
		n := r.node()
		for key, want := range map[string]string{corev1.LabelTopologyZone: "b", "tier": "edge", "other": "", "mine": "x"} {
			if n.Labels[key] != want {
				t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
			}
		}
		if len(n.Spec.Taints) > 0 || n.UID != uid {
			t.Errorf("taints %v, uid %s, was %s", n.Spec.Taints, n.UID, uid)
		}
	})
}

// TestRegisterAgain: a failing registration is tried after 100 ms, then twice as long each time, at most 7 s, without end
// (N-1.27), whatever the failure is (N-1.29).
func TestRegisterAgain(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.via.breaks(failing("create nodes", errBoom))
		r.begin()
		r.pass(13 * time.Second)
		if n := r.via.count("create nodes"); n < 7 || n > 9 { // 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7 s
			t.Errorf("%d tries in 13 s", n)
		}
		before := r.via.count("create nodes")
		r.pass(5 * time.Minute)
		if n := r.via.count("create nodes") - before; n < 29 || n > 44 { // every 7 s, and 10 s and a bit once the fast start is over
			t.Errorf("%d tries in 5 min", n)
		}
		r.via.breaks(nil)
		r.pass(11 * time.Second)
		if !isReady(r.node()) {
			t.Error("not registered when the way was free")
		}
	})
}

// TestAnotherMachine under a name that is taken is the same Node, and is told of (N-1.4); what it has is read at every
// look (N-1.62).
func TestAnotherMachine(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.board.change(func(s *machine.Sample) { s.MachineID = "one" })
		r.begin()
		r.pass(time.Minute)
		uid := r.node().UID
		r.board.change(func(s *machine.Sample) { s.CPUs = 8 })
		r.pass(11 * time.Second)
		if cpu := r.node().Status.Capacity.Cpu().Value(); cpu != 8 {
			t.Errorf("%d cores", cpu)
		}
		r.begin()
		r.pass(time.Minute)
		r.want("the same machine", r.events.of("MachineChanged"))
		r.board.change(func(s *machine.Sample) { s.MachineID = "two" })
		r.begin()
		r.pass(time.Minute)
		r.want("another machine", r.events.of("MachineChanged"), "Warning MachineChanged n: Node n was the machine one and is two now")
		if r.node().UID != uid || r.node().Status.NodeInfo.MachineID != "two" {
			t.Errorf("%s %+v", r.node().UID, r.node().Status.NodeInfo)
		}
	})
}

// TestCopiedCard: two boards with one identity are told of, each by the other; a reboot, or one old status, is none (N-1.4).
func TestCopiedCard(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.board.change(func(s *machine.Sample) { s.BootID = "b1" })
		r.begin()
		r.pass(time.Minute)
		r.board.change(func(s *machine.Sample) { s.BootID = "b2" })
		r.begin()
		r.pass(time.Minute)
		other := func() {
			n := r.node()
			n.Status.NodeInfo.BootID = "b9"
			if _, err := api.UpdateStatus(r.Context(), r.Client, api.Nodes, n); err != nil {
				t.Fatal(err)
			}
			r.pass(11 * time.Second)
		}
		other()
		r.want("once", r.events.of("NameShared"))
		if got := r.node().Status.NodeInfo.BootID; got != "b2" {
			t.Errorf("boot %s", got)
		}
		for range 20 {
			other()
		}
		r.want("again and again", r.events.of("NameShared"),
			"Warning NameShared n: Two boards are at work as n, boots b2 and b9: copies of one card?")
	})
}

// TestLeaseGoesOnInShutdown: the heart beats as long as the process lives (N-2.8).
func TestLeaseGoesOnInShutdown(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pass(time.Minute)
		r.agent.Close("node is shutting down")
		before := r.via.count("update leases")
		r.pass(time.Minute)
		if n := r.via.count("update leases") - before; n < 5 || n > 7 {
			t.Errorf("%d renewals in a minute of shutting down", n)
		}
	})
}

// TestStatusTries: a status that meets newer ones is written over them, up to five times a look (N-2.14), as a whole:
// a Node keeps both its InternalIPs (N-2.15).
func TestStatusTries(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pass(time.Minute)
		conflict := apierrors.NewConflict(api.Nodes.GR(), "n", errBoom)
		r.via.breaks(failing("update nodes", conflict))
		two := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}
		r.board.change(func(s *machine.Sample) { s.Addresses, s.KernelVersion = two, "6.13" })
		before := r.via.count("update nodes")
		r.pass(11 * time.Second)
		if n := r.via.count("update nodes") - before; n != 5 && n != 10 { // one look, or two that are 10 s apart
			t.Errorf("%d tries", n)
		}
		r.via.breaks(nil)
		r.cfg.Registration.NodeIPs = two
		r.begin()
		r.pass(time.Minute)
		if a := r.node().Status.Addresses; len(a) != 3 || a[0].Type != a[1].Type || a[1].Address != "2001:db8::10" {
			t.Errorf("addresses %v", a)
		}
	})
}
