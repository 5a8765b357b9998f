package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/apimachinery/pkg/types"

	"ledge/host/heap"
	"ledge/lab/bench/measure"
	"ledge/network/dns"
	"ledge/network/service"
)

// search is the list of a pod of the namespace default.
var search = []string{"default.svc.cluster.local.", "svc.cluster.local.", "cluster.local.", "lan."}

// tool runs a program to its end.
func tool(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// namesChild answers for n Services, as the agent of a board does.
func namesChild(ctx context.Context, at, resolver string, n int) error {
	debug.FreeOSMemory()
	_, empty, err := measure.PSS(os.Getpid())
	if err != nil {
		return err
	}
	fmt.Printf("%.3g\n", empty)
	go heap.Run(ctx) // as a node's
	heard := service.NewHeard()
	for i := range n {
		s, e := object(i)
		heard.SetService(service.Trim(s))
		heard.SetSlice(types.NamespacedName{Namespace: e.Namespace, Name: e.Name}, service.TrimSlice(e, "here"))
	}
	heard.Told(service.OfServices)
	heard.Told(service.OfSlices)
	zone, err := dns.NewZone(heard, "cluster.local", "here", netip.MustParseAddr("10.42.0.1"), netip.MustParsePrefix("10.42.0.0/16"),
		netip.MustParsePrefix("10.96.0.0/16"))
	if err != nil {
		return err
	}
	sockets, err := dns.Listen(ctx, netip.MustParseAddrPort(at))
	if err != nil {
		return err
	}
	server := dns.New(dns.Config{Zone: zone, Pods: netip.MustParsePrefix("127.0.0.0/8"), Stale: true,
		Searches:  func(netip.Addr) []string { return search },
		Resolvers: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(resolver)} }})
	return server.Serve(ctx, sockets)
}

func (b *bench) names(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	outside, err := newOutside()
	if err != nil {
		return err
	}
	defer outside.Close()
	theirs, missing := peer(ctx, "coredns")
	if missing != nil {
		b.skip("CoreDNS", missing)
	}
	for _, n := range []int{20, 5000} {
		at, err := freePort()
		if err != nil {
			return err
		}
		if err := b.asked(ctx, fmt.Sprintf("ledge, %d Services", n), n, at,
			self, "-child", "names", "-at", at, "-n", fmt.Sprint(n), "-resolver", outside.LocalAddr().String()); err != nil {
			return err
		}
		if missing != nil {
			continue
		}
		if err := b.askedTheirs(ctx, theirs, n, outside.LocalAddr().String()); err != nil {
			b.skip(fmt.Sprintf("CoreDNS, %d Services", n), err)
		}
	}
	return nil
}

func (b *bench) askedTheirs(ctx context.Context, binary string, n int, resolver string) error {
	at, err := freePort()
	if err != nil {
		return err
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newPlane(n), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(door) }() // until it is closed
	defer server.Close()
	_, port, _ := net.SplitHostPort(at)
	file := filepath.Join(b.dir, "Corefile")
	text := fmt.Sprintf(".:%s {\n bind 127.0.0.1\n errors\n cache 30\n kubernetes cluster.local {\n  endpoint http://%s\n }\n forward . %s\n}\n", port,
		door.Addr(), resolver)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return b.asked(ctx, fmt.Sprintf("CoreDNS, %d Services", n), n, at, binary, "-quiet", "-conf", file)
}

