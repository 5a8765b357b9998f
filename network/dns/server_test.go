package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// lab is a server on the loopback, with this test's resolver behind it. Pods are 127.0.0.0/25.
type lab struct {
	*Server
	at      Sockets
	addr    string
	stop    context.CancelFunc
	stopped chan error
}

func startServer(t testing.TB, out ...*resolver) *lab {
	t.Helper()
	self := netip.MustParseAddr("127.0.0.1")
	z := spec(t)
	z.self = self
	at, err := listenSomewhere(t)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{at: at, Server: New(Config{Zone: z, Counts: &Counts{}, Pods: netip.MustParsePrefix("127.0.0.0/25"), Stale: true,
		Resolvers: forwarderTo(true, out...).resolvers, Searches: func(who netip.Addr) []string {
			if who == netip.MustParseAddr("127.0.0.7") {
				return []string{"default.svc.cluster.local.", "svc.cluster.local.", "cluster.local."}
			}
			return nil
		}})}
	udp, tcp, err := at.open()
	if err != nil {
		t.Fatal(err)
	}
	l.addr = udp.LocalAddr().String()
	_, _ = udp.Close(), tcp.Close()
	l.begin(t)
	t.Cleanup(func() { l.end(t); _ = at.Close() })
	return l
}

func (l *lab) begin(t testing.TB) {
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.stopped = stop, make(chan error, 1)
	go func() { l.stopped <- l.Serve(ctx, l.at) }()
}

func (l *lab) end(t testing.TB) {
	l.stop()
	if err := <-l.stopped; err != nil {
		t.Error(err)
	}
	l.stopped <- nil
}

// from is a connection of the pod at an address.
func (l *lab) from(t testing.TB, network, who string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(who)}}
	if network == "tcp" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(who)}
	}
	c, err := d.DialContext(t.Context(), network, l.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a question and waits for its answer; within that time, or "nothing".
func ask(t testing.TB, c net.Conn, name, kind string, within time.Duration) string {
	t.Helper()
	msg := asked(t, func(m *dnsmessage.Message) { m.Questions[0] = question(name, kind) })
	_ = c.SetDeadline(time.Now().Add(within))
	_, tcp := c.(*net.TCPConn)
	in := make([]byte, 4096)
	var err error
	n := 0
	if tcp {
		if err = writeTCP(c, msg); err == nil {
			in, err = readTCP(c, tcpSize)
			n = len(in)
		}
	} else if _, err = c.Write(msg); err == nil {
		n, err = c.Read(in)
	}
	if err != nil {
		return "nothing"
	}
	var m dnsmessage.Message
	if err := m.Unpack(in[:n]); err != nil || m.ID != 7 || !m.Response || !same(m.Questions[0], question(name, kind)) {
		t.Errorf("%s %s: %+v, %v", name, kind, m.Header, err)
	}
	return said(Answer{RCode: m.RCode, Records: m.Answers})
}

const soon = 3 * time.Second

// TestServer: what pods ask is answered, over UDP and TCP, from the cluster and from elsewhere.
func TestServer(t *testing.T) {
	l := startServer(t, startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		if lower(m.Questions[0].Name) == "www.example.com." && m.Questions[0].Type == dnsmessage.TypeA {
			return []dnsmessage.Message{with(m, "192.0.2.53", 60)}
		}
		m.RCode = dnsmessage.RCodeNameError
		return []dnsmessage.Message{m}
	}))
	for _, network := range []string{"udp", "tcp"} {
		pod, other := l.from(t, network, "127.0.0.7"), l.from(t, network, "127.0.0.8")
		for _, c := range []struct {
			by               net.Conn
			name, kind, want string
		}{
			{pod, "kubernetes.default.svc.cluster.local.", "A", "10.3.0.1"},
			{pod, "www.example.com.", "A", "192.0.2.53"},
			{pod, "www.example.com.default.svc.cluster.local.", "A", "-> www.example.com. 192.0.2.53"},
			{other, "www.example.com.default.svc.cluster.local.", "A", "no such name"}, // whose list is not known
			{other, "foo.default.svc.cluster.local.", "A", "-> www.example.com. 192.0.2.53"},
			{other, "nobody.example.com.", "A", "no such name"},
		} {
			if got := strings.Fields(ask(t, c.by, c.name, c.kind, soon)); !sameWords(got, strings.Fields(c.want)) {
				t.Errorf("%s %s: %s, want %s", network, c.name, got, c.want)
			}
		}
	}
	// Go's own resolver agrees.
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.addr)
	}}
	if _, got, err := r.LookupSRV(t.Context(), "https", "tcp", "headless.default.svc.cluster.local."); err != nil || len(got) != 3 {
		t.Error(got, err)
	}
	if got, err := r.LookupCNAME(t.Context(), "foo.default.svc.cluster.local."); err != nil || got != "www.example.com." {
		t.Error(got, err)
	}
	if got, err := r.LookupAddr(t.Context(), "10.3.0.1"); err != nil || !slices.Equal(got, []string{"kubernetes.default.svc.cluster.local."}) {
		t.Error(got, err)
	}
}

