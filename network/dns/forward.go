package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	attempt  = 1500 * time.Millisecond // that one resolver has
	patience = 4500 * time.Millisecond // that all have: clients wait five seconds
	staleFor = 1800 * time.Millisecond // that all have while there is a stale answer (RFC 8767)

	mostRecords = 256 // of an answer: each takes half a kilobyte to read, however short it was sent
)

var (
	// errNobody says that no resolver has answered.
	errNobody = errors.New("no resolver of the board answers")
	// errAsk says that resolvers have to be asked, and that this was not to be done now.
	errAsk = errors.New("not in the cache")
)

// forwarder asks the board's resolvers, and remembers what they said.
type forwarder struct {
	resolvers func() []netip.AddrPort
	stale     bool // old answers are better than none
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	cache     cache

	mu      sync.Mutex
	flights map[cacheKey]*flight
	last    netip.AddrPort // who answered last is asked first
	failed  time.Time      // when nobody did
}

// flight is a question that somebody has asked already: who asks the same waits for that answer.
type flight struct {
	done chan struct{}
	a    Answer
	err  error
}

// remembered answers out of the cache alone.
func (f *forwarder) remembered(q dnsmessage.Question) (Answer, error) {
	a, stale, ok := f.cache.get(q, time.Now())
	if !ok || stale && !(f.stale && f.silent()) {
		return Answer{}, errAsk
	}
	if a.from = fromCache; stale {
		a.from = fromStale
	}
	return a, nil
}

// silent: nobody has answered a moment ago.
func (f *forwarder) silent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.failed.IsZero() && time.Since(f.failed) < nobody
}

// ask answers out of the cache, or asks.
func (f *forwarder) ask(ctx context.Context, q dnsmessage.Question) (Answer, error) {
	if a, err := f.remembered(q); err == nil {
		return a, nil
	}
	key := cacheKey{lower(q.Name), q.Type}
	f.mu.Lock()
	fl := f.flights[key]
	if fl == nil {
		fl = &flight{done: make(chan struct{})}
		if f.flights == nil {
			f.flights = map[cacheKey]*flight{}
		}
		f.flights[key] = fl
		f.mu.Unlock()
		fl.a, fl.err = f.fetch(ctx, q)
		f.mu.Lock()
		delete(f.flights, key)
		f.mu.Unlock()
		close(fl.done)
		return fl.a.clone(), fl.err
	}
	f.mu.Unlock()
	select {
	case <-fl.done:
		return fl.a.clone(), fl.err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// clone is for one of several who put its records in their own order.
func (a Answer) clone() Answer {
	a.Records = append([]dnsmessage.Resource(nil), a.Records...)
	return a
}

// fetch asks, keeps what it hears, and falls back on an old answer.
func (f *forwarder) fetch(ctx context.Context, q dnsmessage.Question) (Answer, error) {
	old, _, have := f.cache.get(q, time.Now())
	have = have && f.stale
	wait := patience
	if have {
		wait = staleFor
	}
	asking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	a, err := f.exchange(asking, q)
	if err == nil {
		f.cache.put(q, a, time.Now())
		a.from = fromOutside
		return a, nil
	}
	if have {
		old.from = fromStale
		return old, nil
	}
	return Answer{}, err
}

// exchange asks one resolver after the other, twice.
func (f *forwarder) exchange(ctx context.Context, q dnsmessage.Question) (Answer, error) {
	list := f.inOrder()
	err := errors.New("it has none")
	for range 2 {
		for _, r := range list {
			if ctx.Err() != nil {
				break
			}
			var a Answer
			if a, err = f.askOne(ctx, r, q); err == nil {
				f.mu.Lock()
				f.last, f.failed = r, time.Time{}
				f.mu.Unlock()
				return a, nil
			}
		}
	}
	f.mu.Lock()
	f.failed = time.Now()
	f.mu.Unlock()
	return Answer{}, fmt.Errorf("%w: %w", errNobody, err)
}

func (f *forwarder) inOrder() []netip.AddrPort {
	list := f.resolvers()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range list {
		if r == f.last && i > 0 {
			out := append([]netip.AddrPort{r}, list[:i]...)
			return append(out, list[i+1:]...)
		}
	}
	return list
}

// askOne asks one resolver over UDP, and over TCP what does not fit.
func (f *forwarder) askOne(ctx context.Context, to netip.AddrPort, q dnsmessage.Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	m, err := f.roundTrip(ctx, "udp", to, q, true)
	if err == nil && (m.RCode == dnsmessage.RCodeFormatError || m.RCode == dnsmessage.RCodeNotImplemented) { // it does not know EDNS0
		m, err = f.roundTrip(ctx, "udp", to, q, false)
	}
	if err == nil && m.Truncated {
		m, err = f.roundTrip(ctx, "tcp", to, q, true)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", to, err)
	}
	if m.RCode != dnsmessage.RCodeSuccess && m.RCode != dnsmessage.RCodeNameError {
		return Answer{}, fmt.Errorf("%s answers %s", to, m.RCode)
	}
	a := Answer{RCode: m.RCode, Records: m.Answers}
	for _, r := range m.Authorities {
		if len(a.Records) == 0 && r.Header.Type == dnsmessage.TypeSOA || a.RCode != 0 && r.Header.Type == dnsmessage.TypeSOA {
			a.Authority = append(a.Authority, r)
			break
		}
	}
	return a, nil
}

// roundTrip sends a question from a port that the kernel draws, with a number that nobody can guess, and takes the first answer that
// fits both.
func (f *forwarder) roundTrip(ctx context.Context, network string, to netip.AddrPort, q dnsmessage.Question, edns bool) (dnsmessage.Message,
	error) {
	var id [2]byte
	_, _ = rand.Read(id[:]) // it never fails
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true},
		Questions: []dnsmessage.Question{q}}
	if edns {
		m.Additionals = []dnsmessage.Resource{optRecord()}
	}
	out, err := m.Pack()
	if err != nil {
		return m, err
	}
	conn, err := f.dial(ctx, network, to.String())
	if err != nil {
		return m, err
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(at)
	}
	if network == "tcp" {
		if err := writeTCP(conn, out); err != nil {
			return m, err
		}
		in, err := readTCP(conn, tcpSize)
		if err != nil {
			return m, err
		}
		return accept(in, m.ID, q)
	}
	if _, err := conn.Write(out); err != nil {
		return m, err
	}
	in := make([]byte, ednsSize)
	for {
		n, err := conn.Read(in)
		if err != nil {
			return m, err
		}
		if got, err := accept(in[:n], m.ID, q); err == nil { // what is forged or late does not end the waiting
			return got, nil
		}
	}
}

