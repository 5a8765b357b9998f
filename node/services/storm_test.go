package services

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/internal/testrun"
	"ledge/network/fake"
	"ledge/network/netns"
	"ledge/network/nft"
	"ledge/network/proxy"
)

// The Services of a storm: clients ask the steady ones, whose endpoints come and go around two that stay; the guarded ones have other
// sources each time; the passing ones come and go themselves.
const steady, guarded, passing = 30, 10, 20

// storm is one board with a kernel of its own.
type storm struct {
	*testing.T
	plane *plane
	loop  *Loop
	told  *counted
	ns    string // path of its network
	rng   *rand.Rand

	asked, lost atomic.Int64
	last        atomic.Value // what was lost last
}

// TestStorm: 200 changes a second reach the kernel, ten transactions a second; what it has in the end is what a start would give it, and
// no client of an endpoint that stays is refused meanwhile. LEDGE_LONG makes it a minute.
func TestStorm(t *testing.T) {
	testrun.Measured(t)
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	rounds := 1
	if os.Getenv("LEDGE_LONG") != "" {
		rounds = 30
	}
	err := netns.InNew(func() error {
		s := &storm{T: t, plane: newPlane(), ns: fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()),
			rng: rand.New(rand.NewPCG(1, 2))}
		s.addresses()
		s.told = &counted{Forwarder: proxy.New(proxy.Config{Bridge: "ledge0", NetNS: s.ns})}
		s.loop = New(Config{Client: s.plane, Forwarder: s.told, Node: "here"})
		for i := range steady + guarded + passing {
			s.change(i)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { _ = s.loop.Run(ctx) })
		defer done.Wait()
		defer cancel()
		s.settled()
		for range 2 {
			done.Go(func() { s.asks(ctx) })
		}
		s.blows(rounds)
		if s.lost.Load() > 0 || s.asked.Load() < 100 {
			t.Errorf("%d of %d connections were lost, the last: %v", s.lost.Load(), s.asked.Load(), s.last.Load())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *storm) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// addresses has the kernel of this network answer at those of all pods, on one port, and know a way to all Services.
func (s *storm) addresses() {
	lo, err := netlink.LinkByName("lo")
	s.must(err)
	s.must(netlink.LinkSetUp(lo))
	for i := range 20 {
		a, err := netlink.ParseAddr(fmt.Sprintf("10.42.0.%d/32", i+1))
		s.must(err)
		s.must(netlink.AddrAdd(lo, a))
	}
	_, dst, err := net.ParseCIDR("10.96.0.0/16")
	s.must(err)
	s.must(netlink.RouteAdd(&netlink.Route{Dst: dst, LinkIndex: lo.Attrs().Index, Src: net.ParseIP("10.42.0.20")}))
	l, err := net.Listen("tcp4", ":8080")
	s.must(err)
	s.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "here")
			_ = c.Close()
		}
	}()
}

func (s *storm) address(i int) string { return fmt.Sprintf("10.96.0.%d", i+1) }

// change makes one Service, or its endpoints, other than before.
func (s *storm) change(i int) {
	name := fmt.Sprint("s", i)
	v := svc(name, s.address(i))
	switch {
	case i >= steady+guarded && s.rng.IntN(2) == 0:
		s.plane.remove(api.Services, v)
	case i >= steady+guarded:
		s.plane.put(api.Services, v)
	case i >= steady:
		v.Spec.Type = corev1.ServiceTypeLoadBalancer
		v.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("192.0.2.%d", i)}}
		v.Spec.LoadBalancerSourceRanges = []string{netip.AddrFrom4([4]byte{10, 1, byte(s.rng.IntN(256)), byte(s.rng.IntN(256))}).String() + "/32"}
		s.plane.put(api.Services, v)
	default:
		s.plane.put(api.Services, v)
	}
	ends := []string{"10.42.0.1", "10.42.0.2"}
	for k := range 8 {
		if s.rng.IntN(2) == 0 {
			ends = append(ends, fmt.Sprint("10.42.0.", 3+k))
		}
	}
	s.plane.put(discovery.EndpointSlices, slice(name+"-a", name, ends...))
}