// TestStrangers: who is neither a pod of this board nor the board gets no answer, over either.
func TestStrangers(t *testing.T) {
	l := startServer(t)
	if got := ask(t, l.from(t, "udp", "127.0.0.200"), "kubernetes.default.svc.cluster.local.", "A", 100*time.Millisecond); got != "nothing" {
		t.Error(got)
	}
	if got := ask(t, l.from(t, "tcp", "127.0.0.200"), "kubernetes.default.svc.cluster.local.", "A", soon); got != "nothing" {
		t.Error(got)
	}
	if got := ask(t, l.from(t, "udp", "127.0.0.1"), "kubernetes.default.svc.cluster.local.", "A", soon); got != "10.3.0.1" {
		t.Error("the board:", got)
	}
}

// TestFlood: a pod asks without end for names that nobody answers, over UDP and TCP. Another one is answered all the same, from the
// cluster and from elsewhere, and what the flood takes stays within bounds.
func TestFlood(t *testing.T) {
	l := startServer(t, startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		if strings.HasPrefix(m.Questions[0].Name.String(), "good") {
			return []dnsmessage.Message{with(m, "192.0.2.1", 60)}
		}
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer cancel()
	for i := range 2 {
		c := l.from(t, "udp", "127.0.0.66")
		flood.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = c.Write(asked(t, func(m *dnsmessage.Message) { m.Questions[0] = question(fmt.Sprintf("x%d.bad%d.example.", n, i), "A") }))
			}
		})
	}
	for range mostConns {
		_, _ = l.from(t, "tcp", "127.0.0.66").Write([]byte{0, 200}) // half a question
	}
	for full := false; !full; time.Sleep(time.Millisecond) {
		full = l.asked.Taken() >= mostAsked/2
	}
	pod := l.from(t, "udp", "127.0.0.7")
	slow := 0
	for i := range 30 {
		if got := askAgain(t, pod, "kubernetes.default.svc.cluster.local.", "A"); got != "10.3.0.1" {
			slow++
		}
		if got := askAgain(t, pod, fmt.Sprintf("good%d.example.", i), "A"); got != "192.0.2.1" {
			slow++
		}
	}
	// The socket's buffer is everybody's until the flood is known, and a busy machine has little time for the server.
	if slow > 3 {
		t.Errorf("%d of 60 questions had no answer", slow)
	}
	if got := ask(t, l.from(t, "tcp", "127.0.0.7"), "kubernetes.default.svc.cluster.local.", "A", soon); got != "10.3.0.1" {
		t.Error("over TCP:", got)
	}
	if n := l.asked.Taken(); n > mostAsked {
		t.Error(n, "questions are under way")
	}
}

