// Package dns answers the questions of this board's pods for names: those of Services and their endpoints out of what the board
// was told of them, all others by asking the resolvers of the board.
//
//	pod --UDP, TCP--> Server: who asks, his turn -> finder: one question, the whole search list
//	                                                  |-> Zone: cluster.local (pure)
//	                                                  +-> forwarder: cache -> the board's resolvers
//
// Invariants: an answer about the cluster waits for nobody, neither an uplink nor the time of day. Only pods of this board and the
// board itself are answered. A pod that asks without end takes its own turns, not those of others. Whatever a pod or a resolver
// sends has a bound in bytes, number and time.
package dns

import (
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Answer is what is said to a question. An answer without records and with RCodeSuccess says that the name is there, but nothing of
// that type.
type Answer struct {
	RCode         dnsmessage.RCode
	Authoritative bool
	Records       []dnsmessage.Resource // the answer itself, CNAMEs first
	Authority     []dnsmessage.Resource // the SOA, where there are no records
	Extra         []dnsmessage.Resource // addresses that are asked for next

	from int // which kind it is
}

// lower is a name as it is compared.
func lower(n dnsmessage.Name) string { return strings.ToLower(n.String()) }

// same says whether two questions are one.
func same(a, b dnsmessage.Question) bool {
	return a.Type == b.Type && a.Class == b.Class && strings.EqualFold(a.Name.String(), b.Name.String())
}

// header is that of a record in an answer to name.
func header(name dnsmessage.Name, t dnsmessage.Type, ttl uint32) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: name, Type: t, Class: dnsmessage.ClassINET, TTL: ttl}
}
