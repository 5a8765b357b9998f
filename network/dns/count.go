package dns

import (
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"
)

// Kinds of answers, by where they came from.
const (
	fromCluster = iota // the zone
	fromOutside        // a resolver, just now
	fromCache
	fromStale // the cache, after the answer had run out
	refused   // a question that is not understood, or one too many of who asks
	failed    // nobody knows
	kinds
)

// Kinds are their names.
var Kinds = [kinds]string{"cluster", "outside", "cached", "stale", "refused", "failed"}

// Counts are the questions of each kind so far. Several servers may share them.
type Counts [kinds]atomic.Uint64

// count takes note of one answer.
func (s *Server) count(q query, a Answer) {
	kind := a.from
	switch {
	case q.fault != dnsmessage.RCodeSuccess:
		kind = refused
	case a.RCode == dnsmessage.RCodeServerFailure:
		kind = failed
	}
	s.counted(kind)
}

func (s *Server) counted(kind int) {
	if s.cfg.Counts != nil {
		s.cfg.Counts[kind].Add(1)
	}
}
