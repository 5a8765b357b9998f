package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// deed is one line of a fleet's script: what happens, to which boards, for how long, how much of it, and the quiet after it.
// It hangs on the seed alone, on nothing that happens: what one seed did, it does again.
type deed struct {
	kind   string
	boards []int // none: the control plane
	lasts  time.Duration
	much   time.Duration // how slow, or how far a clock jumps
	rest   time.Duration
}

func (d deed) String() string {
	s := fmt.Sprintf("%s for %s", d.kind, d.lasts)
	if d.much != 0 {
		s += fmt.Sprintf(" by %s", d.much)
	}
	if len(d.boards) > 0 {
		s += fmt.Sprintf(" on %d", d.boards)
	}
	return s
}

// The kinds of deeds.
const (
	cutFew       = "cut the links"
	cutLong      = "cut the links for long"
	cutMost      = "cut most links"
	cutAll       = "cut all links"
	slowLinks    = "slow links"
	boardClocks  = "clocks of boards jump"
	planeClock   = "the control plane's clock jumps"
	stallCards   = "cards of boards stall"
	stallPlane   = "the control plane's card stalls"
	loseKeepers  = "keepers are away"
	cutPower     = "cut the power"
	restartPlane = "the control plane is restarted"
	killPlane    = "the control plane loses its power"
	replaceBoard = "replace a board under its name"
	nothing      = "nothing"
)

// deedKinds in the order that the seed counts them in.
var deedKinds = []string{cutFew, cutLong, cutMost, cutAll, slowLinks, boardClocks, planeClock, stallCards, stallPlane, loseKeepers,
	cutPower,
	restartPlane, killPlane, replaceBoard, nothing}

// script is what a seed does to a fleet of so many boards, deed after deed, without end.
type script struct {
	rng    *rand.Rand
	boards int
}

func newScript(seed uint64, boards int) *script {
	return &script{rng: rand.New(rand.NewPCG(seed, 0xf1ee7)), boards: boards}
}

func (s *script) next() deed {
	d := deed{kind: deedKinds[s.rng.IntN(len(deedKinds))]}
	half := 1 + s.rng.IntN(s.boards/2)
	switch d.kind {
	case cutFew:
		d.boards, d.lasts = s.some(half), s.upTo(4*time.Minute)
	case cutLong:
		d.boards, d.lasts = s.some(half), 16*time.Minute+s.upTo(10*time.Minute)
	case cutMost:
		d.boards, d.lasts = s.some(s.boards*6/10+s.rng.IntN(s.boards*4/10)), 10*time.Minute+s.upTo(20*time.Minute)
	case cutAll:
		d.boards, d.lasts = s.some(s.boards), 10*time.Minute+s.upTo(20*time.Minute)
	case slowLinks:
		d.boards, d.lasts, d.much = s.some(half), s.upTo(20*time.Minute), 50*time.Millisecond+s.upTo(2*time.Second)
	case boardClocks:
		d.boards, d.lasts, d.much = s.some(half), s.upTo(20*time.Minute), s.jump()
	case planeClock:
		d.lasts, d.much = s.upTo(20*time.Minute), s.jump()
	case stallCards:
		d.boards, d.lasts = s.some(half), 30*time.Second
	case stallPlane:
		d.lasts = 30 * time.Second
	case loseKeepers:
		d.boards, d.lasts = s.some(half), s.upTo(25*time.Second)
	case cutPower:
		d.boards, d.lasts = s.some(half), s.upTo(20*time.Minute)
	case restartPlane, killPlane:
		d.lasts = s.upTo(3 * time.Minute)
	case replaceBoard:
		d.boards, d.lasts = s.some(1), 5*time.Minute+s.upTo(2*time.Minute)
	}
	d.rest = s.upTo(20 * time.Minute)
	return d
}

func (s *script) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + s.rng.Int64N(int64(d)-1)).Round(time.Millisecond)
}

// jump is how far a clock that is wrong may be off: seconds, hours, or the decades of a board without a battery.
func (s *script) jump() time.Duration {
	far := []time.Duration{time.Minute, 12 * time.Hour, 30 * 365 * 24 * time.Hour}
	d := time.Second + s.upTo(far[s.rng.IntN(len(far))])
	if s.rng.IntN(2) == 0 {
		return -d
	}
	return d
}

func (s *script) some(n int) []int {
	out := s.rng.Perm(s.boards)[:n]
	slices.Sort(out)
	return out
}

// TestScript: a seed is the script, whole and alone, and all that may happen does.
func TestScript(t *testing.T) {
	const long = 500
	text := func(seed uint64) string {
		s, out := newScript(seed, 10), ""
		for range long {
			d := s.next()
			out += fmt.Sprintln(d, d.rest)
		}
		return out
	}
	one, again := text(7), text(7)
	if one != again {
		t.Error("one seed, two scripts")
	}
	if one == text(8) {
		t.Error("two seeds, one script")
	}
	seen, s := map[string]int{}, newScript(7, 10)
	for range long {
		d := s.next()
		seen[d.kind]++
		if len(d.boards) > 10 || len(d.boards) > 0 && d.boards[len(d.boards)-1] > 9 || d.lasts < 0 || d.lasts > time.Hour {
			t.Errorf("%s: out of bounds", d)
		}
	}
	for _, k := range deedKinds {
		if seen[k] == 0 {
			t.Errorf("%s: never", k)
		}
	}
}
