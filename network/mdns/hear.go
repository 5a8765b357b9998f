package mdns

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// Hear takes a packet. toAll: it was sent to all on the link.
func (r *Responder) Hear(now time.Time, at Way, from netip.AddrPort, toAll bool, msg []byte) []Out {
	w := r.ways[at]
	who := from.Addr().Unmap().WithZone("")
	if w == nil || !w.link.on(who) {
		return nil
	}
	m, ok := newReader(msg)
	if !ok {
		return nil
	}
	here := r.here(who)
	if m.flags&isResponse == 0 {
		if here && m.counts[authorities] > 0 {
			return nil // it is our own probe, perhaps from another interface
		}
		return r.hearQuestions(now, at, w, &m, from, toAll)
	}
	if here || from.Port() != Port {
		return nil
	}
	out := r.hearResponse(now, w, &m)
	return append(out, w.flush(now, at)...)
}

// here says whether an address is the board's, on whatever interface.
func (r *Responder) here(a netip.Addr) bool {
	return slices.ContainsFunc(r.links, func(l Link) bool {
		return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// To whom a record is to be told.
const (
	toNobody = iota
	toOne
	toEverybody
)

func (r *Responder) hearQuestions(now time.Time, at Way, w *way, m *reader, from netip.AddrPort, toAll bool) []Out {
	legacy, probes := from.Port() != Port, m.counts[authorities] > 0
	to := make([]uint8, len(w.records))
	var about []question
	whole := m.counts[0] <= mostQuestions
	for range min(m.counts[0], mostQuestions) {
		q, ok := m.question()
		if !ok {
			whole = false
			break
		}
		how := uint8(toEverybody)
		if legacy || !probes && (q.class&topBit != 0 || !toAll) {
			how = toOne
		}
		if w.match(q, how, to) {
			about = append(about, q)
		}
	}
	who := from.Addr().Unmap().WithZone("")
	if whole {
		w.known(m, who, to)
		if probes && !r.here(who) {
			r.contend(now, w, m)
		}
	}
	if legacy {
		return w.single(now, at, from, m.id, about, to)
	}
	later := time.Duration(0)
	for i, o := range w.records {
		if o.shared && to[i] == toEverybody {
			later = 20*time.Millisecond + r.random(100*time.Millisecond)
		}
	}
	pending := netip.Addr{}
	if m.flags&isTruncated != 0 {
		later, pending = 400*time.Millisecond+r.random(100*time.Millisecond), who
	}
	pause := sameEvery
	if probes {
		pause = defendEvery
	}
	for i, o := range w.records {
		stale := now.Sub(w.sent[o.record]) > time.Duration(o.ttl)*time.Second/4
		if to[i] == toEverybody || to[i] == toOne && stale {
			to[i] = toNobody
			w.await(now, o.record, now.Add(later), pending, pause)
		}
	}
	out := w.single(now, at, from, 0, nil, to)
	return append(out, w.flush(now, at)...)
}

// match notes which records a question is about.
func (w *way) match(q question, how uint8, to []uint8) (found bool) {
	if class := q.class &^ topBit; class != classIN && class != classANY {
		return false
	}
	none := -1
	for i, o := range w.records {
		if o.name != q.name || !w.stands[o.of].held() {
			continue
		}
		switch {
		case q.kind == o.kind, q.kind == typeANY && o.kind != typeNSEC:
			to[i], found = max(to[i], how), true
		case o.kind == typeNSEC:
			none = i
		}
	}
	if !found && none >= 0 {
		to[none], found = max(to[none], how), true
	}
	return found
}

// known leaves out what the one who asks knows, also of what waits for the rest of his question.
func (w *way) known(m *reader, who netip.Addr, to []uint8) {
	for range min(m.counts[answers], mostRecords) {
		k, ok := m.record()
		if !ok {
			m.counts[authorities] = 0 // what follows cannot be read
			return
		}
		for i, o := range w.records {
			if !o.same(k) || k.ttl < o.ttl/2 {
				continue
			}
			to[i] = toNobody
			if p, ok := w.waiting[o.record]; ok && p.asker == who {
				delete(w.waiting, o.record)
			}
		}
	}
}

// await has a record told to all, unless it was just now.
func (w *way) await(now time.Time, r record, at time.Time, asker netip.Addr, pause time.Duration) {
	if now.Sub(w.sent[r]) < pause {
		return
	}
	if was, ok := w.waiting[r]; ok {
		if was.at.Before(at) {
			at = was.at
		}
		if was.asker != asker {
			asker = netip.Addr{} // more than one wants to know
		}
	}
	w.waiting[r] = waits{at, asker}
}

// single answers one alone: who asks from another port than ours keeps no cache, and is told as any resolver would.
func (w *way) single(now time.Time, at Way, from netip.AddrPort, id uint16, about []question, to []uint8) []Out {
	var list []record
	for i, o := range w.records {
		if to[i] != toNobody {
			list = append(list, o.record)
		}
	}
	if now.Sub(w.since) >= time.Second {
		w.since, w.singles = now, 0
	}
	if len(list) == 0 || w.singles >= mostSingle {
		return nil
	}
	w.singles++
	m := newWriter(id, isResponse|isAuthoritative)
	extra := w.extra(list)
	if len(about) > 0 {
		for _, q := range about[:min(len(about), 8)] {
			q.class &^= topBit
			m.question(q)
		}
		for _, some := range [][]record{list, extra} {
			for i := range some {
				some[i].class, some[i].ttl = classIN, min(some[i].ttl, legacyTTL)
			}
		}
	}
	if n := fill(m, answers, list); n == len(list) {
		fill(m, additionals, extra)
	}
	return []Out{{Way: at, To: from, Msg: m.bytes()}}
}

// hearResponse looks for others that have our names.
func (r *Responder) hearResponse(now time.Time, w *way, m *reader) (out []Out) {
	for range m.counts[0] {
		if _, ok := m.question(); !ok {
			return nil
		}
	}
	lost := map[*group]bool{}
	total := int(m.counts[answers]) + int(m.counts[authorities]) + int(m.counts[additionals])
	for range min(total, mostRecords) {
		k, ok := m.record()
		if !ok {
			break
		}
		if g := r.judge(now, w, k); g != nil {
			lost[g] = true
		}
	}
	for _, g := range r.groups {
		switch s := w.stands[g]; {
		case !lost[g]:
		case s.held(): // somebody probes for the name: its holder defends it
			s.step, s.next = 0, now
			for _, o := range w.records {
				if o.of == g {
					delete(w.waiting, o.record)
				}
			}
		default:
			out = append(out, r.rename(now, g)...)
		}
	}
	return out
}

// judge gives the group whose name another has; nil: none. What another takes back of ours is told again.
func (r *Responder) judge(now time.Time, w *way, k record) (lost *group) {
	for _, o := range w.records {
		if o.name != k.name || k.class&^topBit != classIN {
			continue
		}
		s := w.stands[o.of]
		if o.same(k) {
			if s.held() && k.ttl < o.ttl/2 {
				w.await(now, o.record, latest(now, w.sent[o.record].Add(sameEvery)), netip.Addr{}, 0)
			}
			return nil
		}
		// Who has a name answers a probe with more than that there is nothing else.
		if o.shared || k.ttl == 0 || s.held() && o.kind != k.kind || k.kind == typeNSEC {
			continue
		}
		if a, ok := netip.AddrFromSlice([]byte(k.data)); ok && (k.kind == typeA || k.kind == typeAAAA) && r.here(a) {
			continue // our own, which a reflector has brought here from another interface
		}
		lost = o.of
	}
	return lost
}

// rename has a group try the next name, on all ways. Where it had the name it is taken back: others remember it for an hour.
func (r *Responder) rename(now time.Time, g *group) (out []Out) {
	if now.Sub(r.since) > fightFor {
		r.since, r.fights = now, 0
	}
	wait := r.random(probeEvery)
	if r.fights++; r.fights >= mostFights {
		wait = slowTry
	}
	gone := map[Way][]own{}
	for at, w := range r.inOrder() {
		gone[at] = w.heldOf(func(o own) bool { return o.of == g })
	}
	for range mostTry { // a name that no other group of this board has
		g.next()
		if !slices.ContainsFunc(r.groups, func(o *group) bool { return o != g && o.has() == g.has() }) {
			break
		}
	}
	for at, w := range r.inOrder() {
		out = append(out, farewell(at, gone[at])...)
		r.rewrite(w)
		w.stands[g] = &stand{next: now.Add(wait)}
	}
	return out
}

// contend compares our probes with those of others for the same names. Who has the greater records goes on; the other waits, and asks
// again.
func (r *Responder) contend(now time.Time, w *way, m *reader) {
	theirs := map[string][]string{} // by name, as they are compared
	for range min(m.counts[authorities], mostRecords) {
		k, ok := m.record()
		if !ok {
			break
		}
		if slices.ContainsFunc(w.records, func(o own) bool { return o.name == k.name }) {
			theirs[k.name] = append(theirs[k.name], k.rank())
		}
	}
	for _, g := range r.groups {
		s := w.stands[g]
		if s.held() {
			continue
		}
		ours := map[string][]string{}
		for _, c := range w.claims([]*group{g}) {
			ours[c.name] = append(ours[c.name], c.rank())
		}
		for name, list := range ours {
			other := theirs[name]
			slices.Sort(list)
			slices.Sort(other)
			if len(other) > 0 && slices.Compare(list, other) < 0 {
				s.step, s.next = 0, now.Add(deferFor)
			}
		}
	}
}

// rank is what the RFC (8.2) compares two records of a name by: class, type, bytes.
func (r record) rank() string {
	front := binary.BigEndian.AppendUint16(nil, r.class&^topBit)
	return string(binary.BigEndian.AppendUint16(front, r.kind)) + r.data
}
