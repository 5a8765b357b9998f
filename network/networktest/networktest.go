// Package networktest is the suite that every network.Setup which gives pods addresses of their own passes.
package networktest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"ledge/network"
)

// Machine is a fresh machine to try a Setup on.
type Machine struct {
	// Start is a process that comes up: the Setup it would use. Called again it is the next process of the same boot.
	Start func(t *testing.T) network.Setup
	// NetNS makes a new network namespace and gives its path.
	NetNS func(t *testing.T, name string) string
	// Left lists what is still there of a Setup: interfaces, tables, records.
	Left func(t *testing.T) []string
}

// Run tries everything. fresh makes a machine whose pods get addresses of cidr, and of cidr6 if that is valid.
func Run(t *testing.T, fresh func(t *testing.T, cidr, cidr6 netip.Prefix) Machine) {
	for _, c := range []struct {
		name string
		cidr string
		try  func(t *testing.T, m Machine)
	}{
		{"Addresses", "10.77.0.0/24", addresses},
		{"AttachAgain", "10.77.0.0/24", attachAgain},
		{"Detach", "10.77.0.0/24", detach},
		{"Ports", "10.77.0.0/24", ports},
		{"Exhaustion", "10.77.0.0/29", exhaustion},
		{"Restart", "10.77.0.0/24", restart},
		{"Retain", "10.77.0.0/24", retain},
		{"Close", "10.77.0.0/24", closeAll},
		{"Cancelled", "10.77.0.0/24", cancelled},
		{"AtOnce", "10.77.0.0/24", atOnce},
		{"BadPods", "10.77.0.0/24", badPods},
	} {
		t.Run(c.name, func(t *testing.T) { c.try(t, fresh(t, netip.MustParsePrefix(c.cidr), netip.Prefix{})) })
	}
	t.Run("DualStack", func(t *testing.T) {
		dualStack(t, fresh(t, netip.MustParsePrefix("10.77.0.0/24"), cidr6))
	})
	t.Run("DualStackExhaustion", func(t *testing.T) {
		dualExhaustion(t, fresh(t, netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("fd77::/125")))
	})
}

var cidr6 = netip.MustParsePrefix("fd77:0:0:1::/64")

