package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/internal/grumble"
	"ledge/network"
	"ledge/network/fake"
)

// TestNodeTellsOfTrouble: where the kernel takes no rules of Services, the Node says so and names the remedy, until it takes them.
func TestNodeTellsOfTrouble(t *testing.T) {
	p := newPlane()
	rig(t, p, func(l *Loop, _ *fake.Kernel, c *counted) {
		set := func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.broken = err
		}
		is := func(what string, status corev1.ConditionStatus, words ...string) {
			t.Helper()
			time.Sleep(2 * grumble.Look)
			synctest.Wait()
			got := l.Forwarded()
			if got.Type != "ServiceTrouble" || got.Status != status {
				t.Errorf("%s: %+v", what, got)
			}
			for _, w := range words {
				if !strings.Contains(got.Message, w) {
					t.Errorf("%s: %q does not say %q", what, got.Message, w)
				}
			}
		}
		is("no Service", "")
		set(fmt.Errorf("this kernel lacks something: %w", unix.EOPNOTSUPP))
		p.put(api.Services, svc("web", "10.96.0.1"))
		is("the kernel lacks something", corev1.ConditionTrue, "this kernel lacks something", "ledge doctor")
		set(&network.HalfForwarded{Err: unix.EOPNOTSUPP})
		is("it lacks something for IPv6", corev1.ConditionTrue, "by IPv4 only", "ledge doctor")
		set(nil)
		is("it has a new kernel module", "")
	})
}

// TestNodeTellsOfSharedNetwork: a board whose pods have the addresses of another's says so, as long as a Service has endpoints there.
func TestNodeTellsOfSharedNetwork(t *testing.T) {
	p := newPlane()
	loopWithEvents(t, p, func(l *Loop, _ *counted, _ *toldEvents) {
		l.cfg.Pods = func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")} }
		of := func(node string) *discoveryv1.EndpointSlice {
			s := slice("web-1", "web", "10.42.0.2")
			s.Endpoints[0].NodeName = &node
			return s
		}
		p.put(api.Services, svc("web", "10.43.0.1"))
		for _, c := range []struct {
			node, reason string
		}{{"shed", ""}, {"barn", "NetworkShared"}, {"shed", ""}, {"barn", "NetworkShared"}} {
			p.put(discovery.EndpointSlices, of(c.node))
			time.Sleep(time.Second)
			synctest.Wait()
			if got := l.Forwarded(); got.Reason != c.reason || strings.Contains(got.Message, "--allocate-node-cidrs") != (c.reason != "") {
				t.Errorf("the endpoint is on %s: %+v", c.node, got)
			}
		}
		p.remove(api.Services, svc("web", "10.43.0.1"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := l.Forwarded(); got.Reason != "" {
			t.Errorf("the Service is gone: %+v", got)
		}
	})
}
