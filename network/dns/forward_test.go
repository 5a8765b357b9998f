package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver stands for one of the board's: say gives the messages that it sends to a question, none to keep silent.
type resolver struct {
	at  netip.AddrPort
	mu  sync.Mutex
	ids map[uint16]bool
	out map[uint16]bool // ports
	n   int
}

func startResolver(t testing.TB, say func(m dnsmessage.Message, tcp bool) []dnsmessage.Message) *resolver {
	t.Helper()
	at, err := listenSomewhere(t)
	if err != nil {
		t.Fatal(err)
	}
	conn, l, err := at.open()
	if err != nil {
		t.Fatal(err)
	}
	_ = at.Close()
	r := &resolver{at: conn.LocalAddr().(*net.UDPAddr).AddrPort(), ids: map[uint16]bool{}, out: map[uint16]bool{}}
	var wg sync.WaitGroup
	t.Cleanup(func() { _, _ = conn.Close(), l.Close(); wg.Wait() })
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			r.note(buf[:n], from.Port())
			for _, out := range answers(t, buf[:n], say, false) {
				_, _ = conn.WriteToUDPAddrPort(out, from)
			}
		}
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if msg, err := readTCP(c, tcpSize); err == nil {
				for _, out := range answers(t, msg, say, true) {
					_ = writeTCP(c, out)
				}
			}
			_ = c.Close()
		}
	})
	return r
}

// listenSomewhere finds a port that is free for both.
func listenSomewhere(t testing.TB) (s Sockets, err error) {
	for range 20 {
		if s, err = Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0")); err == nil {
			break
		}
	}
	return s, err
}

func (r *resolver) note(msg []byte, port uint16) {
	var m dnsmessage.Message
	_ = m.Unpack(msg)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[m.ID], r.out[port] = true, true
	r.n++
}

func (r *resolver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func answers(t testing.TB, msg []byte, say func(dnsmessage.Message, bool) []dnsmessage.Message, tcp bool) (out [][]byte) {
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil {
		t.Errorf("a resolver was sent %x: %v", msg, err)
		return nil
	}
	m.Response = true
	for _, a := range say(m, tcp) {
		b, err := a.Pack()
		if err != nil {
			t.Error(err)
		}
		out = append(out, b)
	}
	return out
}

// with is the answer of a resolver to m.
func with(m dnsmessage.Message, addr string, seconds uint32) dnsmessage.Message {
	m.Answers = lasting(m.Questions[0], seconds, addr).Records
	return m
}

func forwarderTo(stale bool, to ...*resolver) *forwarder {
	return &forwarder{stale: stale, dial: new(net.Dialer).DialContext, resolvers: func() []netip.AddrPort {
		var list []netip.AddrPort
		for _, r := range to {
			list = append(list, r.at)
		}
		return list
	}}
}

func always(addr string) func(dnsmessage.Message, bool) []dnsmessage.Message {
	return func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		return []dnsmessage.Message{with(m, addr, 60)}
	}
}

// TestManyRecords: an answer in which names are pointers to one another is read into forty times its bytes; from whom a pod may ask such
// answers, 128 at a time, it takes no more than an answer may have.
func TestManyRecords(t *testing.T) {
	for n, want := range map[int]bool{mostRecords: true, mostRecords + 1: false, 4000: false} {
		r := startResolver(t, func(m dnsmessage.Message, tcp bool) []dnsmessage.Message {
			m.Response, m.Additionals = true, nil
			if m.Truncated = !tcp; tcp {
				for range n {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(m.Questions[0].Name, dnsmessage.TypeMX, 60),
						Body: &dnsmessage.MXResource{MX: m.Questions[0].Name}})
				}
			}
			return []dnsmessage.Message{m}
		})
		q := dnsmessage.Question{Name: dnsmessage.MustNewName("many.example.com."), Type: dnsmessage.TypeMX, Class: dnsmessage.ClassINET}
		a, err := forwarderTo(false, r).askOne(t.Context(), r.at, q)
		if (err == nil) != want || want && len(a.Records) != n {
			t.Errorf("%d records: %d, %v", n, len(a.Records), err)
		}
	}
}

// TestForgedAnswersAreNotBelieved: of all that comes back only what has the number, the question and the place counts.
func TestForgedAnswersAreNotBelieved(t *testing.T) {
	r := startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		id, name, kind, question := with(m, "192.0.2.66", 60), with(m, "192.0.2.66", 60), with(m, "192.0.2.66", 60), with(m, "192.0.2.66", 60)
		id.ID++
		name.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("evil.example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
		kind.Questions = []dnsmessage.Question{{Name: m.Questions[0].Name, Type: dnsmessage.TypeAAAA, Class: dnsmessage.ClassINET}}
		question.Response = false
		return []dnsmessage.Message{id, name, kind, question, with(m, "192.0.2.1", 60)}
	})
	f := forwarderTo(true, r)
	a, err := f.ask(t.Context(), question("www.example.com.", "A"))
	if err != nil || said(a) != "192.0.2.1" {
		t.Fatal(said(a), err)
	}
	for i := range 30 {
		if _, err := f.ask(t.Context(), question(string(rune('a'+i%26))+string(rune('a'+i/26))+".example.com.", "A")); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) < 25 || len(r.out) < 20 {
		t.Errorf("31 questions came with %d numbers from %d ports", len(r.ids), len(r.out))
	}
}

