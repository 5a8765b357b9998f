package dns

import (
	"net/netip"
	"sync"
)

// share divides what there is only so much of. Each may have as much as is still free: one alone gets half, two a third each, and
// there is always something left for one more, however much the others want.
type share struct {
	total int

	mu   sync.Mutex
	used int
	by   map[netip.Addr]int
}

func newShare(total int) *share { return &share{total: total, by: map[netip.Addr]int{}} }

// take says whether who asks may have one; then give has to follow.
func (s *share) take(who netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[who] >= s.total-s.used {
		return false
	}
	s.used++
	s.by[who]++
	return true
}

func (s *share) give(who netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.by[who]--; s.by[who] == 0 {
		delete(s.by, who)
	}
}

// turns are questions that wait, in a lane for each who asks. One is taken from each lane in turn, so that who asks a thousand
// times waits for himself.
type turns struct {
	room *share

	mu     sync.Mutex
	some   sync.Cond
	lanes  map[netip.Addr][]packet
	order  []netip.Addr // of the lanes, the next first
	closed bool
}

// packet is a message as it came.
type packet struct {
	from netip.AddrPort
	msg  []byte
}

func newTurns(most int) *turns {
	t := &turns{room: newShare(most), lanes: map[netip.Addr][]packet{}}
	t.some.L = &t.mu
	return t
}

// add has a message wait. false: its sender has too many that wait.
func (t *turns) add(from netip.AddrPort, msg []byte) bool {
	who := from.Addr()
	if !t.room.take(who) {
		return false
	}
	t.mu.Lock()
	lane := t.lanes[who]
	if len(lane) == 0 {
		t.order = append(t.order, who)
	}
	t.lanes[who] = append(lane, packet{from, append([]byte(nil), msg...)})
	t.mu.Unlock()
	t.some.Signal()
	return true
}

// next waits for a message whose turn it is. false: there will be none.
func (t *turns) next() (packet, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.order) == 0 {
		if t.closed {
			return packet{}, false
		}
		t.some.Wait()
	}
	who := t.order[0]
	lane := t.lanes[who]
	p := lane[0]
	if t.order = t.order[1:]; len(lane) > 1 {
		t.lanes[who] = lane[1:]
		t.order = append(t.order, who)
	} else {
		delete(t.lanes, who)
	}
	t.room.give(who)
	return p, true
}

// close lets those go who wait in next, once nothing is left.
func (t *turns) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.some.Broadcast()
}
