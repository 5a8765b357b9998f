package mdns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// lan is a network of boards in played time: what one sends to all, all others and itself hear at once.
type lan struct {
	t      *testing.T
	now    time.Time
	boards []*lanBoard
	heard  []packet // all that was sent
	rand   *rand.Rand
}

type lanBoard struct {
	*Responder
	lan   *lan
	addr  netip.Addr
	deaf  bool
	links []Link
}

type packet struct {
	at   time.Duration // since the beginning
	from *lanBoard
	Out
}

var beginning = time.Unix(1_800_000_000, 0)

func newLAN(t *testing.T, seed uint64) *lan {
	return &lan{t: t, now: beginning, rand: rand.New(rand.NewPCG(seed, 0))}
}

// board adds one. Only IPv4 is played, on a link that has other IPv4 addresses besides.
func (l *lan) board(label string) *lanBoard {
	l.t.Helper()
	chance := func(d time.Duration) time.Duration { return time.Duration(l.rand.Int64N(int64(d))) }
	b := &lanBoard{Responder: &Responder{Random: chance}, lan: l}
	b.addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(len(l.boards) + 1)})
	b.links = []Link{{Index: 2, Addresses: []netip.Prefix{netip.PrefixFrom(b.addr, 24)}}}
	l.boards = append(l.boards, b)
	b.wants(Wanted{Label: label, Port: 6443, Version: "v0.2.0", State: "Ready"})
	return b
}

func (b *lanBoard) wants(w Wanted) { b.lan.send(b, b.Set(b.lan.now, w, b.links)) }

func (l *lan) send(from *lanBoard, out []Out) {
	for len(out) > 0 {
		o := out[0]
		out = out[1:]
		l.heard = append(l.heard, packet{l.now.Sub(beginning), from, o})
		check(l.t, o)
		for _, b := range l.boards {
			if from.deaf || b.deaf || o.To.IsValid() && o.To.Addr() != b.addr {
				continue
			}
			answer := b.Hear(l.now, Way{2, false}, netip.AddrPortFrom(from.addr, Port), !o.To.IsValid(), o.Msg)
			if b == from {
				out = append(out, answer...)
			} else {
				l.send(b, answer)
			}
		}
	}
}

// run lets time pass.
func (l *lan) run(d time.Duration) {
	end := l.now.Add(d)
	for {
		var next time.Time
		for _, b := range l.boards {
			if n := b.Next(); !n.IsZero() && (next.IsZero() || n.Before(next)) {
				next = n
			}
		}
		if next.IsZero() || next.After(end) {
			l.now = end
			return
		}
		if next.After(l.now) {
			l.now = next
		}
		for _, b := range l.boards {
			if n := b.Next(); !n.IsZero() && !n.After(l.now) {
				l.send(b, b.Tick(l.now))
				if n := b.Next(); !n.IsZero() && !n.After(l.now) {
					l.t.Fatalf("%s: due again at once", b.Labels())
				}
			}
		}
	}
}

// since are the packets that were sent after the first n, as text.
func (l *lan) since(n int) (out []string) {
	for _, p := range l.heard[n:] {
		out = append(out, text(l.t, p.Out))
	}
	return out
}

// check holds what is sent against another reader of messages, and its bounds.
func check(t *testing.T, o Out) dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(o.Msg); err != nil {
		t.Fatalf("%x: %v", o.Msg, err)
	}
	if len(o.Msg) > mostSent {
		t.Errorf("a packet of %d bytes", len(o.Msg))
	}
	return m
}

// text is what a packet says, a line for each section that is not empty.
func text(t *testing.T, o Out) string {
	t.Helper()
	m := check(t, o)
	var out []string
	if o.To.IsValid() {
		out = append(out, "to "+o.To.String())
	}
	for _, q := range m.Questions {
		out = append(out, fmt.Sprintf("? %s %s", q.Name, kind(q.Type)))
	}
	for i, section := range [][]dnsmessage.Resource{m.Answers, m.Authorities, m.Additionals} {
		var list []string
		for _, r := range section {
			list = append(list, resource(r))
		}
		if slices.Sort(list); len(list) > 0 {
			out = append(out, []string{"= ", "probe ", "+ "}[i]+strings.Join(list, "; "))
		}
	}
	return strings.Join(out, "\n")
}

func kind(t dnsmessage.Type) string {
	if t == typeNSEC {
		return "NSEC"
	}
	return strings.TrimPrefix(t.String(), "Type")
}

func resource(r dnsmessage.Resource) string {
	out := fmt.Sprintf("%s %s", strings.TrimSuffix(r.Header.Name.String(), ".local."), kind(r.Header.Type))
	if r.Header.Class&topBit != 0 {
		out += "!"
	}
	switch b := r.Body.(type) {
	case *dnsmessage.AResource:
		out += " " + netip.AddrFrom4(b.A).String()
	case *dnsmessage.AAAAResource:
		out += " " + netip.AddrFrom16(b.AAAA).String()
	case *dnsmessage.PTRResource:
		out += " " + strings.TrimSuffix(b.PTR.String(), ".local.")
	case *dnsmessage.SRVResource:
		out += fmt.Sprintf(" %s:%d", strings.TrimSuffix(b.Target.String(), ".local."), b.Port)
	case *dnsmessage.TXTResource:
		out += " " + strings.Join(b.TXT, ",")
	}
	if r.Header.TTL == 0 {
		out = "no more " + out
	}
	return out
}

// asked is a message of questions: "shed.local A", "qu shed.local A", "known NAME PTR NAME", "probe NAME A ADDRESS", "more" (truncated).
func asked(parts ...string) []byte {
	flags := uint16(0)
	if slices.Contains(parts, "more") {
		flags = isTruncated
	}
	m := newWriter(7, flags)
	for _, section := range []int{0, answers, authorities} {
		for _, p := range parts {
			f := strings.Fields(p)
			switch {
			case section == 0 && len(f) == 2:
				m.question(question{wire(f[0]), kinds[f[1]], classIN})
			case section == 0 && len(f) == 3 && f[0] == "qu":
				m.question(question{wire(f[1]), kinds[f[2]], classIN | topBit})
			case section == answers && len(f) == 4 && f[0] == "known":
				m.record(section, record{wire(f[1]), kinds[f[2]], classIN, serviceTTL, data(f[2], f[3])})
			case section == authorities && len(f) == 4 && f[0] == "probe":
				m.record(section, record{wire(f[1]), kinds[f[2]], classIN, hostTTL, data(f[2], f[3])})
			}
		}
	}
	return m.bytes()
}

// told is a response with one record.
func told(name, of, what string, ttl uint32) []byte {
	m := newWriter(0, isResponse|isAuthoritative)
	m.record(answers, record{wire(name), kinds[of], classIN | topBit, ttl, data(of, what)})
	return m.bytes()
}

var kinds = map[string]uint16{"A": typeA, "AAAA": typeAAAA, "PTR": typePTR, "SRV": typeSRV, "TXT": typeTXT, "NSEC": typeNSEC, "ANY": typeANY}

func wire(name string) string { return nameOf(strings.Split(name, ".")...) }

func data(of, what string) string {
	if of == "A" || of == "AAAA" {
		return string(netip.MustParseAddr(what).AsSlice())
	}
	return wire(what)
}