// asked starts a server and asks it.
func (b *bench) asked(ctx context.Context, what string, n int, at string, args ...string) error {
	pid, said, end, err := start(ctx, "", args...)
	if err != nil {
		return err
	}
	defer end()
	last := fmt.Sprintf("s%d.default.svc.cluster.local.", n-1)
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if got, err := question(at, "127.0.0.7", last); err == nil && got == 1 {
			break
		} else if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("%s does not know %s: %w", what, last, errors.Join(err, ctx.Err()))
		}
	}
	_, used, err := measure.Spent(pid)
	if err != nil {
		return err
	}
	var answered, wrong atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for w := range 16 {
		all.Go(func() {
			ask, done, err := asker(at, fmt.Sprintf("127.0.0.%d", 10+w))
			if err != nil {
				wrong.Add(1)
				return
			}
			defer done()
			for i := w; time.Since(began) < 5*time.Second && ctx.Err() == nil; i += 16 {
				if got, err := ask(fmt.Sprintf("s%d.default.svc.cluster.local.", i%n)); err != nil || got != 1 {
					wrong.Add(1)
				}
				answered.Add(1)
			}
		})
	}
	all.Wait()
	_, now, err := measure.Spent(pid)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d µs of its processor time each; 16 pods, each waits for its answer", int64((now-used)*1e6)/max(1, answered.Load()))
	if wrong.Load() > 0 {
		note += fmt.Sprintf("; %d wrong or without an answer", wrong.Load())
	}
	b.add("questions for names of the cluster", what, float64(answered.Load())/time.Since(began).Seconds(), "/s", note)
	time.Sleep(heap.First + 2*time.Second)
	before := ""
	if args[1] == "-child" {
		if before, err = said(); err != nil {
			return err
		}
		before = "; before it knew a name it had " + before
	}
	b.memory(what+", at rest after these questions", pid, before)
	return b.outsideNames(what, at)
}

// outsideNames asks for names of the world as a resolver with ndots:5 does: along the list, until a name is there.
func (b *bench) outsideNames(what, at string) error {
	ask, done, err := asker(at, "127.0.0.7")
	if err != nil {
		return err
	}
	defer done()
	var took []time.Duration
	questions := 0
	for i := range 200 {
		began := time.Now()
		name, found := fmt.Sprintf("h%d.example.com.", i), false
		for _, suffix := range append(search[:len(search):len(search)], "") {
			questions++
			got, err := ask(name + suffix)
			if err != nil {
				return err
			}
			if found = got > 0; found {
				break
			}
		}
		if !found {
			return fmt.Errorf("%s does not find %s", what, name)
		}
		took = append(took, time.Since(began))
	}
	b.add("an outside name from a pod (ndots:5)", what, middle(took), "ms", fmt.Sprintf("%.3g questions of each kind (A, AAAA)", float64(questions)/200))
	return nil
}

func question(at, from, name string) (int, error) {
	ask, done, err := asker(at, from)
	if err != nil {
		return 0, err
	}
	defer done()
	return ask(name)
}

// asker asks from one address; it gives how many addresses the answer has.
func asker(at, from string) (ask func(string) (int, error), done func(), err error) {
	c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}).Dial("udp", at)
	if err != nil {
		return nil, nil, err
	}
	buf, id := make([]byte, 4096), uint16(0)
	return func(name string) (int, error) {
		id++
		n, err := dnsmessage.NewName(name)
		if err != nil {
			return 0, err
		}
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true},
			Questions: []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		out, err := m.Pack()
		if err != nil {
			return 0, err
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write(out); err != nil {
			return 0, err
		}
		size, err := c.Read(buf)
		if err != nil {
			return 0, err
		}
		var got dnsmessage.Message
		if err := got.Unpack(buf[:size]); err != nil || got.ID != id {
			return 0, fmt.Errorf("another answer: %v", err)
		}
		addresses := 0
		for _, a := range got.Answers {
			if a.Header.Type == dnsmessage.TypeA {
				addresses++
			}
		}
		return addresses, nil
	}, func() { _ = c.Close() }, nil
}

// newOutside is a resolver that knows all of example.com and nothing else.
func newOutside() (net.PacketConn, error) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, who, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			q := m.Questions[0]
			switch is := strings.HasSuffix(q.Name.String(), ".example.com."); {
			case is && q.Type == dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60},
					Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}}}
			case !is:
				m.RCode = dnsmessage.RCodeNameError
			}
			if out, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(out, who) // it asks again
			}
		}
	}()
	return c, nil
}

func freePort() (string, error) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return c.LocalAddr().String(), c.Close()
}