// dualStack: two addresses, IPv4 first, the same again, also by the next process; ports by address of either family.
func dualStack(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	both := func(s network.Setup, p network.Pod) [2]netip.Addr {
		t.Helper()
		got, err := s.Attach(t.Context(), p)
		if err != nil || len(got) != 2 || !cidrOf.Contains(got[0]) || !cidr6.Contains(got[1]) {
			t.Fatalf("Attach %s: %v %v", p.UID, got, err)
		}
		return [2]netip.Addr(got)
	}
	port := network.Port{HostPort: 18080, ContainerPort: 80, Protocol: "TCP"}
	a, b := pod(t, m, "a", port), pod(t, m, "b")
	had, other := both(s, a), both(s, b)
	if had[0] == other[0] || had[1] == other[1] {
		t.Errorf("shared: %v %v", had, other)
	}
	s = m.Start(t)
	ready(t, s)
	if again := both(s, a); again != had {
		t.Errorf("%v before a restart, %v after", had, again)
	}
	if fresh := both(s, pod(t, m, "c")); fresh[1] == had[1] || fresh[1] == other[1] {
		t.Errorf("%v was given out twice", fresh)
	}
	port.HostIP = netip.MustParseAddr("fd99::1")
	if _, err := s.Attach(t.Context(), pod(t, m, "d", port)); !errors.Is(err, network.ErrPortInUse) {
		t.Error("a port of all addresses is one of each:", err)
	}
	must(t, "Detach", s.Detach(t.Context(), "d"))
	must(t, "Retain", s.Retain(t.Context(), []string{"b"}))
	both(s, pod(t, m, "e"))
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

func dualExhaustion(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	for i := range 5 {
		if _, err := s.Attach(t.Context(), pod(t, m, fmt.Sprint("u", i))); err != nil {
			t.Fatal(err)
		}
	}
	last := pod(t, m, "last")
	if _, err := s.Attach(t.Context(), last); !errors.Is(err, network.ErrExhausted) {
		t.Fatal("a sixth address of five:", err)
	}
	must(t, "Detach", s.Detach(t.Context(), "u3"))
	if got, err := s.Attach(t.Context(), last); err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

// cidrOf is large enough for what all tests check.
var cidrOf = netip.MustParsePrefix("10.77.0.0/24")

func pod(t *testing.T, m Machine, uid string, ports ...network.Port) network.Pod {
	t.Helper()
	return network.Pod{UID: uid, Namespace: "default", Name: "name-of-" + uid, NetNS: m.NetNS(t, uid), Ports: ports}
}

func ready(t *testing.T, s network.Setup) {
	t.Helper()
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal("Ready:", err)
	}
}

func attach(t *testing.T, s network.Setup, p network.Pod) netip.Addr {
	t.Helper()
	got, err := s.Attach(t.Context(), p)
	if err != nil {
		t.Fatalf("Attach %s: %v", p.UID, err)
	}
	if len(got) != 1 || !got[0].Is4() || !cidrOf.Contains(got[0]) {
		t.Fatalf("Attach %s: addresses %v", p.UID, got)
	}
	return got[0]
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func gone(t *testing.T, m Machine) {
	t.Helper()
	if left := m.Left(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func addresses(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	ready(t, s) // twice is once
	seen := map[netip.Addr]bool{netip.MustParseAddr("10.77.0.0"): true, netip.MustParseAddr("10.77.0.1"): true}
	for i := range 5 {
		a := attach(t, s, pod(t, m, fmt.Sprint("u", i)))
		if seen[a] {
			t.Errorf("pod %d: %s is given out already, or is the network's or the board's", i, a)
		}
		seen[a] = true
	}
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

func attachAgain(t *testing.T, m Machine) {
	s := m.Start(t)
	p := pod(t, m, "a", network.Port{HostPort: 18080, ContainerPort: 80, Protocol: "TCP"})
	first := attach(t, s, p) // without Ready: Attach makes what it needs
	if again := attach(t, s, p); again != first {
		t.Errorf("first %s, then %s", first, again)
	}
	p.NetNS = m.NetNS(t, "a-second") // its sandbox was made anew
	if again := attach(t, s, p); again != first {
		t.Errorf("first %s, in a new namespace %s", first, again)
	}
	must(t, "Close", s.Close(t.Context()))
}

func detach(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	port := network.Port{HostPort: 18080, ContainerPort: 80, Protocol: "TCP"}
	attach(t, s, pod(t, m, "a", port))
	for range 2 {
		must(t, "Detach", s.Detach(t.Context(), "a"))
	}
	must(t, "Detach of an unknown pod", s.Detach(t.Context(), "never-seen"))
	attach(t, s, pod(t, m, "b", port)) // the port is free again
	must(t, "Close", s.Close(t.Context()))
}

func ports(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	tcp := network.Port{HostPort: 18080, ContainerPort: 80, Protocol: "TCP"}
	udp := tcp
	udp.Protocol = "UDP"
	attach(t, s, pod(t, m, "a", tcp))
	attach(t, s, pod(t, m, "b", udp)) // another protocol, another port
	c := pod(t, m, "c", tcp)
	if _, err := s.Attach(t.Context(), c); !errors.Is(err, network.ErrPortInUse) {
		t.Fatal("a second owner of a host port:", err)
	}
	must(t, "Detach", s.Detach(t.Context(), "c"))
	must(t, "Detach", s.Detach(t.Context(), "a"))
	attach(t, s, c)
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

func exhaustion(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	for i := range 5 { // a /29 has eight; network, board and broadcast are none
		attach(t, s, pod(t, m, fmt.Sprint("u", i)))
	}
	last := pod(t, m, "last")
	if _, err := s.Attach(t.Context(), last); !errors.Is(err, network.ErrExhausted) {
		t.Fatal("a sixth address of five:", err)
	}
	must(t, "Detach", s.Detach(t.Context(), "u3"))
	attach(t, s, last)
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

func restart(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	port := network.Port{HostPort: 18080, ContainerPort: 80, Protocol: "TCP"}
	a, b := pod(t, m, "a", port), pod(t, m, "b")
	addrA, addrB := attach(t, s, a), attach(t, s, b)

	s = m.Start(t)
	ready(t, s)
	if _, err := s.Attach(t.Context(), pod(t, m, "c", port)); !errors.Is(err, network.ErrPortInUse) {
		t.Error("the new process forgot whose the host port is:", err)
	}
	if x := attach(t, s, pod(t, m, "d")); x == addrA || x == addrB {
		t.Errorf("the new process gave %s out twice", x)
	}
	if again := attach(t, s, b); again != addrB {
		t.Errorf("%s before the restart, %s after", addrB, again)
	}
	if again := attach(t, s, a); again != addrA {
		t.Errorf("%s before the restart, %s after", addrA, again)
	}
	must(t, "Close", m.Start(t).Close(t.Context())) // by a process that attached nothing itself
	gone(t, m)
}

func retain(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	var all []network.Pod
	for i := range 4 {
		p := pod(t, m, fmt.Sprint("u", i), network.Port{HostPort: uint16(18080 + i), ContainerPort: 80, Protocol: "TCP"})
		attach(t, s, p)
		all = append(all, p)
	}
	s = m.Start(t)
	ready(t, s)
	must(t, "Retain", s.Retain(t.Context(), []string{"u1", "u2", "unknown"}))
	x := pod(t, m, "x", all[0].Ports[0], all[3].Ports[0])
	attach(t, s, x) // u0 and u3 are gone
	if _, err := s.Attach(t.Context(), pod(t, m, "y", all[1].Ports[0])); !errors.Is(err, network.ErrPortInUse) {
		t.Error("u1 was not retained:", err)
	}
	must(t, "Retain nothing", s.Retain(t.Context(), nil))
	attach(t, s, pod(t, m, "z", all[1].Ports[0]))
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

func closeAll(t *testing.T, m Machine) {
	s := m.Start(t)
	must(t, "Close before anything", s.Close(t.Context()))
	ready(t, s)
	attach(t, s, pod(t, m, "a"))
	for range 2 {
		must(t, "Close", s.Close(t.Context()))
		gone(t, m)
	}
	ready(t, s) // and again from the begin
	attach(t, s, pod(t, m, "b"))
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

func cancelled(t *testing.T, m Machine) {
	s := m.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, aerr := s.Attach(ctx, pod(t, m, "a"))
	errs := []error{s.Ready(ctx), aerr, s.Detach(ctx, "a"), s.Retain(ctx, nil), s.Close(ctx)}
	for i, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	gone(t, m)
}

func atOnce(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	var pods []network.Pod
	for i := range 12 {
		pods = append(pods, pod(t, m, fmt.Sprint("u", i), network.Port{HostPort: uint16(18080 + i), ContainerPort: 80}))
	}
	got := make([]netip.Addr, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() {
			addrs, err := s.Attach(t.Context(), p)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = addrs[0]
			if i%2 == 1 {
				if err := s.Detach(t.Context(), p.UID); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			if err := s.Ready(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var even []netip.Addr
	for i := 0; i < len(got); i += 2 {
		even = append(even, got[i])
	}
	slices.SortFunc(even, netip.Addr.Compare)
	if len(slices.Compact(even)) != len(pods)/2 {
		t.Error("pods share addresses:", got)
	}
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}

func badPods(t *testing.T, m Machine) {
	s := m.Start(t)
	ready(t, s)
	ns := m.NetNS(t, "bad")
	for name, p := range map[string]network.Pod{
		"no UID":         {NetNS: ns},
		"port 0":         {UID: "a", NetNS: ns, Ports: []network.Port{{HostPort: 0, ContainerPort: 1}}},
		"protocol":       {UID: "a", NetNS: ns, Ports: []network.Port{{HostPort: 18080, ContainerPort: 1, Protocol: "GRE"}}},
		"twice the same": {UID: "a", NetNS: ns, Ports: []network.Port{{HostPort: 18080, ContainerPort: 1}, {HostPort: 18080, ContainerPort: 2}}},
	} {
		if _, err := s.Attach(t.Context(), p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	must(t, "Close", s.Close(t.Context()))
	gone(t, m)
}
