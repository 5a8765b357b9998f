package brain

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

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
	// A thousand strangers in a moment cost one look; an address that the machine gets counts a second later, one that it had not for ever.
	synctest.Test(t, func(t *testing.T) {
		looks, is := 0, "192.168.1.2"
		d := &podsDoor{pods: pods, own: func() ([]netip.Addr, error) { looks++; return []netip.Addr{netip.MustParseAddr(is)}, nil }}
		lets := func(from string) bool { return d.lets(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))) }
		for range 1000 {
			if lets("192.168.1.3:1") || !lets("192.168.1.2:1") {
				t.Fatal("a stranger is let in, or the machine is not")
			}
		}
		if looks != 1 {
			t.Errorf("%d looks", looks)
		}
		is = "192.168.1.3"
		time.Sleep(lookAgain)
		if !lets("192.168.1.3:1") || lets("192.168.1.2:1") {
			t.Error("not by the addresses that it has now")
		}
		is = "192.168.1.4"
		if time.Sleep(oldAddresses); lets("192.168.1.3:1") {
			t.Error("by an address that it had a minute ago")
		}
	})
}
