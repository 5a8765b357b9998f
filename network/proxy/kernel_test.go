package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/netns"
	"ledge/network/networktest"
	"ledge/network/nft"
	"ledge/network/service"
)

// alone runs f in a network namespace of its own.
func alone(t testing.TB, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	err := netns.InNew(func() error {
		f()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func at(addr string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
}

// many are services with two endpoints each.
func many(n int) []network.Service {
	out := make([]network.Service, n)
	for i := range out {
		a := netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})
		ends := []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)}), 8080),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 43, byte(i >> 8), byte(i)}), 8080)}
		out[i] = network.Service{Name: fmt.Sprint("default/s", i), Created: time.Unix(int64(i), 0), ClusterIPs: []netip.Addr{a},
			Forwards: []network.Forward{{To: netip.AddrPortFrom(a, 80), Protocol: "TCP", Near: ends}}}
	}
	return out
}

// every is a service with everything that makes rules of its own.
func every() network.Service {
	a, b, c := at("10.42.0.2", 80), at("10.42.0.3", 80), at("10.42.1.2", 80)
	return network.Service{Name: "default/every", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.1.1"), netip.MustParseAddr("fd96::1")},
		Forwards: []network.Forward{
			{To: at("10.96.1.1", 80), Protocol: "TCP", Near: []netip.AddrPort{a, b, c}, Sticky: time.Hour},
			{To: at("10.96.1.1", 53), Protocol: "UDP", Near: []netip.AddrPort{a, b}},
			{To: at("10.96.1.1", 54), Protocol: "SCTP", Drop: true},
			{To: at("fd96::1", 80), Protocol: "TCP", Near: []netip.AddrPort{at("fd42::2", 80)}},
			{To: at("0.0.0.0", 30080), Protocol: "TCP", Near: []netip.AddrPort{a, b, c}, Far: []netip.AddrPort{a}, Outside: true, Drop: true},
			{To: at("192.0.2.1", 80), Protocol: "TCP", Near: []netip.AddrPort{a, b}, Far: []netip.AddrPort{a, b}, Outside: true, Masquerade: true,
				Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}}}
}

// holds fails unless the kernel has exactly what these services want.
func holds(t *testing.T, what string, all []network.Service) {
	t.Helper()
	p := New(Config{Bridge: "ledge0"})
	defer p.nft.Drop()
	standing, _ := service.Allot(all)
	b, err := p.compare(standing)
	if err != nil || !b.empty() {
		t.Errorf("%s: the kernel has not what is wanted: %+v, %v", what, b, err)
	}
}

func generation(t *testing.T) uint32 {
	t.Helper()
	gen, err := nft.Generation()
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

func try(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// TestSuite holds the kernel's forwarding to the contract.
func TestSuite(t *testing.T) {
	networktest.RunForwarder(t, func(t *testing.T, do func(networktest.Board)) {
		alone(t, func() {
			do(networktest.Board{
				Start: func() network.Forwarder { return New(Config{Bridge: "ledge0"}) },
				Holds: func(all []network.Service) error {
					p := New(Config{Bridge: "ledge0"})
					defer p.nft.Drop()
					standing, _ := service.Allot(all)
					b, err := p.compare(standing)
					if err == nil && !b.empty() {
						err = fmt.Errorf("the kernel has not what is wanted: %+v", b)
					}
					return err
				},
				Left: func() (out []string) {
					c, _ := nftables.New()
					tables, err := c.ListTables()
					try(t, "list tables", err)
					for _, table := range tables {
						out = append(out, table.Name)
					}
					return out
				},
			})
		})
	})
}

// TestRestartChangesNothing: what is right is read, and left.
func TestRestartChangesNothing(t *testing.T) {
	alone(t, func() {
		all := append(many(20), every())
		p := New(Config{Bridge: "ledge0"})
		try(t, "Update", p.Update(t.Context(), all))
		holds(t, "after Update", all)
		gen := generation(t)
		again := New(Config{Bridge: "ledge0"})
		for range 2 {
			try(t, "Prune", again.Prune(t.Context(), all))
		}
		try(t, "the same Update", again.Update(t.Context(), all))
		if now := generation(t); now != gen {
			t.Errorf("%d transactions though nothing is other than it should be", now-gen)
		}
		try(t, "Delete", again.Delete(t.Context()))
	})
}

// TestHarmIsHealed: whatever others, or a crash, did to the table, Prune makes it right, and an Update that meets harm does.
func TestHarmIsHealed(t *testing.T) {
	alone(t, func() {
		all := append(many(3), every())
		p := New(Config{Bridge: "ledge0"})
		try(t, "Update", p.Update(t.Context(), all))
		table := &nftables.Table{Name: p.table, Family: nftables.TableFamilyIPv4}
		sets := map[string]*nftables.Set{}
		for _, s := range (family{}).sets(table) {
			sets[s.Name] = s
		}
		for what, harm := range map[string]func(*nftables.Conn){
			"ruleset flushed": func(c *nftables.Conn) { c.FlushRuleset() },
			"table deleted":   func(c *nftables.Conn) { c.DelTable(table) },
			"rules flushed":   func(c *nftables.Conn) { c.FlushTable(table) },
			"pick flushed":    func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Name: "pick-2", Table: table}) },
			"near flushed":    func(c *nftables.Conn) { c.FlushSet(sets[setNear]) },
			"endpoints gone":  func(c *nftables.Conn) { c.FlushSet(sets[setEndpoints]) },
			"stranger's element": func(c *nftables.Conn) {
				_ = c.SetAddElements(sets[setClusterIP], []nftables.SetElement{{Key: []byte{192, 0, 2, 9}}})
			},
			"chain of an older version": func(c *nftables.Conn) { c.AddChain(&nftables.Chain{Name: "pick-77", Table: table}) },
		} {
			c, err := nftables.New()
			try(t, what, err)
			harm(c)
			try(t, what, c.Flush())
			try(t, what, p.Prune(t.Context(), all))
			holds(t, what, all)
		}
		c, _ := nftables.New()
		c.DelTable(table)
		try(t, "delete", c.Flush())
		changed := every()
		changed.Forwards = changed.Forwards[1:]
		all[3] = changed
		try(t, "Update after harm", p.Update(t.Context(), all[3:]))
		holds(t, "Update after harm", all)
		try(t, "Delete", p.Delete(t.Context()))
	})
}

