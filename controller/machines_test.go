package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// inventory is a Lister that a test writes.
type inventory struct {
	mu    sync.Mutex
	state map[string]Machine // "" answers with an error
	asked map[string]int
}

func (i *inventory) Machine(_ context.Context, node, providerID string) (Machine, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[node]++
	if m := i.state[node]; m != "" && providerID == "board://"+node {
		return m, nil
	}
	return "", errors.New("the inventory is out")
}

// times is how often anything was asked, or one node.
func (i *inventory) times(node string) (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, times := range i.asked {
		if node == "" || name == node {
			n += times
		}
	}
	return n
}

func (i *inventory) set(node string, m Machine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state[node] = m
}

// TestMachines: what is not ready is asked for; a machine that is gone loses its Node, one that is off is marked until it
// is back, and where nobody answers nothing is done (N-3.61, N-3.62).
func TestMachines(t *testing.T) {
	inv := &inventory{state: map[string]Machine{"gone": MachineGone, "off": MachineShutdown, "there": MachineExists, "well": MachineGone},
		asked: map[string]int{}}
	plane(t, Config{Machines: inv}, func(r *rig) {
		for _, name := range []string{"gone", "off", "there", "unknown", "well"} {
			r.node(name, func(n *corev1.Node) { n.Spec.ProviderID = "board://" + name })
		}
		r.alive("well")
		r.pass(30 * time.Second)
		if n := inv.times(""); n > 0 {
			t.Fatalf("asked %d times for nodes that are well", n)
		}
		r.pass(time.Minute)
		if !r.gone(api.Nodes, "", "gone") {
			t.Error("the node of a machine that is gone is still there")
		}
		r.want("events", r.events("DeletingNode"),
			"cloud-node-lifecycle-controller Normal DeletingNode gone: Deleting node gone because it does not exist in the cloud provider")
		marked := func(name string) (n int) {
			for _, t := range r.getNode(name).Spec.Taints {
				if t.Key == taintMachineOff && t.Effect == corev1.TaintEffectNoSchedule && t.TimeAdded != nil {
					n++
				}
			}
			return n
		}
		if marked("off") != 1 || marked("there") != 0 || marked("unknown") != 0 || r.gone(api.Nodes, "", "well") {
			t.Errorf("off %d, there %d, unknown %d", marked("off"), marked("there"), marked("unknown"))
		}
		if n := inv.times("there"); n < 7 || n > 14 {
			t.Errorf("asked %d times in 50 s, once in 5 s is due", n)
		}
		r.post("off", corev1.ConditionTrue)
		r.alive("off")
		r.pass(time.Second)
		if marked("off") != 0 {
			t.Error("still marked, and ready")
		}
		inv.set("unknown", MachineGone)
		r.pass(6 * time.Second)
		if !r.gone(api.Nodes, "", "unknown") {
			t.Error("the answer came and was not heard")
		}
	})
}

// mute is a Lister that never answers.
type mute struct {
	mu           sync.Mutex
	asking, most int
	asked        map[string]bool
}

func (l *mute) Machine(ctx context.Context, name, _ string) (Machine, error) {
	l.mu.Lock()
	l.asked[name] = true
	l.asking++
	l.most = max(l.most, l.asking)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.asking--
		l.mu.Unlock()
	}()
	<-ctx.Done()
	return "", ctx.Err()
}

// TestMachinesOfASilentShed: a lister that does not answer is asked about a few machines at once, so that all have had their turn
// before long (N-3.62).
func TestMachinesOfASilentShed(t *testing.T) {
	l := &mute{asked: map[string]bool{}}
	plane(t, Config{Machines: l}, func(r *rig) {
		for i := range 20 {
			r.node(fmt.Sprintf("n%d", i))
		}
		// The first three quarters of a minute none of them is missed. Those missed a moment later have their turn in a second
		// round, and one after the other would be 200 s.
		r.pass(45*time.Second + 2*20*askTime/askAtOnce)
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.asked); n != 20 {
			t.Errorf("%d machines of 20 were asked for", n)
		}
		if l.most != askAtOnce {
			t.Errorf("%d at once, %d are meant", l.most, askAtOnce)
		}
	})
}

// TestMachineMadeAgain: what was asked about one Node is not done to another of that name.
func TestMachineMadeAgain(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		n := r.node("n")
		m := &Machines{w: &World{Client: r.Client}, events: silent{},
			list: &inventory{state: map[string]Machine{"n": MachineGone}, asked: map[string]int{}}}
		n.Spec.ProviderID, n.UID = "board://n", types.UID("another")
		if err := m.look(r.ctx, n); err != nil || r.gone(api.Nodes, "", "n") {
			t.Errorf("deleted: %v", err)
		}
	})
}

type silent struct{}

func (silent) Event(api.Object, string, string, string) {}
