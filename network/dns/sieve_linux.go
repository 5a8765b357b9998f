package dns

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	floodAt   = 256 // questions of one sender that had to be left out
	floodOn   = 4   // and how many of one that is held back already
	sieveFor  = time.Second
	mostHeld  = 16
	oneInThis = 64 // of a power of two packets comes through
)

// sieve keeps one pod from filling the socket that all share: there lanes do not help. Of a sender who has far more waiting than his
// share, the kernel drops all but one packet in 64 for a second, as he sends them and at his cost.
type sieve struct {
	conn *net.UDPConn
	out  map[netip.Addr]int // questions left out in this second
	held []netip.Addr
	next time.Time // when that ends
}

func newSieve(conn *net.UDPConn) *sieve {
	s := &sieve{conn: conn, out: map[netip.Addr]int{}}
	s.hold(nil) // the socket may have a sieve of the process before this one
	return s
}

// leftOut counts a question for which there was no room.
func (s *sieve) leftOut(who netip.Addr) {
	if now := time.Now(); len(s.held) == 0 && now.After(s.next) {
		clear(s.out) // of another second
		s.next = now.Add(sieveFor)
	}
	if s.out[who]++; s.out[who] < floodAt || slices.Contains(s.held, who) || len(s.held) == mostHeld {
		return
	}
	if len(s.held) == 0 {
		s.wait(time.Now().Add(sieveFor))
	}
	s.hold(append(s.held, who))
}

// tick lets go, when it is time to, who does not go on.
func (s *sieve) tick() {
	now := time.Now()
	if len(s.held) == 0 || now.Before(s.next) {
		return
	}
	still := slices.DeleteFunc(slices.Clone(s.held), func(who netip.Addr) bool { return s.out[who] < floodOn })
	clear(s.out)
	s.hold(still)
	if len(still) == 0 {
		s.wait(time.Time{})
		return
	}
	s.wait(now.Add(sieveFor))
}

// wait has reading end when it is time to look, though nothing comes.
func (s *sieve) wait(until time.Time) {
	s.next = until
	_ = s.conn.SetReadDeadline(until)
}

// hold has the kernel hold these back, and nobody else. A kernel that cannot is one that does without.
func (s *sieve) hold(who []netip.Addr) {
	s.held = who
	rc, err := s.conn.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		if len(who) == 0 {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
			return
		}
		filter := sieveFor4(who)
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
}

// sieveFor4 is the kernel's program: the source address of IPv4 is compared with each; then chance decides.
func sieveFor4(who []netip.Addr) []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		bits  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		end   = unix.BPF_RET | unix.BPF_K
		// linux/filter.h: SKF_NET_OFF is -0x100000, SKF_AD_OFF -0x1000, SKF_AD_RANDOM 56.
		source = 1<<32 - 0x100000 + 12
		chance = 1<<32 - 0x1000 + 56
		all    = 1<<32 - 1
	)
	out := []unix.SockFilter{{Code: load, K: source}}
	for i, a := range who {
		b := a.Unmap().As4()
		out = append(out, unix.SockFilter{Code: equal, Jt: uint8(len(who) - i), K: binary.BigEndian.Uint32(b[:])})
	}
	return append(out, unix.SockFilter{Code: end, K: all}, unix.SockFilter{Code: load, K: chance},
		unix.SockFilter{Code: bits, Jt: 1, K: oneInThis - 1}, unix.SockFilter{Code: end, K: all}, unix.SockFilter{Code: end})
}

// looks says that reading ended only for the sieve to look.
func looks(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
