// Package mdns has a board found on its own network without a server of names: HOST.local, and the services that it announces (RFC 6762,
// RFC 6763). It also looks for boards, from any machine.
//
//	Links, Wanted --> Responder (pure: state, packet, time -> packets) <--> Serve: a socket for each family
//	                                                                        Find: one question, its answers
//
// Invariants: the board answers for a name only after nobody objected to it. It answers nobody who is not on the link. It sends a record
// to all at most once a second, and has one bound for all that it sends to single askers. It keeps nothing of an asker, except with an
// answer that waits for the rest of the question. Whatever a stranger sends has a bound in bytes and number.
package mdns

import (
	"net/netip"
	"time"
)

// Link is an interface on which the board is to be found.
type Link struct {
	Index     int
	Addresses []netip.Prefix
}

// on says whether an address is one of the link's neighbours.
func (l Link) on(a netip.Addr) bool {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return true
	}
	for _, p := range l.Addresses {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// family says whether the link has addresses of one.
func (l Link) family(v6 bool) bool {
	for _, p := range l.Addresses {
		if p.Addr().Is6() == v6 {
			return true
		}
	}
	return false
}

// Way is a family on a link. What is asked on one is answered on that one.
type Way struct {
	Index int
	V6    bool
}

// Wanted is what is to be found. The zero value is nothing.
type Wanted struct {
	Label   string // of the board: shed-1 is shed-1.local
	Port    uint16 // of its API; 0: nobody elsewhere reaches one
	Page    uint16 // the port of its page; 0: there is none for others
	Version string
	State   string
	Aliases []Alias
}

// Alias is a further name, with addresses that need not be the board's.
type Alias struct {
	Label     string
	Addresses []netip.Addr
}

// Out is a packet to send.
type Out struct {
	Way Way
	To  netip.AddrPort // not valid: all on the link
	Msg []byte
}

// Port is where all that speak the protocol listen.
const Port = 5353

// What there may be of anything.
const (
	MostLinks     = 16 // interfaces
	MostAliases   = 64
	MostAddresses = 16 // of an alias, and of an interface

	mostMessage   = 9000 // bytes that are read
	mostSent      = 1400 // bytes that are sent, if one record is not more
	mostQuestions = 128  // of a message
	mostRecords   = 1024 // of a message
	mostTry       = 999  // shed-1-999 is followed by shed-1-2
	mostSingle    = 20   // packets to single ones on a way in a second
)

// Times of the RFC.
const (
	probeEvery    = 250 * time.Millisecond
	announceEvery = time.Second
	deferFor      = time.Second // after another's probe that wins
	sameEvery     = time.Second // of one record
	defendEvery   = 250 * time.Millisecond
	fightFor      = 10 * time.Second // in which so many objections make the board slow to try again
	mostFights    = 15
	slowTry       = 5 * time.Second

	hostTTL    = 120  // seconds, of what names a host
	serviceTTL = 4500 // and of all else
	legacyTTL  = 10   // of what is told to those who keep no cache
)
