package httpd

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"ledge/api"
)

// randomShare is one with terms that could be any pool's.
func randomShare(r *rand.Rand) share {
	var t [ranks]terms
	for i := range t {
		t[i] = terms{least: r.IntN(5), half: r.IntN(3) == 0, passing: i == int(strangers)}
		if r.IntN(3) == 0 {
			t[i].each = 1 + r.IntN(6)
		}
		if r.IntN(4) == 0 {
			t[i].most = t[i].least + r.IntN(4)
		}
	}
	return newShare(r.IntN(12), t)
}

func randomParty(r *rand.Rand) party {
	return party{rank(r.IntN(int(ranks))), string(rune('a' + r.IntN(4)))}
}

// TestShareKeepsItsWord: whatever is taken and given back, no more is taken than there is, a party never has more than it may, and
// what is kept for a rank is there for it.
func TestShareKeepsItsWord(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomShare(r)
		var has []party
		for range 300 {
			p, n := randomParty(r), 1+r.IntN(2)
			terms := s.terms[p.rank]
			owed := s.kept(p, n) && (terms.most == 0 || s.taken[p.rank]+n <= terms.most) && !s.full(p, n) && !terms.half
			fits := s.fits(p, n)
			if owed && !fits {
				t.Fatalf("seed %d: %d of %d are kept for %s, and %v finds none: %+v", seed, terms.least-s.taken[p.rank], s.size, p.rank, p, s)
			}
			if fits && r.IntN(4) > 0 {
				s.take(p, n)
				for range n {
					has = append(has, p)
				}
			} else if len(has) > 0 {
				i := r.IntN(len(has))
				s.give(has[i], 1)
				has = append(has[:i], has[i+1:]...)
			}
			all := 0
			for i, t := range s.terms {
				all += max(s.taken[i], t.least)
			}
			if all > s.size || s.of[p] > 0 && terms.each > 0 && s.of[p] > terms.each || terms.most > 0 && s.taken[p.rank] > terms.most {
				t.Fatalf("seed %d: %+v", seed, s)
			}
		}
	}
}

// TestGreedyComeToRest: parties that want all there is, and come again whenever they lose something, come to rest after a few
// changes. Then no party has two more than another of its rank that would have more, and none of a lower rank has more than
// is kept for it while a higher one wants more.
func TestGreedyComeToRest(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := randomShare(r)
		for i := range s.terms {
			s.terms[i].passing, s.terms[i].half, s.terms[i].most = false, false, 0
		}
		var all []party
		for rank := range ranks {
			for i := range 1 + r.IntN(4) {
				all = append(all, party{rank, fmt.Sprint(i)})
			}
		}
		step := func(p party) bool {
			if s.fits(p, 1) {
				s.take(p, 1)
				return true
			}
			if from := s.greedy(p); len(from) > 0 {
				s.give(from[0], 1)
				if !s.fits(p, 1) {
					t.Fatalf("seed %d: %v lost a place to %v in vain", seed, from[0], p)
				}
				s.take(p, 1)
				return true
			}
			return false
		}
		changes := 0
		for still := 0; still < 10*len(all); still++ {
			if step(all[r.IntN(len(all))]) {
				still = 0
				if changes++; changes > 50*(s.size+1) {
					t.Fatalf("seed %d: they go round: %+v", seed, s)
				}
			}
		}
		for _, p := range all {
			for _, q := range all {
				switch {
				case s.full(p, 1):
				case p.rank == q.rank && s.of[q] > s.of[p]+1,
					q.rank < p.rank && s.of[q] > 0 && s.taken[q.rank] > s.terms[q.rank].least:
					t.Fatalf("seed %d: %v has %d, %v %d: %+v", seed, p, s.of[p], q, s.of[q], s)
				}
			}
		}
	}
}

// TestHalfLeavesSome: of places that are not taken back each party leaves as many as it has, so that a newcomer finds one.
func TestHalfLeavesSome(t *testing.T) {
	s := newShare(16, [ranks]terms{users: {half: true}})
	var got []int
	for i := range 6 {
		p := party{users, fmt.Sprint(i)}
		for s.fits(p, 1) {
			s.take(p, 1)
		}
		got = append(got, s.of[p])
	}
	if fmt.Sprint(got) != "[8 4 2 1 1 0]" {
		t.Errorf("%v", got)
	}
}

func TestPartyOf(t *testing.T) {
	admins := []string{api.AdminGroup}
	for _, tc := range []struct {
		user api.User
		want party
	}{
		{api.User{Name: "root", Groups: admins}, party{root, "root"}},
		{api.User{Name: "root"}, party{users, "root"}},
		{api.User{Name: "ada", Groups: admins}, party{administrators, "ada"}},
		{api.User{Name: "system:node:a", Groups: []string{api.NodesGroup}}, party{boards, "system:node:a"}},
		{api.User{Name: "system:node:a"}, party{users, "system:node:a"}},
		{api.User{Name: "system:serviceaccount:x:one"}, party{serviceAccounts, "x"}},
		{api.User{Name: "system:serviceaccount:x:two", Groups: admins}, party{serviceAccounts, "x"}},
		{api.User{Name: "bob"}, party{users, "bob"}},
		{api.User{Name: anonymousUser, Groups: []string{api.UnauthenticatedGroup}}, party{strangers, "192.0.2.1"}},
		{api.User{}, party{strangers, "192.0.2.1"}},
	} {
		if got := partyOf(tc.user, "192.0.2.1:80"); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.user, got, tc.want)
		}
	}
	for address, want := range map[string]string{"192.0.2.1:1": "192.0.2.1", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1":     "fe80::/64",
		"[::ffff:192.0.2.1]:1": "::ffff:192.0.2.1", "pipe": "pipe"} {
		if got := strangerAt(address); got != (party{strangers, want}) {
			t.Errorf("%s: %v, want %s", address, got, want)
		}
	}
}

// TestRoomForAThousandBoards: each with a connection for its requests and its tunnel, one for a stream, and eight watches, whatever
// others hold; and one more board finds all of that too.
func TestRoomForAThousandBoards(t *testing.T) {
	conns := newCapped(nil).places
	watches := newLimits(Config{}).watches
	for p, each := range map[*pool]int{conns: 2, watches: 8} {
		for i := range 1000 {
			for r := range boards { // those below take what they get
				for range 10 {
					_, _ = p.enter(party{r, fmt.Sprint(i)}, func() {})
				}
			}
		}
		for i := range 1001 {
			for range each {
				if _, err := p.enter(party{boards, fmt.Sprint(i)}, func() {}); err != nil {
					t.Fatalf("board %d: %v", i, err)
				}
			}
		}
		if n := p.taken[boards]; n != 1001*each {
			t.Errorf("%s: boards have %d", p.what, n)
		}
	}
}
