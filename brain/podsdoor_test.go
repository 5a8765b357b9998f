package brain

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"ledge/brain/place"
	"ledge/config"
)

type listening struct {
	net.Listener
	at net.Addr
}

func (l listening) Addr() net.Addr { return l.at }

// TestPodsDoorAt: pods have a door of their own where the API listens for this machine alone, and a network leads to it.
func TestPodsDoorAt(t *testing.T) {
	for _, c := range []struct {
		listen, bridge, pods, clusters, want string
	}{
		{"127.0.0.1:6443", "ledge0", "10.42.0.0/24", "", "10.42.0.1:6443"},
		{"0.0.0.0:6443", "ledge0", "10.42.0.0/24", "", ""},
		{"192.168.1.2:6443", "ledge0", "10.42.0.0/24", "", ""},
		{"127.0.0.1:6443", place.NoBridge, "10.42.0.0/24", "", ""},
		{"127.0.0.1:6443", "ledge0", "10.42.0.0/24", "10.44.0.0/16", ""},
		{"127.0.0.1:6443", "ledge0", "", "", ""},
		{"127.0.0.1:6443", "ledge0", "10.42.0.0/31", "", ""},
	} {
		b := &Brain{Config: Config{Settings: config.Settings{Options: &config.Options{}}}}
		b.Bridge = c.bridge
		if c.clusters != "" {
			b.CIDRs.Clusters = []netip.Prefix{netip.MustParsePrefix(c.clusters)}
		}
		pods, _ := netip.ParsePrefix(c.pods)
		p := &plane{b: b, listener: listening{at: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.listen))}}
		if got := p.podsDoorAt(pods); got.IsValid() != (c.want != "") || got.IsValid() && got.String() != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestPodsDoorLets in pods and this machine, and nobody else who sends to its address.
func TestPodsDoorLets(t *testing.T) {
	own := func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.168.1.2")}, nil }
	none := func() ([]netip.Addr, error) { return nil, errors.New("no answer") }
	pods := netip.MustParsePrefix("10.42.0.0/24")
	for from, want := range map[string]bool{"10.42.0.9:1": true, "192.168.1.2:1": true, "192.168.1.3:1": false, "10.42.1.9:1": false} {
		if got := (&podsDoor{pods: pods, own: own}).lets(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))); got != want {
			t.Errorf("%s: %v", from, got)
		}
	}
	if (&podsDoor{pods: pods, own: none}).lets(net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.168.1.2:1"))) {
		t.Error("let in by addresses that nobody knows")
	}
}
