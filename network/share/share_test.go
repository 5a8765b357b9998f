package share

import (
	"net/netip"
	"testing"
)

// TestPlaces: one alone has half, several have the same, and one more always something.
func TestPlaces(t *testing.T) {
	p := New(256)
	who := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	most := func(i int) (n int) {
		for p.Take(who(i)) {
			n++
		}
		return n
	}
	if n := most(0); n != 128 {
		t.Error(n)
	}
	for i := 1; p.Taken() < 255; i++ {
		if most(i) == 0 {
			t.Fatalf("nothing is left for %d after %d of 256", i, p.Taken())
		}
	}
	p.Give(who(0))
	if most(0) != 0 || most(9) != 1 { // that place is another's, who has less
		t.Error("who has much took the place that he gave back")
	}
	for w, n := range p.by {
		for range n {
			p.Give(w)
		}
	}
	if p.Taken() != 0 || len(p.by) != 0 {
		t.Error(p.Taken(), p.by)
	}
}
