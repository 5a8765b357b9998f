package networktest

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"ledge/network"
)

// Board is a machine to try a Forwarder on.
type Board struct {
	// Start is a process that comes up: the Forwarder it would use. Called again it is the next process of the same boot.
	Start func() network.Forwarder
	// Holds fails unless exactly these services are forwarded.
	Holds func(all []network.Service) error
	// Left lists what is still there.
	Left func() []string
}

// RunForwarder tries everything. on runs a test on a fresh board.
func RunForwarder(t *testing.T, on func(t *testing.T, do func(Board))) {
	for name, try := range map[string]func(*testing.T, Board){
		"Update": updates, "Restart": restarts, "Older": olderFirst, "Nothing": nothing, "CancelledForwarder": cancelledForwarder,
	} {
		t.Run(name, func(t *testing.T) { on(t, func(b Board) { try(t, b) }) })
	}
}

// service is one whose endpoints can be told apart.
func service(name, addr string, created int64, ends ...string) network.Service {
	a := netip.MustParseAddr(addr)
	f := network.Forward{To: netip.AddrPortFrom(a, 80), Protocol: "TCP"}
	for _, e := range ends {
		f.Near = append(f.Near, netip.MustParseAddrPort(e))
	}
	return network.Service{Name: name, Created: time.Unix(created, 0), ClusterIPs: []netip.Addr{a}, Forwards: []network.Forward{f}}
}

func (b Board) holds(t *testing.T, what string, err error, all ...network.Service) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if err := b.Holds(all); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func updates(t *testing.T, b Board) {
	f := b.Start()
	one, two := service("a/one", "10.96.0.1", 1, "10.42.0.2:80"), service("a/two", "fd96::2", 2, "[fd42::2]:80", "[fd42::3]:80")
	b.holds(t, "two come", f.Update(t.Context(), []network.Service{one, two}), one, two)
	b.holds(t, "again", f.Update(t.Context(), []network.Service{one, two}), one, two)
	more := service("a/one", "10.96.0.1", 1, "10.42.0.2:80", "10.42.0.3:80")
	b.holds(t, "an endpoint comes", f.Update(t.Context(), []network.Service{more}), more, two)
	none := service("a/one", "10.96.0.1", 1)
	b.holds(t, "all endpoints go", f.Update(t.Context(), []network.Service{none}), none, two)
	moved := service("a/one", "10.96.0.9", 1, "10.42.0.2:80")
	b.holds(t, "another address", f.Update(t.Context(), []network.Service{moved}), moved, two)
	b.holds(t, "one goes", f.Update(t.Context(), []network.Service{{Name: "a/two"}}), moved)
	b.holds(t, "it was not there", f.Update(t.Context(), []network.Service{{Name: "a/two"}, {Name: "a/never"}}), moved)
}

func restarts(t *testing.T, b Board) {
	one, two, three := service("a/one", "10.96.0.1", 1, "10.42.0.2:80"), service("a/two", "10.96.0.2", 2), service("a/three", "10.96.0.3", 3, "10.42.0.3:80")
	b.holds(t, "before", b.Start().Update(t.Context(), []network.Service{one, two}), one, two)
	f := b.Start()
	if is, err := f.Stands(t.Context()); !is || err != nil {
		t.Errorf("what the process before has made does not stand: %v", err)
	}
	b.holds(t, "one went and one came meanwhile", f.Prune(t.Context(), []network.Service{two, three}), two, three)
	b.holds(t, "an update after it", f.Update(t.Context(), []network.Service{one}), one, two, three)
	b.holds(t, "prune is all there is", f.Prune(t.Context(), []network.Service{one}), one)
}

// olderFirst: of two that claim one address and port the older has it, whoever came first; when it goes the other gets it.
func olderFirst(t *testing.T, b Board) {
	f := b.Start()
	old, young := service("a/old", "10.96.0.1", 1, "10.42.0.2:80"), service("a/young", "10.96.0.1", 2, "10.42.0.3:80")
	short := func(names ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(f.Short())); !slices.Equal(got, names) {
			t.Errorf("%q go without, want %q", got, names)
		}
	}
	b.holds(t, "young alone", f.Update(t.Context(), []network.Service{young}), young)
	short()
	b.holds(t, "old comes", f.Update(t.Context(), []network.Service{old}), old)
	short("a/young")
	b.holds(t, "old goes", f.Update(t.Context(), []network.Service{{Name: "a/old"}}), young)
	short()
	b.holds(t, "old comes again", f.Prune(t.Context(), []network.Service{old, young}), old)
	short("a/young")
	b.holds(t, "all go", f.Prune(t.Context(), nil))
	short()
}

func nothing(t *testing.T, b Board) {
	f := b.Start()
	gone := func(what string, err error) {
		t.Helper()
		if left := b.Left(); err != nil || len(left) > 0 {
			t.Errorf("%s: left %q, %v", what, left, err)
		}
		if is, err := f.Stands(t.Context()); is || err != nil {
			t.Errorf("%s: something stands: %v", what, err)
		}
	}
	gone("no services", f.Prune(t.Context(), nil))
	gone("delete nothing", f.Delete(t.Context()))
	one := service("a/one", "10.96.0.1", 1, "10.42.0.2:80")
	b.holds(t, "one", f.Update(t.Context(), []network.Service{one}), one)
	gone("delete, by another process", b.Start().Delete(t.Context()))
	b.holds(t, "the first finds out", f.Prune(t.Context(), []network.Service{one}), one)
	gone("no services any more", f.Prune(t.Context(), nil))
}

func cancelledForwarder(t *testing.T, b Board) {
	f := b.Start()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	one := []network.Service{service("a/one", "10.96.0.1", 1, "10.42.0.2:80")}
	for _, err := range []error{f.Update(ctx, one), f.Prune(ctx, one), f.Delete(ctx)} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if left := b.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
