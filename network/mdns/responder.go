package mdns

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Responder decides what to send. It has no effects, and is not safe for concurrent use.
type Responder struct {
	// Random is a time shorter than the one given; nil: by chance.
	Random func(time.Duration) time.Duration

	want   Wanted
	links  []Link
	groups []*group
	ways   map[Way]*way

	fights int // objections since
	since  time.Time
}

// way is what is known of a Way.
type way struct {
	link    Link
	records []own
	stands  map[*group]*stand
	sent    map[record]time.Time // when a record of ours was last told to all
	waiting map[record]waits     // to be told to all
	singles int                  // sent to single ones since
	since   time.Time
}

// stand is how far a group is on a way: three probes, two announcements, then it is settled.
type stand struct {
	step int
	next time.Time // of the next step; zero: settled
	told time.Time // the last announcement
}

const (
	announces = 3 // the step after the probes
	settled   = 5
)

// held says that the names are the board's.
func (s *stand) held() bool { return s != nil && s.step >= announces }

// waits is an answer that is not sent yet.
type waits struct {
	at    time.Time
	asker netip.Addr // who may still say that he knows it; not valid: nobody
}

func (r *Responder) random(d time.Duration) time.Duration {
	if r.Random != nil {
		return r.Random(d)
	}
	return rand.N(d)
}

// Labels are the labels that the board's groups have or try, the board's own first.
func (r *Responder) Labels() (out []string) {
	for _, g := range r.groups {
		out = append(out, g.has())
	}
	return out
}

// Held says that the board has its name on every link, and there is one.
func (r *Responder) Held() bool {
	for _, w := range r.ways {
		for _, g := range r.groups {
			if !w.stands[g].held() {
				return false
			}
		}
	}
	return len(r.ways) > 0
}

// Set says what is to be found and where. What is no more is taken back.
func (r *Responder) Set(now time.Time, want Wanted, links []Link) (out []Out) {
	want.Aliases = want.Aliases[:min(len(want.Aliases), MostAliases)]
	links = links[:min(len(links), MostLinks)]
	r.want, r.links = want, links
	r.regroup()
	old := r.ways
	r.ways = map[Way]*way{}
	for _, l := range links {
		for _, v6 := range []bool{false, true} {
			if l.family(v6) {
				at := Way{l.Index, v6}
				w := old[at]
				if w == nil {
					w = &way{stands: map[*group]*stand{}, sent: map[record]time.Time{}, waiting: map[record]waits{}}
				}
				w.link = l
				r.ways[at] = w
			}
		}
	}
	for at, w := range r.inOrder() {
		out = append(out, r.renew(now, at, w)...)
	}
	return out
}

// regroup keeps the groups that are still wanted, with the names that they found.
func (r *Responder) regroup() {
	was := map[string]*group{}
	for _, g := range r.groups {
		if !g.board || g.label == r.want.Label {
			was[g.label] = g
		}
	}
	r.groups = nil
	keep := func(label string, board bool, addrs []netip.Addr) {
		if label == "" || slices.ContainsFunc(r.groups, func(g *group) bool { return g.label == label }) {
			return
		}
		g := was[label]
		if g == nil || g.board != board {
			g = &group{label: label, board: board}
		}
		g.addrs = addrs[:min(len(addrs), MostAddresses)]
		r.groups = append(r.groups, g)
	}
	keep(r.want.Label, true, nil)
	for _, a := range r.want.Aliases {
		if len(a.Addresses) > 0 {
			keep(a.Label, false, a.Addresses)
		}
	}
}

// inOrder are the ways, always in one order.
func (r *Responder) inOrder() func(yield func(Way, *way) bool) {
	return func(yield func(Way, *way) bool) {
		for _, l := range r.links {
			for _, v6 := range []bool{false, true} {
				at := Way{l.Index, v6}
				if w := r.ways[at]; w != nil && !yield(at, w) {
					return
				}
			}
		}
	}
}

// renew makes the records of a way anew. Groups that are new there are probed, those that changed announced; what is gone is said to be.
func (r *Responder) renew(now time.Time, at Way, w *way) []Out {
	old := w.records
	r.rewrite(w)
	changed := map[*group]bool{}
	gone := slices.DeleteFunc(missing(old, w.records, changed), func(o own) bool { return !w.stands[o.of].held() }) // perhaps another's
	missing(w.records, old, changed)
	maps.DeleteFunc(w.stands, func(g *group, _ *stand) bool { return !slices.Contains(r.groups, g) })
	for _, g := range r.groups {
		s := w.stands[g]
		switch {
		case s == nil:
			w.stands[g] = &stand{next: now.Add(r.random(probeEvery))}
		case changed[g] && s.held():
			s.step, s.next = announces, latest(now, s.told.Add(announceEvery))
		}
	}
	return farewell(at, gone)
}

// rewrite makes the records of a way, and forgets what was about others.
func (r *Responder) rewrite(w *way) {
	w.records = nil
	is := map[record]bool{}
	for _, g := range r.groups {
		for _, o := range g.records(r.want, w.link) {
			w.records = append(w.records, o)
			is[o.record] = true
		}
	}
	maps.DeleteFunc(w.sent, func(k record, _ time.Time) bool { return !is[k] })
	maps.DeleteFunc(w.waiting, func(k record, _ waits) bool { return !is[k] })
}

