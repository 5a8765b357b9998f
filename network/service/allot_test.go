package service

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ledge/network"
)

func port(addr string, n uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), n)
}

func TestAllot(t *testing.T) {
	svc := func(name string, created int64, to ...netip.AddrPort) network.Service {
		s := network.Service{Name: name, Created: time.Unix(created, 0)}
		for _, a := range to {
			s.Forwards = append(s.Forwards, network.Forward{To: a, Protocol: "TCP"})
		}
		return s
	}
	x, y := port("192.0.2.1", 80), port("192.0.2.1", 81)
	young, old, same := svc("a", 2, x, y), svc("b", 1, x), svc("c", 2, y)
	standing, short := Allot([]network.Service{young, same, old})
	if len(short) != 2 || short["a"] != "does not forward TCP 192.0.2.1:80 to this Service: the older Service b has it" ||
		!strings.Contains(short["c"], "the older Service a has it") || len(standing) != 2 || standing[0].Name != "b" || len(standing[1].Forwards) != 1 ||
		standing[1].Forwards[0].To != y {
		t.Errorf("%+v, short %v", standing, short)
	}
	if len(young.Forwards) != 2 {
		t.Error("what was given is changed")
	}
	if _, short := Allot([]network.Service{old, svc("d", 3, port("192.0.2.2", 80))}); len(short) > 0 {
		t.Errorf("nobody claims what another has: %v", short)
	}
}

// TestAllotBounds: however much services want, the kernel gets no more than it is meant to, and the old keep theirs.
func TestAllotBounds(t *testing.T) {
	ends := make([]netip.AddrPort, 1000)
	var all []network.Service
	for i := range 300 {
		s := network.Service{Name: "x", Created: time.Unix(int64(i), 0)}
		s.Forwards = []network.Forward{{To: port("10.96.0.1", uint16(i+1)), Protocol: "TCP", Near: ends}}
		all = append(all, s)
	}
	standing, short := Allot(all)
	total := 0
	for _, s := range standing {
		total += Weight(s)
	}
	if total > MostElements || len(short) == 0 || len(standing[0].Forwards) == 0 {
		t.Errorf("%d elements, %d short", total, len(short))
	}
}

// TestAllotIsFair: who makes as many Services as there is room for has the others keep theirs, older or younger.
func TestAllotIsFair(t *testing.T) {
	ends := make([]netip.AddrPort, 500)
	var all []network.Service
	add := func(name string, created int64, third byte) {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, third, byte(len(all))}), uint16(len(all)+1))
		all = append(all, network.Service{Name: name, Created: time.Unix(created, 0),
			Forwards: []network.Forward{{To: at, Protocol: "TCP", Near: ends}}})
	}
	for i := range 600 {
		add(fmt.Sprint("greedy/s", i), int64(1000+i), 1)
	}
	add("shop/old", 1, 2)
	add("shop/young", 5000, 2)
	add("desk/young", 5001, 3)
	standing, short := Allot(all)
	total, others, oldest := 0, 0, false
	for _, s := range standing {
		if total += Weight(s); !strings.HasPrefix(s.Name, "greedy/") {
			others++
		}
		oldest = oldest || s.Name == "greedy/s0"
	}
	if total > MostElements || total < MostElements*99/100 || others != 3 || !oldest || len(standing)+len(short) != len(all) {
		t.Errorf("%d elements, %d of 3 others, the greedy one's oldest %v, %d and %d of %d", total, others, oldest, len(standing), len(short),
			len(all))
	}
}
