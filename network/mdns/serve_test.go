package mdns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network/netns"
)

// cable is two machines, each a network namespace, and a cable between them.
type cable struct {
	t     *testing.T
	ends  [2]string
	index [2]int
}

func newCable(t *testing.T) *cable {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	c := &cable{t: t}
	for i := range c.ends {
		c.ends[i] = filepath.Join(t.TempDir(), fmt.Sprint("end", i))
		c.must(os.WriteFile(c.ends[i], nil, 0o600))
		c.must(netns.InNew(func() error { return unix.Mount("/proc/thread-self/ns/net", c.ends[i], "", unix.MS_BIND, "") }))
		t.Cleanup(func() { _ = unix.Unmount(c.ends[i], unix.MNT_DETACH) })
	}
	there, err := netns.Open(c.ends[1])
	c.must(err)
	defer unix.Close(there)
	c.in(0, func() error {
		a := netlink.NewLinkAttrs()
		a.Name = "eth0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "eth0", PeerNamespace: netlink.NsFd(there)})
	})
	for i := range c.ends {
		c.in(i, func() error {
			lo, err := netlink.LinkByName("lo") // what one says to oneself
			c.must(err)
			c.must(netlink.LinkSetUp(lo))
			link, err := netlink.LinkByName("eth0")
			c.must(err)
			c.index[i] = link.Attrs().Index
			for _, text := range []string{fmt.Sprintf("192.0.2.%d/24", i+1), fmt.Sprintf("2001:db8::%d/64", i+1)} {
				addr, err := netlink.ParseAddr(text)
				c.must(err)
				addr.Flags = unix.IFA_F_NODAD
				c.must(netlink.AddrAdd(link, addr))
			}
			return netlink.LinkSetUp(link)
		})
	}
	testrun.Until(t, 5*time.Second, "the cable carries", func() (carries bool) {
		carries = true
		for i := range c.ends {
			c.in(i, func() error {
				link, err := netlink.LinkByName("eth0")
				carries = carries && err == nil && link.Attrs().OperState == netlink.OperUp
				return err
			})
		}
		return carries
	})
	return c
}

func (c *cable) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cable) in(end int, f func() error) { c.t.Helper(); c.must(netns.At(c.ends[end], f)) }

func (c *cable) links(end int) []Link {
	return []Link{{Index: c.index[end], Addresses: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", end+1)),
		netip.MustParsePrefix(fmt.Sprintf("2001:db8::%d/64", end+1))}}}
}

// served is a board at an end of the cable.
type served struct {
	mu      sync.Mutex
	labels  []string
	wanted  Wanted
	changed chan struct{}
	stop    func()
}

func (c *cable) serve(end int) *served {
	s := &served{changed: make(chan struct{}, 1), wanted: Wanted{Label: "shed", Port: 6443, Version: fmt.Sprint("v", end), State: "Ready"}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- netns.At(c.ends[end], func() error {
			return Serve(ctx, Config{Links: func() ([]Link, error) { return c.links(end), nil }, Changed: s.changed,
				Wanted: func() Wanted { s.mu.Lock(); defer s.mu.Unlock(); return s.wanted },
				Told:   func(l []string) { s.mu.Lock(); defer s.mu.Unlock(); s.labels = slices.Clone(l) }})
		})
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(s.stop)
	return s
}

func (s *served) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.labels, " ")
}

func (c *cable) find(end int) (out []string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), testrun.Patience(200*time.Millisecond))
	defer cancel()
	c.in(end, func() error {
		list, err := Find(ctx, c.links(end))
		for _, b := range list {
			out = append(out, fmt.Sprintf("%s %v %d %s %s", b.Name, b.Addresses, b.Port, b.Version, b.State))
		}
		return err
	})
	return out
}

// TestServe: two boards of one name on a real cable, found over both families from both ends; one says another word, and goodbye.
func TestServe(t *testing.T) {
	c := newCable(t)
	if got := c.find(0); len(got) > 0 {
		t.Errorf("nobody is there: %q", got)
	}
	one, two := c.serve(0), c.serve(1)
	testrun.Until(t, 20*time.Second, "both have a name", func() bool { return one.names() != "" && two.names() != "" })
	names := []string{one.names(), two.names()}
	if slices.Sort(names); !slices.Equal(names, []string{"shed", "shed-2"}) {
		t.Errorf("%q", names)
	}
	want := []string{one.names() + ".local [192.0.2.1 2001:db8::1] 6443 v0 Ready", two.names() + ".local [192.0.2.2 2001:db8::2] 6443 v1 Ready"}
	slices.Sort(want)
	for end := range c.ends {
		if got := c.find(end); !slices.Equal(got, want) {
			t.Errorf("from end %d: %q, want %q", end, got, want)
		}
	}
	c.listens(one, two)
}

// listens hears what one board says when it is told of another state, and when it ends.
func (c *cable) listens(one, two *served) {
	var ear *socket
	c.in(1, func() (err error) {
		if ear, err = listen(c.t.Context(), false, Port); err == nil {
			err = ear.join(c.links(1))
		}
		return err
	})
	defer ear.Close()
	until := func(what, words string) {
		c.t.Helper()
		buf := make([]byte, mostMessage)
		_ = ear.SetReadDeadline(time.Now().Add(testrun.Patience(5 * time.Second)))
		for {
			msg, _, from, _, err := ear.read(buf)
			if err != nil {
				c.t.Errorf("%s: %v", what, err)
				return
			}
			if from.Addr() == netip.MustParseAddr("192.0.2.1") && strings.Contains(text(c.t, Out{Msg: msg}), words) {
				return
			}
		}
	}
	one.mu.Lock()
	one.wanted.State = "NotReady"
	one.mu.Unlock()
	one.changed <- struct{}{}
	until("another state", "state=NotReady")
	one.stop()
	until("goodbye", "no more "+one.names()+" A")
	two.stop()
	if got := c.find(0); len(got) > 0 {
		c.t.Errorf("they are gone: %q", got)
	}
}

// TestPortTaken: who has the port for himself alone keeps it; who shares it is no hindrance.
func TestPortTaken(t *testing.T) {
	c := newCable(t)
	c.in(0, func() error {
		shared, err := listen(t.Context(), false, Port)
		c.must(err)
		again, err := listen(t.Context(), false, Port)
		c.must(err)
		_, _ = shared.Close(), again.Close()
		var alone []net.PacketConn
		for _, network := range []string{"udp4", "udp6"} {
			p, err := net.ListenPacket(network, fmt.Sprint(":", Port))
			c.must(err)
			alone = append(alone, p)
			defer p.Close()
		}
		if err := Serve(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "5353") || len(alone) != 2 {
			t.Errorf("a port that is taken: %v", err)
		}
		return nil
	})
}

func (c *cable) addresses(end int) (out []netip.Addr) {
	for _, p := range c.links(end)[0].Addresses {
		out = append(out, p.Addr())
	}
	return out
}