// missing are those of one list that another has not.
func missing(list, other []own, changed map[*group]bool) (out []own) {
	for _, o := range list {
		if !slices.ContainsFunc(other, func(p own) bool { return o.same(p.record) }) {
			changed[o.of] = true
			out = append(out, o)
		}
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// farewell says that records are no more.
func farewell(at Way, gone []own) []Out {
	var list []record
	for _, o := range gone {
		if o.kind != typeNSEC {
			o.ttl, o.class = 0, classIN
			list = append(list, o.record)
		}
	}
	return responses(at, list, nil)
}

// Goodbye takes back all that was announced.
func (r *Responder) Goodbye() (out []Out) {
	for at, w := range r.inOrder() {
		out = append(out, farewell(at, w.heldOf(func(own) bool { return true }))...)
	}
	return out
}

// heldOf are the records that the board has by now and that are asked for.
func (w *way) heldOf(asked func(own) bool) (out []own) {
	for _, o := range w.records {
		if w.stands[o.of].held() && asked(o) {
			out = append(out, o)
		}
	}
	return out
}

// Next is when Tick is due; the zero time: not before something else happens.
func (r *Responder) Next() (next time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, w := range r.ways {
		for _, s := range w.stands {
			sooner(s.next)
		}
		for _, p := range w.waiting {
			sooner(p.at)
		}
	}
	return next
}

// Tick sends what is due.
func (r *Responder) Tick(now time.Time) (out []Out) {
	for at, w := range r.inOrder() {
		var probed []*group
		for _, g := range r.groups {
			s := w.stands[g]
			if s.next.IsZero() || s.next.After(now) {
				continue
			}
			if s.step < announces {
				probed = append(probed, g)
				s.next = now.Add(probeEvery)
			} else {
				w.announce(now, g)
				s.told, s.next = now, now.Add(announceEvery)
			}
			if s.step++; s.step == settled {
				s.next = time.Time{}
			}
		}
		out = append(out, w.probes(at, probed)...)
		out = append(out, w.flush(now, at)...)
	}
	return out
}

// announce has all records of a group told.
func (w *way) announce(now time.Time, g *group) {
	for _, o := range w.records {
		if o.of == g && o.kind != typeNSEC {
			w.waiting[o.record] = waits{at: now}
		}
	}
}

// probes ask whether somebody has the names of groups, and say what they are to be.
func (w *way) probes(at Way, groups []*group) (out []Out) {
	for len(groups) > 0 {
		n := len(groups)
		for {
			m := newWriter(0, 0)
			list := w.claims(groups[:n])
			for i, c := range list {
				if i == 0 || c.name != list[i-1].name {
					m.question(question{c.name, typeANY, classIN | topBit})
				}
			}
			for _, c := range list {
				c.class = classIN
				m.record(authorities, c)
			}
			if len(m.msg) <= mostSent || n == 1 {
				out = append(out, Out{Way: at, Msg: m.bytes()})
				break
			}
			n /= 2
		}
		groups = groups[n:]
	}
	return out
}

// claims are the records of groups that nobody else may have, those of a name together.
func (w *way) claims(groups []*group) (out []record) {
	for _, o := range w.records {
		if !o.shared && o.kind != typeNSEC && slices.Contains(groups, o.of) {
			out = append(out, o.record)
		}
	}
	return out
}

// flush tells all what is due, with what is asked for next.
func (w *way) flush(now time.Time, at Way) []Out {
	var due []record
	for _, o := range w.records {
		if p, ok := w.waiting[o.record]; ok && !p.at.After(now) {
			delete(w.waiting, o.record)
			due = append(due, o.record)
		}
	}
	if len(due) == 0 {
		return nil
	}
	extra := slices.DeleteFunc(w.extra(due), func(r record) bool { return now.Sub(w.sent[r]) < sameEvery })
	for _, r := range slices.Concat(due, extra) {
		w.sent[r] = now
	}
	return responses(at, due, extra)
}

// extra are the records that are asked for after these: of a service its host and text, of an address those of the other family.
func (w *way) extra(given []record) (out []record) {
	at := slices.Clone(given)
	for i := 0; i < len(at); i++ { // it grows meanwhile
		var name string
		switch at[i].kind {
		case typePTR:
			name = at[i].data
		case typeSRV:
			name = at[i].data[6:]
		case typeA, typeAAAA:
			name = at[i].name
		}
		for _, o := range w.heldOf(func(o own) bool { return o.name == name && !o.shared }) {
			if (o.kind != typeNSEC || o.lacks) && !slices.Contains(at, o.record) {
				at, out = append(at, o.record), append(out, o.record)
			}
		}
	}
	return out
}

// responses are messages with these records; what is extra may be left out.
func responses(at Way, list, extra []record) (out []Out) {
	for len(list) > 0 {
		m := newWriter(0, isResponse|isAuthoritative)
		n := fill(m, answers, list)
		list = list[n:]
		if len(list) == 0 {
			fill(m, additionals, extra)
		}
		out = append(out, Out{Way: at, Msg: m.bytes()})
	}
	return out
}

// fill writes as many records as there is room for, one at least if the message has none.
func fill(m *writer, section int, list []record) int {
	for i, r := range list {
		before, counts := len(m.msg), m.counts
		m.record(section, r)
		if len(m.msg) > mostSent && before > headerSize {
			m.msg, m.counts = m.msg[:before], counts // names that it made are not used any more
			return i
		}
	}
	return len(list)
}