// asks is a client that makes one connection after the other, some 200 a second.
func (s *storm) asks(ctx context.Context) {
	s.must(netns.At(s.ns, func() error {
		for i := 0; ctx.Err() == nil; i++ {
			if err := s.ask(s.address(i % steady)); err != nil {
				s.lost.Add(1)
				s.last.Store(err.Error())
			}
			s.asked.Add(1)
			time.Sleep(4 * time.Millisecond)
		}
		return nil
	}))
}

func (s *storm) ask(address string) error {
	c, err := net.DialTimeout("tcp4", address+":80", testrun.Patience(5*time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.ReadAll(c)
	return err
}

// blows makes 200 changes a second, and looks in between.
func (s *storm) blows(rounds int) {
	const perRound, every = 400, 5 * time.Millisecond
	for range rounds {
		before, spent, began := s.generation(), used(), time.Now()
		tick := time.NewTicker(every)
		for range perRound {
			<-tick.C
			i := s.rng.IntN(steady + guarded + passing)
			if s.rng.IntN(3) == 0 {
				i = steady + s.rng.IntN(guarded)
			}
			s.change(i)
		}
		tick.Stop()
		took := time.Since(began)
		if n := int(s.generation() - before); n < 5 || n > int(took/pause)*2+2 {
			s.Errorf("%d transactions in %v", n, took)
		}
		spent = used() - spent
		s.Logf("%v of processor in %v, with the clients", spent, took)
		if spent > testrun.Patience(took) {
			s.Errorf("a processor is not enough")
		}
		s.settled()
		// base, ways to pick, sources of the guarded, and those that they had: the look of each minute removes the last of them
		if n := s.chains(); n > 9+20+guarded+80 {
			s.Errorf("%d chains stand", n)
		}
		s.holds()
	}
}

// settled waits until the Loop has told the kernel everything.
func (s *storm) settled() {
	testrun.Until(s, 30*time.Second, "all is told", func() bool {
		s.loop.mu.Lock()
		idle := len(s.loop.dirty) == 0 && !s.loop.all
		s.loop.mu.Unlock()
		was := s.told.counts()
		time.Sleep(2 * pause)
		return idle && s.told.counts() == was && was != [3]int{}
	})
}

// holds has the Loop look, as it does each minute, and fails if a start would have the kernel change anything then.
func (s *storm) holds() {
	before := s.told.counts()
	s.loop.again()
	poke(s.loop.wake)
	testrun.Until(s, 30*time.Second, "the look of each minute", func() bool { return s.told.counts()[1] > before[1] })
	s.settled()
	k := &fake.Kernel{}
	ctx, cancel := context.WithCancel(s.Context())
	afresh := New(Config{Client: s.plane, Forwarder: fake.NewForwarder(k), Node: "here"})
	done := make(chan error)
	go func() { done <- afresh.Run(ctx) }()
	testrun.Until(s, 30*time.Second, "a start", func() bool { return len(k.Services()) >= steady+guarded })
	cancel()
	s.must(<-done)
	gen := s.generation()
	s.must(proxy.New(proxy.Config{Bridge: "ledge0", NetNS: s.ns}).Prune(s.Context(), k.Services()))
	if now := s.generation(); now != gen {
		s.Errorf("a start changes the rules in %d transactions", now-gen)
	}
}

// generation counts the transactions of this network; none but ours are made there.
func (s *storm) generation() uint32 {
	gen, err := nft.Generation()
	s.must(err)
	return gen
}

func (s *storm) chains() int {
	c, err := nftables.New()
	s.must(err)
	all, err := c.ListChains()
	s.must(err)
	return len(all)
}

// used is the processor time of this process so far.
func used() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