// TestResolversThatFail: the next one is asked, at once where the first is not there.
func TestResolversThatFail(t *testing.T) {
	good := startResolver(t, always("192.0.2.1"))
	gone := &resolver{at: netip.MustParseAddrPort("127.0.0.1:9")}
	refuses := startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		m.RCode = dnsmessage.RCodeRefused
		return []dnsmessage.Message{m}
	})
	old := startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		if len(m.Additionals) > 0 {
			m.Additionals, m.RCode = nil, dnsmessage.RCodeFormatError
			return []dnsmessage.Message{m}
		}
		return []dnsmessage.Message{with(m, "192.0.2.2", 60)}
	})
	short := startResolver(t, func(m dnsmessage.Message, tcp bool) []dnsmessage.Message {
		if !tcp {
			m.Truncated = true
			return []dnsmessage.Message{m}
		}
		return []dnsmessage.Message{with(m, "192.0.2.3", 60)}
	})
	for _, c := range []struct {
		what string
		to   []*resolver
		want string
	}{
		{"not there", []*resolver{gone, good}, "192.0.2.1"}, {"refuses", []*resolver{refuses, good}, "192.0.2.1"},
		{"without EDNS0", []*resolver{old}, "192.0.2.2"}, {"over TCP", []*resolver{short}, "192.0.2.3"},
	} {
		f := forwarderTo(true, c.to...)
		a, err := f.ask(t.Context(), question("www.example.com.", "A"))
		if err != nil || said(a) != c.want || f.last != c.to[len(c.to)-1].at {
			t.Errorf("%s: %s, %v, last %s", c.what, said(a), err, f.last)
		}
		if list := f.inOrder(); list[0] != c.to[len(c.to)-1].at || len(list) != len(c.to) {
			t.Errorf("%s: asked next: %v", c.what, list)
		}
	}
	for _, to := range [][]*resolver{nil, {gone}, {refuses}} {
		f := forwarderTo(true, to...)
		if _, err := f.ask(t.Context(), question("www.example.com.", "A")); !errors.Is(err, errNobody) {
			t.Error(err)
		}
	}
}

// TestOldAnswers: what has run out is asked anew, and is better than nothing while nobody answers; by choice.
func TestOldAnswers(t *testing.T) {
	var mu sync.Mutex
	dead := false
	r := startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		mu.Lock()
		defer mu.Unlock()
		if m.RCode = dnsmessage.RCodeServerFailure; dead {
			return []dnsmessage.Message{m}
		}
		m.RCode = 0
		return []dnsmessage.Message{with(m, "192.0.2.1", 60)}
	})
	q := question("www.example.com.", "A")
	for _, stale := range []bool{true, false} {
		mu.Lock()
		dead = false
		mu.Unlock()
		f := forwarderTo(stale, r)
		for range 3 {
			if a, err := f.ask(t.Context(), q); err != nil || said(a) != "192.0.2.1" {
				t.Fatal(said(a), err)
			}
		}
		mu.Lock()
		dead = true
		mu.Unlock()
		f.age(time.Hour)
		n := r.count()
		a, err := f.ask(t.Context(), q)
		if stale != (err == nil && said(a) == "192.0.2.1" && a.Records[0].Header.TTL == staleTTL) {
			t.Errorf("stale %v: %s, %v", stale, said(a), err)
		}
		if r.count() == n {
			t.Errorf("stale %v: the resolver was not asked", stale)
		}
		n = r.count() // nobody answered: for a moment an old answer comes at once
		if _, err := f.remembered(q); stale != (err == nil) || r.count() != n {
			t.Errorf("stale %v: %v, asked %d times", stale, err, r.count()-n)
		}
	}
	if r.count() > 10 {
		t.Errorf("asked %d times: what is in the cache was asked again", r.count())
	}
}

// age makes everything in the cache older.
func (f *forwarder) age(d time.Duration) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	for e := f.cache.recent.Front(); e != nil; e = e.Next() {
		c := *e.Value.(*cached) // who has it already may read it
		c.at = c.at.Add(-d)
		e.Value = &c
	}
}

// TestOneAsksForMany: who asks what is being asked already waits for that answer, and none changes that of another.
func TestOneAsksForMany(t *testing.T) {
	release := make(chan struct{})
	r := startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		<-release
		return []dnsmessage.Message{with(m, "192.0.2.1", 60)}
	})
	f := forwarderTo(true, r)
	var wg sync.WaitGroup
	begun := make(chan struct{}, 20)
	for range 20 {
		wg.Go(func() {
			begun <- struct{}{}
			a, err := f.ask(t.Context(), question("www.example.com.", "A"))
			if err != nil || said(a) != "192.0.2.1" {
				t.Error(said(a), err)
			}
			shuffle(a.Records)
		})
	}
	for range 20 {
		<-begun
	}
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	wg.Wait()
	if r.count() != 1 {
		t.Errorf("asked %d times", r.count())
	}
}

func TestResolversOfTheBoard(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "[]"},
		{"nameserver 192.0.2.1\nsearch lan\nnameserver 2001:db8::1\n", "[192.0.2.1:53 [2001:db8::1]:53]"},
		{"nameserver 10.42.0.1\nnameserver 192.0.2.1\n", "[192.0.2.1:53]"}, // ourselves
		{"nameserver ::ffff:10.42.0.1\n", "[]"},
		{"nameserver 127.0.0.53\nnameserver 192.0.2.1\n", "[192.0.2.1:53]"},
		{"nameserver 127.0.0.1\n", "[127.0.0.1:53]"}, // a dnsmasq, and nobody else
		{"nameserver fe80::1%eth0\n", "[[fe80::1%eth0]:53]"},
		{"nameserver x\nnameserver\nnameserver 224.0.0.251\n#nameserver 192.0.2.9\n", "[]"},
		{"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n",
			"[192.0.2.1:53 192.0.2.2:53 192.0.2.3:53]"},
	} {
		if got := fmt.Sprint(resolversOf(c.text, gateway)); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}
