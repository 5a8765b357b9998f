package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/network"
	networkfake "ledge/network/fake"
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
	var away error
	p := &podNetwork{open: open, inner: first, uses: "10.42.0.0/24", keep: func(text string) error { kept = text; return nil },
		node: func(context.Context) (*corev1.Node, error) { return n, away }, busy: func() bool { return busy }}
	want := func(what, status, message string) {
		t.Helper()
		_ = p.Ready(t.Context()) // what it says is in the condition
		c, ok := p.condition()
		if ok != (status != "") || string(c.Status) != status || !strings.Contains(c.Message, message) {
			t.Errorf("%s: %v %s %q, want %s %q", what, ok, c.Status, c.Message, status, message)
		}
	}
	want("nobody gives networks", "", "")
	p.expect = true
	want("not given yet", "True", "no network for its pods yet")
	addrs, err := p.Attach(t.Context(), network.Pod{UID: "u"})
	if err != nil || !strings.HasPrefix(addrs[0].String(), "10.42.0.") {
		t.Fatalf("%v %v", addrs, err)
	}
	n.Spec.PodCIDRs, busy = []string{"10.0.3.0/24"}, true
	want("pods in the old one", "True", "taken over when they are gone")
	must(t, p.Detach(t.Context(), "u"))
	busy, away = false, errors.New("no uplink")
	want("without the API nothing changes", "True", "10.42.0.0/24")
	away = nil
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
