package dns

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	goruntime "runtime"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"ledge/network/share"
)

const (
	mostWaiting = 1024 // questions that have come and were not looked at
	mostAsked   = 256  // questions for which resolvers are asked
	mostConns   = 64   // connections over TCP
	mostQuery   = 2048 // bytes of a question

	idleFor     = 10 * time.Second // a connection without a question
	writeWithin = 5 * time.Second
)

// Config of a server.
type Config struct {
	Zone *Zone
	// Pods are the addresses that are answered, beside the board's own.
	Pods netip.Prefix
	// Searches is the search list of the pod at an address as it stands in its resolv.conf; nil: it is not known, or the list is not
	// to be walked for the pod.
	Searches func(netip.Addr) []string
	// Resolvers are whom the board asks for the names of others.
	Resolvers func() []netip.AddrPort
	// Stale gives answers that have run out when no resolver answers.
	Stale bool
	// Counts are counted up. May be nil.
	Counts *Counts
}

// Server answers questions. It is made once: a new pair of sockets goes on with what it remembers.
type Server struct {
	cfg   Config
	out   forwarder
	asked *share.Places
	conns *share.Places
}

// New makes a server.
func New(cfg Config) *Server {
	if cfg.Searches == nil {
		cfg.Searches = func(netip.Addr) []string { return nil }
	}
	return &Server{cfg: cfg, asked: share.New(mostAsked), conns: share.New(mostConns),
		out: forwarder{resolvers: cfg.Resolvers, stale: cfg.Stale, dial: new(net.Dialer).DialContext}}
}

// Serve answers at these sockets until ctx ends. It closes its own copies of them alone.
func (s *Server) Serve(ctx context.Context, at Sockets) error {
	udp, tcp, err := at.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _, _ = udp.Close(), tcp.Close() })
	waiting := newTurns(mostWaiting)
	var all sync.WaitGroup
	defer all.Wait()
	for range goruntime.GOMAXPROCS(0) {
		all.Go(func() {
			for p, ok := waiting.next(); ok; p, ok = waiting.next() {
				s.answerUDP(ctx, udp, p, &all)
			}
		})
	}
	all.Go(func() { s.serveTCP(ctx, tcp, &all) })
	defer waiting.close()
	return s.read(ctx, udp, waiting)
}

// read has questions wait for their turn.
func (s *Server) read(ctx context.Context, udp *net.UDPConn, waiting *turns) error {
	buf, floods := make([]byte, mostQuery), newSieve(udp)
	for {
		n, from, err := udp.ReadFromUDPAddrPort(buf)
		floods.tick()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err == nil:
			if s.answers(from.Addr()) && !waiting.add(from, buf[:n]) {
				floods.leftOut(from.Addr()) // it asks again
			}
		case !looks(err): // of an answer that did not arrive, or short of memory
			slog.Debug("a question could not be read", "err", err)
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// answers says who is answered: the pods of this board, and the board itself, whose address here is the zone's.
func (s *Server) answers(who netip.Addr) bool {
	who = who.Unmap()
	return s.cfg.Pods.Contains(who) || who == s.cfg.Zone.self
}

// answerUDP answers at once what needs nobody else, and goes on with the rest beside.
func (s *Server) answerUDP(ctx context.Context, conn *net.UDPConn, p packet, all *sync.WaitGroup) {
	q, ok := parse(p.msg)
	if !ok {
		return
	}
	say := func(a Answer) {
		s.count(q, a)
		if out, err := pack(q, a, q.size); err == nil {
			_, _ = conn.WriteToUDPAddrPort(out, p.from)
		}
	}
	who := p.from.Addr().Unmap()
	a, err := s.answer(q, who, s.out.remembered)
	if !errors.Is(err, errAsk) {
		say(a)
		return
	}
	if !s.asked.Take(who) {
		s.counted(refused)
		return // it asks again
	}
	all.Go(func() {
		defer s.asked.Give(who)
		a, _ := s.answer(q, who, func(q dnsmessage.Question) (Answer, error) { return s.out.ask(ctx, q) })
		say(a)
	})
}

// answer is what is said to a query; with an error it is that the server failed.
func (s *Server) answer(q query, who netip.Addr, ask lookup) (Answer, error) {
	if q.fault != dnsmessage.RCodeSuccess {
		return Answer{RCode: q.fault}, nil
	}
	a, err := s.cfg.Zone.find(q.Question, s.cfg.Searches(who), ask)
	if err != nil {
		return Answer{RCode: dnsmessage.RCodeServerFailure}, err
	}
	shuffle(a.Records)
	return a, nil
}

func (s *Server) serveTCP(ctx context.Context, l *net.TCPListener, all *sync.WaitGroup) {
	for {
		conn, err := l.AcceptTCP()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			slog.Debug("a connection for a question could not be accepted", "err", err)
			pause(ctx, 100*time.Millisecond)
			continue
		}
		who := addrOf(conn)
		if !s.answers(who) || !s.conns.Take(who) {
			_ = conn.Close()
			continue
		}
		all.Go(func() {
			defer s.conns.Give(who)
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			s.converse(ctx, conn, who)
		})
	}
}

func addrOf(conn *net.TCPConn) netip.Addr {
	return conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// converse answers the questions of one connection, one after the other.
func (s *Server) converse(ctx context.Context, conn net.Conn, who netip.Addr) {
	for {
		_ = conn.SetDeadline(time.Now().Add(idleFor))
		msg, err := readTCP(conn, mostQuery)
		if err != nil {
			return
		}
		q, ok := parse(msg)
		if !ok {
			return
		}
		a, _ := s.answer(q, who, func(q dnsmessage.Question) (Answer, error) { return s.out.ask(ctx, q) })
		s.count(q, a)
		out, err := pack(q, a, tcpSize)
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(writeWithin))
		if writeTCP(conn, out) != nil {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
