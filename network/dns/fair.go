package dns

import (
	"net/netip"
	"sync"

	"ledge/network/share"
)

// turns are questions that wait, in a lane for each who asks. One is taken from each lane in turn, so that who asks a thousand
// times waits for himself.
type turns struct {
	room *share.Places

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
	t := &turns{room: share.New(most), lanes: map[netip.Addr][]packet{}}
	t.some.L = &t.mu
	return t
}

// add has a message wait. false: its sender has too many that wait.
func (t *turns) add(from netip.AddrPort, msg []byte) bool {
	who := from.Addr()
	if !t.room.Take(who) {
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
	t.room.Give(who)
	return p, true
}

// close lets those go who wait in next, once nothing is left.
func (t *turns) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.some.Broadcast()
}
