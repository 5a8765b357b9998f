package given

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/internal/testrun"
	"ledge/network"
	networkfake "ledge/network/fake"
	"ledge/storage"
)

// TestGivenNetwork: a board takes over the pod network its Node was given when no pod stands in the old one (N-3.60), and
// NetworkUnavailable tells the truth all the while (N-1.54).
func TestGivenNetwork(t *testing.T) {
	machines := map[string]*networkfake.Machine{}
	open := func(cidr, _ netip.Prefix) (network.Setup, error) {
		m := machines[cidr.String()]
		if m == nil {
			var err error
			if m, err = networkfake.NewMachine(cidr); err != nil {
				return nil, err
			}
			machines[cidr.String()] = m
		}
		return networkfake.New(m), nil
	}
	first, err := open(netip.MustParsePrefix("10.42.0.0/24"), netip.Prefix{})
	must(t, err)
	n, busy, kept := &corev1.Node{}, false, ""
	p := &Network{Open: open, Inner: first, Uses: "10.42.0.0/24", Keep: func(text string) error { kept = text; return nil },
		Busy: func() bool { return busy }, Name: "here"}
	want := func(what, status, message string) {
		t.Helper()
		if n != nil && p.Saw(n) && p.Saw(n) {
			t.Errorf("%s: new twice", what)
		}
		_ = p.Ready(t.Context()) // what it says is in the condition
		c, ok := p.Condition()
		if ok != (status != "") || string(c.Status) != status || !strings.Contains(c.Message, message) {
			t.Errorf("%s: %v %s %q, want %s %q", what, ok, c.Status, c.Message, status, message)
		}
	}
	want("nobody gives networks", "", "")
	p.Expect = true
	want("not given yet", "True", "no network for its pods yet")
	addrs, err := p.Attach(t.Context(), network.Pod{UID: "u"})
	if err != nil || !strings.HasPrefix(addrs[0].String(), "10.42.0.") {
		t.Fatalf("%v %v", addrs, err)
	}
	n.Spec.PodCIDRs, busy = []string{"10.0.3.0/24"}, true
	want("pods in the old one", "True", "taken over when they are gone")
	must(t, p.Detach(t.Context(), "u"))
	busy = false
	want("taken over", "False", "10.0.3.0/24")
	addrs, err = p.Attach(t.Context(), network.Pod{UID: "v"})
	if err != nil || !strings.HasPrefix(addrs[0].String(), "10.0.3.") || kept != "10.0.3.0/24" {
		t.Errorf("%v %v, kept %q", addrs, err, kept)
	}
	machines["10.0.3.0/24"].SetReady(errors.New("the bridge is gone"))
	want("broken", "True", "the bridge is gone")
	machines["10.0.3.0/24"].SetReady(nil)
	want("mended", "False", "10.0.3.0/24")
	n.Spec.PodCIDRs = []string{"fd00::/64"}
	want("a network no board has", "True", "fd00::/64")
}

// guide is a network that notes where it was to lead.
type guide struct {
	network.Setup
	led    string
	missed []network.Missed
	err    error
}

func (g *guide) Ready(context.Context) error { return nil }
func (g *guide) Reach(_ context.Context, peers []network.Peer) ([]network.Missed, error) {
	g.led = fmt.Sprint(peers)
	return g.missed, g.err
}

// TestRoutesToBoards: a board leads to the pods of others when the shed knows its own, takes nothing back before it has
// heard anything, and its condition says whom it cannot reach (N-1.54).
func TestRoutesToBoards(t *testing.T) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	must(t, err)
	defer store.Close()
	c, err := local.New(local.Config{Store: store})
	must(t, err)
	g := &guide{}
	p := &Network{Inner: g, Uses: "10.42.1.0/24", given: "10.42.1.0/24", Name: "here", Busy: func() bool { return true }}
	moved := make(chan struct{}, 10)
	p.Moved = func() { moved <- struct{}{} }
	must(t, p.Ready(t.Context()))
	if g.led != "" {
		t.Errorf("led to %s before anything was heard", g.led)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var jobs errgroup.Group
	jobs.Go(func() error { return p.Watch(ctx, c) })
	defer func() { cancel(); must(t, jobs.Wait()) }()
	leads := func(want string) {
		t.Helper()
		testrun.Succeeds(t, 10*time.Second, "leads to "+want, func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if g.led != want {
				return fmt.Errorf("it leads to %s", g.led)
			}
			return nil
		})
	}
	says := func(status, message string) {
		t.Helper()
		if c, ok := p.Condition(); !ok || string(c.Status) != status || c.Message != message {
			t.Errorf("%v %s %q, want %s %q", ok, c.Status, c.Message, status, message)
		}
	}
	leads("[]")
	if _, told := p.PodsOf("there"); told {
		t.Error("told where pods of boards are, by nobody")
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: api.PodNetworksName},
		Data: map[string]string{"there": "10.42.2.0/24 via 10.99.0.2"}}
	m, err = api.Create(ctx, c, api.ConfigMaps, m)
	must(t, err)
	m.Data["here"] = "10.42.1.0/24 via 10.99.0.1"
	m, err = api.Update(ctx, c, api.ConfigMaps, m)
	must(t, err)
	leads("[{there [10.42.2.0/24] [10.99.0.2]}]")
	says("False", "pods have addresses of 10.42.1.0/24")
	there, told := p.PodsOf("there")
	if _, other := p.PodsOf("other"); fmt.Sprint(there) != "[10.42.2.0/24]" || !told || !other || len(moved) == 0 {
		t.Errorf("pods of there: %v %v, of another told: %v, said so %d times", there, told, other, len(moved))
	}
	p.mu.Lock()
	g.missed = []network.Missed{{Peer: "there", Why: "10.99.0.2 is on no network of this board"}}
	p.mu.Unlock()
	must(t, p.Ready(ctx))
	says("False", "pods have addresses of 10.42.1.0/24; pods of these boards cannot be reached: there (10.99.0.2 is on no network of this board)")
	p.mu.Lock()
	g.err = errors.New("routes: no memory")
	p.mu.Unlock()
	must(t, p.Ready(ctx)) // the board is ready all the same
	says("True", "routes: no memory")
	p.mu.Lock()
	g.err, g.missed = nil, nil
	p.mu.Unlock()
	m.Data["here"] = "10.42.7.0/24 via 10.99.0.1" // given, and not taken over yet: nobody could answer
	_, err = api.Update(ctx, c, api.ConfigMaps, m)
	must(t, err)
	leads("[]")
	says("False", "pods have addresses of 10.42.1.0/24")
	for i := range 9 {
		g.missed = append(g.missed, network.Missed{Peer: fmt.Sprint("b", i), Why: "far"})
	}
	if got := missedText(g.missed); got != "b0 (far), b1 (far), b2 (far), b3 (far), b4 (far), and 4 more" {
		t.Error(got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