// accept reads an answer, and refuses one to another question, or with more records than anybody needs.
func accept(in []byte, id uint16, q dnsmessage.Question) (m dnsmessage.Message, err error) {
	if n := records(in); n > mostRecords {
		return m, fmt.Errorf("an answer of %d records; the most is %d", n, mostRecords)
	}
	if err := m.Unpack(in); err != nil {
		if !truncated(in, id) {
			return m, err
		}
		m = dnsmessage.Message{Header: dnsmessage.Header{ID: id, Response: true, Truncated: true}, Questions: []dnsmessage.Question{q}}
	}
	if m.ID != id || !m.Response || len(m.Questions) != 1 || !same(m.Questions[0], q) {
		return m, errors.New("it answers another question")
	}
	return m, nil
}

// records are as many as a message says that it has.
func records(in []byte) (n int) {
	for at := 6; at <= 10 && len(in) >= 12; at += 2 {
		n += int(binary.BigEndian.Uint16(in[at:]))
	}
	return n
}

// truncated: the message was cut in the middle of a record and says so.
func truncated(in []byte, id uint16) bool {
	var p dnsmessage.Parser
	h, err := p.Start(in)
	return err == nil && h.Truncated && h.Response && h.ID == id
}

// writeTCP sends a message with its length in front.
func writeTCP(w io.Writer, msg []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(msg)), uint16(len(msg))), msg...))
	return err
}

// readTCP takes one of at most most bytes.
func readTCP(r io.Reader, most int) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(head[:]))
	if size > most {
		return nil, fmt.Errorf("a message of %d bytes; the most is %d", size, most)
	}
	msg := make([]byte, size)
	_, err := io.ReadFull(r, msg)
	return msg, err
}