// TestSieve: the kernel holds back who is named, nearly all of it, and nobody else; and nobody once it is over.
func TestSieve(t *testing.T) {
	at, err := listenSomewhere(t)
	if err != nil {
		t.Fatal(err)
	}
	conn, tcp, err := at.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _, _ = conn.Close(), tcp.Close(), at.Close() }()
	l := &lab{addr: conn.LocalAddr().String()}
	good, bad, worse := l.from(t, "udp", "127.0.0.7"), l.from(t, "udp", "127.0.0.66"), l.from(t, "udp", "127.0.0.67")
	s := newSieve(conn)
	arrive := func() map[string]int {
		got := map[string]int{}
		for range 60 {
			for _, c := range []net.Conn{good, bad, worse} {
				_, _ = c.Write([]byte{1})
			}
		}
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		for buf := make([]byte, 9); ; {
			_, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return got
			}
			got[from.Addr().String()]++
		}
	}
	flood := addrs("127.0.0.66", "127.0.0.67")
	for range floodAt {
		for _, a := range flood {
			s.leftOut(a)
		}
	}
	if got := arrive(); got["127.0.0.7"] != 60 || got["127.0.0.66"] > 20 || got["127.0.0.67"] > 20 || len(s.held) != 2 {
		t.Errorf("held %v: %v", s.held, got)
	}
	s.tick() // it is not time
	s.next = time.Time{}
	s.tick()
	for range floodOn {
		s.leftOut(flood[0])
	}
	s.next = time.Time{}
	s.tick()
	if !slices.Equal(s.held, flood[:1]) {
		t.Errorf("who goes on is let go, or who does not is held: %v", s.held)
	}
	if got := arrive(); got["127.0.0.67"] != 60 || got["127.0.0.66"] > 20 {
		t.Errorf("held %v: %v", s.held, got)
	}
	s.next = time.Time{}
	s.tick()
	if got := arrive(); got["127.0.0.66"] != 60 || len(s.held) != 0 {
		t.Errorf("held %v: %v", s.held, got)
	}
}

// askAgain asks as a C library does: again when the kernel had no room.
func askAgain(t testing.TB, c net.Conn, name, kind string) (got string) {
	for range 8 {
		if got = ask(t, c, name, kind, 500*time.Millisecond); got != "nothing" {
			break
		}
	}
	return got
}

// TestNoQuestionIsLostByARestart: questions wait in the sockets while nobody reads them.
func TestNoQuestionIsLostByARestart(t *testing.T) {
	l := startServer(t)
	l.end(t)
	msg := asked(t, func(m *dnsmessage.Message) { m.Questions[0] = question("kubernetes.default.svc.cluster.local.", "A") })
	udp, tcp := l.from(t, "udp", "127.0.0.7"), l.from(t, "tcp", "127.0.0.7")
	if _, err := udp.Write(msg); err != nil {
		t.Fatal(err)
	}
	if err := writeTCP(tcp, msg); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.addr)
	if s, ok := Adopt(l.at.Files(), at); !ok || s != l.at {
		t.Fatal("its own sockets are refused")
	}
	l.begin(t)
	in := make([]byte, 512)
	_ = udp.SetDeadline(time.Now().Add(soon))
	_ = tcp.SetDeadline(time.Now().Add(soon))
	if _, err := udp.Read(in); err != nil {
		t.Error(err)
	}
	if _, err := readTCP(tcp, tcpSize); err != nil {
		t.Error(err)
	}
	other, err := listenSomewhere(t)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := Adopt(other.Files(), at); ok {
		t.Error("the sockets of another address were adopted")
	}
	if _, ok := Adopt(nil, at); ok {
		t.Error("no sockets were adopted")
	}
}

// An address that the board does not have yet can be listened at.
func TestListenBeforeTheAddress(t *testing.T) {
	s, err := Listen(t.Context(), netip.MustParseAddrPort("192.0.2.99:0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestTurns: who waits with one question is next after one of each other.
func TestTurns(t *testing.T) {
	q := newTurns(100)
	a, b := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:1")
	n := 0
	for q.add(a, []byte{byte(n)}) {
		n++
	}
	if n != 50 || !q.add(b, []byte{77}) {
		t.Fatal(n)
	}
	first, _ := q.next()
	second, _ := q.next()
	third, _ := q.next()
	if first.msg[0] != 0 || second.from != b || second.msg[0] != 77 || third.msg[0] != 1 {
		t.Error(first, second, third)
	}
	q.close()
	for range n - 2 {
		if _, ok := q.next(); !ok {
			t.Fatal("what waits is lost at the end")
		}
	}
	if _, ok := q.next(); ok || q.room.Taken() != 0 || len(q.lanes) != 0 {
		t.Error("something is left")
	}
}