// TestChangesArriveAtWhatIsWanted: whatever order services come, change and go in, the kernel ends with what a fresh start makes.
func TestChangesArriveAtWhatIsWanted(t *testing.T) {
	alone(t, func() {
		p := New(Config{Bridge: "ledge0"})
		all := append(many(8), every())
		rival := many(1)[0] // claims what s0 has
		rival.Name = "default/rival"
		wanted := map[string]network.Service{}
		for step := range 200 {
			i := step * 7 % (len(all) + 1)
			s := rival
			if i < len(all) {
				s = all[i]
			}
			switch step % 5 {
			case 0:
				s.Forwards, s.ClusterIPs = nil, nil
			case 1, 2:
				f := slices.Clone(s.Forwards)
				f[0].Near = f[0].Near[step%2:]
				s.Forwards = f
			}
			if wanted[s.Name] = s; empty(s) {
				delete(wanted, s.Name)
			}
			try(t, "Update", p.Update(t.Context(), []network.Service{s}))
			if step%20 == 19 {
				var now []network.Service
				for _, s := range wanted {
					now = append(now, s)
				}
				holds(t, fmt.Sprint("step ", step), now)
			}
		}
		try(t, "Delete", p.Delete(t.Context()))
	})
}

// TestUnusedChainsGo: the start after services left has no chains of theirs.
func TestUnusedChainsGo(t *testing.T) {
	alone(t, func() {
		p := New(Config{Bridge: "ledge0"})
		try(t, "Update", p.Update(t.Context(), append(many(1), every())))
		try(t, "Prune", New(Config{Bridge: "ledge0"}).Prune(t.Context(), many(1)))
		for range 100 { // older kernels hold them for a moment
			q := New(Config{Bridge: "ledge0"})
			try(t, "Prune", q.Prune(t.Context(), many(1)))
			if len(q.chains) == 1 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("chains that nobody uses stay")
	})
}

// TestFewerEndpointsThanDrawn: a connection that was led to eight endpoints, and meets what is left of them after the next transaction,
// gets one that stays. Each lookup of the kernel sees the transaction that counts at that moment.
func TestFewerEndpointsThanDrawn(t *testing.T) {
	for what, sticky := range map[string]time.Duration{"any": 0, "sticky": time.Hour} {
		t.Run(what, func(t *testing.T) {
			alone(t, func() {
				lo, err := netlink.LinkByName("lo")
				try(t, "lo", err)
				try(t, "lo", netlink.LinkSetUp(lo))
				end := at("10.42.0.1", 8080)
				try(t, "address", netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(end.Addr().AsSlice())}))
				try(t, "route", netlink.RouteAdd(&netlink.Route{Dst: netlink.NewIPNet(net.IPv4(10, 96, 1, 1)), LinkIndex: lo.Attrs().Index}))
				l, err := net.Listen("tcp4", end.String())
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				s := every()
				s.Forwards = s.Forwards[:1]
				f := &s.Forwards[0]
				f.Sticky, f.Near = sticky, slices.Repeat([]netip.AddrPort{end}, 8)
				p := New(Config{Bridge: "ledge0"})
				try(t, "Update", p.Update(t.Context(), []network.Service{s}))
				var gone []element
				for _, e := range compile(s).elements {
					if e.set == setEndpoints && !strings.HasSuffix(e.key, number(0)) {
						gone = append(gone, e)
					}
				}
				if len(gone) != 7 {
					t.Fatalf("%d elements", len(gone))
				}
				try(t, "apply", p.apply(batch{remove: gone}))
				for range 30 {
					c, err := net.DialTimeout("tcp4", f.To.String(), testrun.Patience(5*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					try(t, "close", c.Close())
				}
			})
		})
	}
}

// TestWithoutIPv6: a kernel that takes nothing of IPv6 forwards IPv4 all the same, now and after each change, and IPv6 once it takes that.
func TestWithoutIPv6(t *testing.T) {
	alone(t, func() {
		p := New(Config{Bridge: "ledge0"})
		defer p.nft.Drop()
		both, more := every(), many(2)
		// A table that belongs to another process as long as that lives stands for a kernel that refuses.
		other := exec.Command("nft", "-i")
		in, err := other.StdinPipe()
		try(t, "nft", err)
		try(t, "nft", other.Start())
		_, err = fmt.Fprintf(in, "add table ip6 %s { flags owner; }\n", p.table)
		try(t, "nft", err)
		testrun.Until(t, 10*time.Second, "the table is another's", func() bool {
			there, err := p.there(family{v6: true})
			return there && err == nil
		})
		half := func(what string, err error) {
			t.Helper()
			var h *network.HalfForwarded
			if !errors.As(err, &h) || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "IPv4 only") {
				t.Errorf("%s: %v", what, err)
			}
		}
		of4 := func() (n int) {
			c, err := p.nft.Get()
			try(t, "netlink", err)
			table := &nftables.Table{Name: p.table, Family: nftables.TableFamilyIPv4}
			set, err := c.GetSetByName(table, setNear)
			try(t, "set", err)
			elements, err := c.GetSetElements(set)
			try(t, "elements", err)
			return len(elements)
		}
		half("prune", p.Prune(t.Context(), []network.Service{both}))
		was := of4()
		half("update", p.Update(t.Context(), more))
		if is := of4(); was == 0 || is != was+len(more) {
			t.Errorf("%d elements of IPv4, then %d", was, is)
		}
		half("prune again", p.Prune(t.Context(), append(many(2), both)))
		half("one goes", p.Update(t.Context(), []network.Service{{Name: more[0].Name}}))
		if is := of4(); is != was+1 {
			t.Errorf("one has gone: %d elements, want %d", is, was+1)
		}
		try(t, "the other ends", in.Close())
		try(t, "the other ends", other.Wait())
		try(t, "both families", p.Prune(t.Context(), []network.Service{both, more[1]}))
		holds(t, "both families", []network.Service{both, more[1]})
		try(t, "nothing is missing", p.Update(t.Context(), []network.Service{more[0]}))
	})
}

