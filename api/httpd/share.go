package httpd

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"ledge/api"
)

// rank is a kind of caller. A higher rank goes before a lower one.
type rank int

const (
	strangers       rank = iota // have not shown who they are
	serviceAccounts             // service accounts: programs in pods
	users                       // others with a name, who can do what bindings say
	boards                      // nodes
	administrators              // may do everything
	root                        // root of the board, on its unix socket
	ranks
)

var rankNames = [ranks]string{"strangers", "service accounts", "users", "boards", "administrators", "root"}

func (r rank) String() string { return rankNames[r] }

// party is who shares a pool with others: one user, one board, all service accounts of a namespace, or an address whose callers
// are strangers. Whoever may make a service account may make a thousand of them, so they count together.
type party struct {
	rank rank
	name string
}

func (p party) String() string {
	switch p.rank {
	case serviceAccounts:
		return fmt.Sprintf("namespace %q", p.name)
	case strangers:
		return "address " + p.name
	}
	return fmt.Sprintf("%q", p.name)
}

// rootUser is the name of whoever comes by the unix socket.
const rootUser = "root"

// partyOf is the party of a caller. host is where it is.
func partyOf(u api.User, host string) party {
	_, isBoard := nodeName(u)
	namespace, _, isAccount := api.AccountOf(u.Name)
	switch admin := slices.Contains(u.Groups, api.AdminGroup); {
	case u.Name == "" || u.Name == anonymousUser:
		return strangerAt(host)
	case isAccount: // whatever groups it has: who may make accounts there shares them
		return party{serviceAccounts, namespace}
	case admin && u.Name == rootUser:
		return party{root, u.Name}
	case admin:
		return party{administrators, u.Name}
	case isBoard:
		return party{boards, u.Name}
	}
	return party{users, u.Name}
}

// strangerAt is the party of a stranger. One machine can have all addresses of an IPv6 network of 64 bits.
func strangerAt(address string) party {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			host = network.String()
		}
	}
	return party{strangers, host}
}

// terms are what the callers of a rank may have of a pool.
type terms struct {
	least int // kept for them, whatever others take
	most  int // all of them together; 0: what is not kept for others
	each  int // one party; 0: as much as all of them
	// half: a party may have no more than it leaves to others of its rank. So one takes half of what there is, the next
	// half of the rest, and a newcomer always finds something. It is for places that cannot be taken back.
	half bool
	// passing: a newcomer always takes the place of the one that has been there the longest, its own too.
	passing bool
}

// share says who may have how much of something. The sum of what is taken, or kept where less is taken, never exceeds its size: so
// what is kept for a rank is there when it is asked for.
type share struct {
	size  int
	terms [ranks]terms
	taken [ranks]int
	of    map[party]int
}

func newShare(common int, t [ranks]terms) share {
	s := share{size: common, terms: t, of: map[party]int{}}
	for _, t := range t {
		s.size += t.least
	}
	return s
}

// left is how much more a rank may take.
func (s *share) left(r rank) int {
	free := s.size
	for i, t := range s.terms {
		if free -= s.taken[i]; rank(i) != r {
			free -= max(0, t.least-s.taken[i])
		}
	}
	if most := s.terms[r].most; most > 0 {
		free = min(free, most-s.taken[r])
	}
	return free
}

// full says that a party has all that one may have, whatever is free.
func (s *share) full(p party, n int) bool {
	each := s.terms[p.rank].each
	return each > 0 && s.of[p]+n > each
}

// fits says whether a party may take n more.
func (s *share) fits(p party, n int) bool {
	left := s.left(p.rank)
	return n <= left && !s.full(p, n) && (!s.terms[p.rank].half || s.of[p]+n <= left)
}

// kept says whether n more come out of what is kept for the party's rank.
func (s *share) kept(p party, n int) bool { return s.taken[p.rank]+n <= s.terms[p.rank].least }

func (s *share) take(p party, n int) {
	s.taken[p.rank] += n
	s.of[p] += n
}

func (s *share) give(p party, n int) {
	s.taken[p.rank] -= n
	if s.of[p] -= n; s.of[p] == 0 {
		delete(s.of, p)
	}
}

// greedy are the parties one of whose places would be p's by right, the greediest first. They are those of lower ranks that have
// more than is kept for them, and those of the same rank that would still have more than p after it. Parties that take
// from each other therefore come to rest, and do not go round for ever: each time the shares become more even.
func (s *share) greedy(p party) (out []party) {
	t := s.terms[p.rank]
	for q, n := range s.of {
		switch {
		case s.full(p, 1):
			if q == p && t.passing {
				out = append(out, q)
			}
		case q.rank == p.rank:
			if n > s.of[p]+1 || t.passing && n >= s.of[p] {
				out = append(out, q)
			}
		case q.rank < p.rank && s.taken[q.rank] > s.terms[q.rank].least && (t.most == 0 || s.taken[p.rank] < t.most):
			out = append(out, q)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(s.of[b], s.of[a]), strings.Compare(a.name, b.name)) < 0
	})
	return out
}
