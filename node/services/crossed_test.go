package services

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/internal/grumble"
	"ledge/network"
	"ledge/network/fake"
)

func listener(text string) Listener {
	protocol, at, _ := strings.Cut(text, " ")
	return Listener{protocol, netip.MustParseAddrPort(at)}
}

func TestHears(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, c := range []struct {
		listener, forward string
		want              bool
	}{
		{"TCP 0.0.0.0:80", "TCP 0.0.0.0:80", true},
		{"TCP [::]:80", "TCP 0.0.0.0:80", true},
		{"TCP [::]:80", "TCP [::]:80", true},
		{"TCP 0.0.0.0:80", "TCP [::]:80", false},
		{"TCP 0.0.0.0:80", "TCP 192.0.2.1:80", true},
		{"TCP 0.0.0.0:80", "TCP 192.0.2.9:80", false}, // another board's
		{"TCP 192.0.2.1:80", "TCP 192.0.2.1:80", true},
		{"TCP 192.0.2.1:80", "TCP 0.0.0.0:80", true},
		{"TCP 192.0.2.2:80", "TCP 192.0.2.1:80", false},
		{"TCP [2001:db8::1]:80", "TCP 0.0.0.0:80", false},
		{"TCP 127.0.0.1:80", "TCP 0.0.0.0:80", false}, // Services take nothing there
		{"TCP [::1]:80", "TCP [::]:80", false},
		{"UDP 0.0.0.0:80", "TCP 0.0.0.0:80", false},
		{"TCP 0.0.0.0:81", "TCP 0.0.0.0:80", false},
		{"UDP 0.0.0.0:53", "UDP 192.0.2.1:53", true},
	} {
		to := listener(c.forward)
		if got := listener(c.listener).hears(network.Forward{Protocol: to.Protocol, To: to.At}, own); got != c.want {
			t.Errorf("%s and a Service at %s: %v", c.listener, c.forward, got)
		}
	}
}

// TestCrossings: a Service that takes the port of a process is told so once, and again when that comes again; one that takes no port of
// the board costs no look.
func TestCrossings(t *testing.T) {
	var told []string
	c := crossings{teller: teller{tell: func(name, why string) { told = append(told, name+" "+why) }}}
	looks, here, broken := 0, []Listener(nil), error(nil)
	look := func(all bool, plans ...network.Service) error {
		return c.look(plans, all, nil, func() ([]Listener, error) { looks++; return slices.Clone(here), broken })
	}
	at := func(name string, to ...string) network.Service {
		s := network.Service{Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.43.0.1")}}
		for _, text := range to {
			s.Forwards = append(s.Forwards, network.Forward{Protocol: "TCP", To: netip.MustParseAddrPort(text)})
		}
		return s
	}
	expect := func(err error, what string, want ...string) {
		t.Helper()
		short := make([]string, len(told))
		for i, text := range told {
			short[i], _, _ = strings.Cut(text, " too: ")
		}
		if !slices.Equal(short, want) || (err != nil) != (broken != nil) {
			t.Errorf("%s: told %q, want %q; %v", what, short, want, err)
		}
		told = nil
	}
	here = []Listener{listener("TCP 0.0.0.0:80"), listener("TCP 0.0.0.0:30080")}
	inside, node, web := at("a/inside", "10.43.0.1:80"), at("a/node", "10.43.0.1:80", "0.0.0.0:30080"), at("b/web", "10.43.0.1:80", "0.0.0.0:80")
	expect(look(true, inside), "a Service inside")
	if looks != 0 {
		t.Error("it cost a look")
	}
	expect(look(true, inside, node, web), "all", "a/node has a process that listens on TCP port 30080", "b/web has a process that listens on TCP port 80")
	if looks != 1 {
		t.Errorf("%d looks at once", looks)
	}
	expect(look(true, inside, node, web), "all again")
	expect(look(false, web), "one that changed")
	expect(look(false, at("b/web")), "one that is gone")
	expect(look(false, web), "one that is there again", "b/web has a process that listens on TCP port 80")
	here = nil
	expect(look(true, inside, node, web), "the processes have ended")
	here, broken = []Listener{listener("TCP 0.0.0.0:80")}, errors.New("cannot be read")
	expect(look(true, web), "a table that cannot be read")
	broken = nil
	expect(look(true, web), "it can", "b/web has a process that listens on TCP port 80")
}

// TestCrossedServicesHear: the Loop looks when a Service comes, and once a minute, and tells it with its UID.
func TestCrossedServicesHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events toldEvents
		plane, listens := newPlane(), atomic.Bool{}
		l := New(Config{Client: plane, Forwarder: fake.NewForwarder(&fake.Kernel{}), Node: "shed", Events: &events,
			Listeners: func() ([]Listener, error) {
				if listens.Load() {
					return []Listener{listener("TCP 0.0.0.0:30080")}, nil
				}
				return nil, nil
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		s := svc("web", "10.43.0.1")
		s.UID, s.Spec.Type, s.Spec.Ports[0].NodePort = "4711", corev1.ServiceTypeNodePort, 30080
		synctest.Wait()
		plane.put(api.Services, s)
		plane.put(discovery.EndpointSlices, slice("web-1", "web", "10.42.0.2"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := events.take(); len(got) > 0 {
			t.Errorf("nobody listens: %q", got)
		}
		listens.Store(true)
		time.Sleep(3 * grumble.Look)
		synctest.Wait()
		if got := events.take(); len(got) != 1 || !strings.HasPrefix(got[0],
			"v1 Service default web 4711 Warning PortInUse Board shed has a process that listens on TCP port 30080 too: ") {
			t.Errorf("somebody does: %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