// TestTry: this kernel can do what doctor asks it for.
func TestTry(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, trial := range Try() {
		try(t, trial.Name, trial.Err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := New(Config{Bridge: "ledge0"})
	for _, err := range []error{p.Update(ctx, nil), p.Prune(ctx, nil), p.Delete(ctx)} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// BenchmarkServices is the time to give the kernel all of them, to find all of them right after a restart, and to change one.
func BenchmarkServices(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		all := many(n)
		changed := [2]network.Service{all[n/2], all[n/2]}
		changed[1].Forwards = slices.Clone(changed[1].Forwards)
		changed[1].Forwards[0].Near = append(slices.Clone(changed[1].Forwards[0].Near), at("10.44.0.1", 80))
		check := func(err error) {
			if err != nil {
				b.Error(err)
			}
		}
		b.Run(fmt.Sprintf("%d/all", n), func(b *testing.B) {
			alone(b, func() {
				for b.Loop() {
					p := New(Config{Bridge: "ledge0"})
					check(p.Prune(b.Context(), all))
					b.StopTimer()
					check(p.Delete(b.Context()))
					b.StartTimer()
				}
			})
		})
		b.Run(fmt.Sprintf("%d/restart", n), func(b *testing.B) {
			alone(b, func() {
				check(New(Config{Bridge: "ledge0"}).Prune(b.Context(), all))
				for b.Loop() {
					check(New(Config{Bridge: "ledge0"}).Prune(b.Context(), all))
				}
			})
		})
		b.Run(fmt.Sprintf("%d/one", n), func(b *testing.B) {
			alone(b, func() {
				p := New(Config{Bridge: "ledge0"})
				check(p.Prune(b.Context(), all))
				for i := 0; b.Loop(); i++ {
					check(p.Update(b.Context(), changed[i%2:i%2+1]))
				}
			})
		})
	}
}
