package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestHeard: after any changes it holds what one holds that was told the end alone, and of nothing nothing is left.
func TestHeard(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	h, services, slices := NewHeard(), map[types.NamespacedName]*Service{}, map[types.NamespacedName]*Slice{}
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(20))}) }
	key := func() types.NamespacedName { return Key(fmt.Sprintf("n%d/s%d", r.IntN(3), r.IntN(5))) }
	for range 4000 {
		n := key()
		switch r.IntN(5) {
		case 0, 1:
			services[n] = &Service{Name: n.String(), ClusterIPs: []netip.Addr{addr()}}
			h.SetService(services[n])
		case 2:
			delete(services, n)
			h.DeleteService(n)
		case 3:
			slices[n] = &Slice{Service: key().String(), Headless: r.IntN(2) > 0, Endpoints: []Endpoint{{Addr: addr()}, {Addr: addr()}}}
			h.SetSlice(n, slices[n])
		case 4:
			delete(slices, n)
			h.SetSlice(n, nil)
		}
	}
	fresh := NewHeard()
	for _, s := range services {
		fresh.SetService(s)
	}
	for n, s := range slices {
		fresh.SetSlice(n, s)
	}
	if !reflect.DeepEqual(h.services, fresh.services) || !reflect.DeepEqual(h.slices, fresh.slices) ||
		!reflect.DeepEqual(h.namespaces, fresh.namespaces) ||
		!reflect.DeepEqual(h.sliced, fresh.sliced) || len(h.behind) != len(fresh.behind) || len(h.holders) != len(fresh.holders) {
		t.Errorf("seed %d: %+v, want %+v", seed, h, fresh)
	}
	for n := range fresh.behind {
		if len(h.Behind(n)) != len(fresh.Behind(n)) {
			t.Errorf("seed %d: %d slices of %s, want %d", seed, len(h.Behind(n)), n, len(fresh.Behind(n)))
		}
	}
	h.Keep(OfServices, nil)
	h.Keep(OfSlices, nil)
	if n := len(h.services) + len(h.slices) + len(h.behind) + len(h.namespaces) + len(h.sliced) + len(h.addressed) + len(h.holders); n != 0 {
		t.Errorf("seed %d: %d things are left of nothing: %+v", seed, n, h)
	}
}

// TestHeardBounds: a board keeps no more than it is meant to, one namespace leaves as much to others as it has, and what changes keeps its
// place.
func TestHeardBounds(t *testing.T) {
	h := NewHeard()
	fill := func(namespace string, services, slices int) {
		t.Helper()
		for i := range MostServices + 5 {
			if ok := h.SetService(&Service{Name: fmt.Sprint(namespace, "/s", i)}); ok != (i < services) {
				t.Fatalf("service %d: taken %v", i, ok)
			}
		}
		for i := range MostSlices + 5 {
			if _, ok := h.SetSlice(Key(fmt.Sprint(namespace, "/s", i)), &Slice{Service: namespace + "/s1"}); ok != (i < slices) {
				t.Fatalf("slice %d: taken %v", i, ok)
			}
		}
	}
	fill("greedy", MostServices/2, MostSlices/2)
	fill("greedy", MostServices/2, MostSlices/2)
	fill("other", MostServices/4, MostSlices/4)
	fill("third", MostServices/8, MostSlices/8)
	if len(h.Services()) > MostServices || len(h.slices) > MostSlices {
		t.Errorf("%d Services, %d slices", len(h.Services()), len(h.slices))
	}
	if !h.SetService(&Service{Name: "greedy/s1", Unready: true}) {
		t.Error("one that changes has no room")
	}
}
