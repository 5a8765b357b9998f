package upgrade

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// at is a stamp of version v1.n.
func at(n int) Stamp {
	return Stamp{Version: fmt.Sprintf("v1.%d.0", n), Built: fmt.Sprintf("2026-01-%02dT00:00:00Z", n+1), Store: 1}
}

func named(n int) string { return Name(at(n).Version, []byte{byte(n), 1, 2, 3, 4}) }

// upgraded is a board whose base is v1.0.0.
func upgraded(to ...int) State {
	s := State{Base: at(0)}
	for _, n := range to {
		s, _ = s.Begin(named(n), at(n), DefaultWithin, true)
		s, _ = s.Launch(at(0))
		s = s.Commit(named(n))
	}
	return s
}

func TestNewer(t *testing.T) {
	// Each is newer than the one before it.
	order := []string{"unknown", "v0.0.0-dev", "v0.9.0", "v1.2.3-alpha", "v1.2.3-rc.2", "v1.2.3-rc.10", "v1.2.3-rc.10-2-gabcdef0", "v1.2.3",
		"v1.2.3-4-gabcdef0", "v1.2.3-12-g1234567-dirty", "v1.2.4", "v1.10.0", "v2.0.0"}
	for i, a := range order {
		for j, b := range order {
			if got := Newer(Stamp{Version: a}, Stamp{Version: b}); got != (i > j) {
				t.Errorf("%s newer than %s: %v", a, b, got)
			}
		}
	}
	early, late := Stamp{Version: "v1.0.0", Built: "2026-01-02T00:00:00Z"}, Stamp{Version: "v1.0.0", Built: "2026-01-03T00:00:00Z"}
	if !Newer(late, early) || Newer(early, late) || Newer(early, early) {
		t.Error("builds of one version are not told apart by when they were built")
	}
	if Newer(Stamp{Version: "v1.0.0", Built: "soon"}, early) || Newer(early, Stamp{Version: "v1.0.0"}) {
		t.Error("a build without a time is newer")
	}
}

// TestTrial: a version that is never well is started three times, then the one before it, which says why.
func TestTrial(t *testing.T) {
	s, err := upgraded(1).Begin(named(2), at(2), DefaultWithin, false)
	if err != nil {
		t.Fatal(err)
	}
	var runs []string
	for range 5 {
		var run string
		s, run = s.Launch(at(0))
		runs = append(runs, run)
		s = s.Lacked(run, "the node is not ready")
	}
	if want := []string{named(2), named(2), named(2), named(1), named(1)}; !reflect.DeepEqual(runs, want) {
		t.Errorf("runs %q, want %q", runs, want)
	}
	want := Outcome{Name: named(2), Back: named(1), Why: "it was not well after 3 starts: the node is not ready"}
	if s.Last == nil || *s.Last != want || s.Pending != nil {
		t.Errorf("%+v, pending %v", s.Last, s.Pending)
	}
	if s = s.Told(); !s.Last.Told {
		t.Error("it is not known that this was told")
	}
	if got := s.keeps(); !reflect.DeepEqual(got, []string{named(1)}) {
		t.Errorf("kept: %q", got)
	}
}

// TestEnded: starts that were told to end before they could be well do not count.
func TestEnded(t *testing.T) {
	s, _ := upgraded().Begin(named(1), at(1), DefaultWithin, false)
	for range 10 {
		var run string
		if s, run = s.Launch(at(0)); run != named(1) {
			t.Fatal(run)
		}
		s = s.Ended(run)
	}
	if s.Pending.Tries != 0 || s.Ended(named(1)).Pending.Tries != 0 || s.Ended("other").Pending.Tries != 0 {
		t.Errorf("%+v", s.Pending)
	}
}

func TestBegin(t *testing.T) {
	two := upgraded(1, 2)
	newStore := at(3)
	newStore.Store = 2
	three, err := two.Begin(named(3), newStore, DefaultWithin, false)
	if err != nil {
		t.Fatal(err)
	}
	tried, _ := three.Launch(at(0))
	three = tried.Commit(named(3))
	for name, tc := range map[string]struct {
		s     State
		n     int
		older bool
		want  error
	}{
		"newer":                       {two, 3, false, nil},
		"older":                       {two, 1, false, ErrOlder},
		"older, as told":              {two, 1, true, nil},
		"the same":                    {two, 2, true, ErrSame},
		"with an older store, always": {three, 2, true, ErrStore},
	} {
		if _, err := tc.s.Begin(named(tc.n), at(tc.n), DefaultWithin, tc.older); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if _, err := three.Rollback(DefaultWithin); !errors.Is(err, ErrStore) {
		t.Errorf("rollback over a change of the store: %v", err)
	}
	if _, run := tried.Launch(at(0)); run != named(3) {
		t.Errorf("the trial goes on with %s", run)
	}
	if off, err := tried.Begin(named(2), at(2), DefaultWithin, false); err != nil || off.Pending != nil || off.Running() != named(2) {
		t.Errorf("a trial is not called off by the version that runs: %v %+v", err, off)
	}
}

// TestRollback: to the version before, on trial as any other; again, and it is the newer one.
func TestRollback(t *testing.T) {
	if _, err := (State{Base: at(0)}).Rollback(DefaultWithin); !errors.Is(err, ErrNowhere) {
		t.Errorf("without an upgrade: %v", err)
	}
	s := upgraded(1)
	for _, want := range []string{Base, named(1), Base} {
		var err error
		if s, err = s.Rollback(DefaultWithin); err != nil {
			t.Fatal(err)
		}
		var run string
		if s, run = s.Launch(at(0)); run != want {
			t.Errorf("runs %s, want %s", run, want)
		}
		s = s.Commit(run)
		if s.Running() != want {
			t.Errorf("%s runs on, want %s", s.Running(), want)
		}
	}
	s, _ = upgraded(1, 2).Begin(named(3), at(3), DefaultWithin, false)
	s, _ = s.Launch(at(0))
	if s, err := s.Rollback(DefaultWithin); err != nil || s.Pending != nil || s.Running() != named(2) || s.Previous != named(1) {
		t.Errorf("out of a trial: %v %+v", err, s)
	}
}

// TestBaseReplaced: a package's upgrade wins over an older version, on trial; an older package does not.
func TestBaseReplaced(t *testing.T) {
	pending, _ := upgraded(2).Begin(named(4), at(4), DefaultWithin, false)
	back, _ := upgraded(2).Rollback(DefaultWithin)
	back, _ = back.Launch(at(0))
	for name, tc := range map[string]struct {
		s    State
		base int
		runs string
		back string // when that is not well
	}{
		"the same":                     {upgraded(2), 0, named(2), named(2)},
		"newer than what it was":       {upgraded(2), 1, named(2), named(2)},
		"newer than what runs":         {upgraded(2), 3, Base, named(2)},
		"newer, with a newer on trial": {pending, 3, named(4), named(2)},
		"newer than what is on trial":  {pending, 5, Base, named(2)},
		"never upgraded":               {State{}, 5, Base, Base},
		"gone back to the base":        {back.Commit(Base), 5, Base, Base},
		"a damaged state":              {State{Current: named(2)}, 5, named(2), named(2)},
	} {
		s, run := tc.s.Launch(at(tc.base))
		if run != tc.runs {
			t.Errorf("%s: runs %s, want %s", name, run, tc.runs)
		}
		for range MostTries + 1 {
			s, run = s.Launch(at(tc.base))
		}
		if run != tc.back {
			t.Errorf("%s: goes back to %s, want %s", name, run, tc.back)
		}
	}
}

// TestCannot: a file that does not start has the version before it run, and in the end the base, which is there.
func TestCannot(t *testing.T) {
	s, _ := upgraded(1, 2).Begin(named(3), at(3), DefaultWithin, false)
	s, run := s.Launch(at(0))
	for _, want := range []string{named(2), named(1), Base, Base} {
		was := run
		if s, run = s.Cannot(run, "no such file"); run != want {
			t.Errorf("%s cannot start: runs %s, want %s", was, run, want)
		}
		if was != Base && (s.Last == nil || s.Last.Name != was || s.Last.Back != want) {
			t.Errorf("told: %+v", s.Last)
		}
	}
}

// TestKeeper: the keeper takes a version that the brain has proven, and goes back alone when it cannot run that.
func TestKeeper(t *testing.T) {
	s, _ := upgraded().Begin(named(1), at(1), DefaultWithin, false)
	start := func(want string) {
		t.Helper()
		var run string
		if s, run = s.LaunchKeeper(); run != want {
			t.Errorf("the keeper is %s, want %s", run, want)
		}
	}
	start(Base)
	s, _ = s.Launch(at(0))
	start(Base)
	s = s.Commit(named(1))
	start(named(1))
	s = s.KeeperReady(named(1))
	for range 5 {
		start(named(1))
	}
	s, _ = s.Begin(named(2), at(2), DefaultWithin, false)
	s, _ = s.Launch(at(0))
	s = s.Commit(named(2))
	for range MostTries {
		start(named(2))
	}
	start(named(1))
	s, _ = s.Begin(named(3), at(3), DefaultWithin, false)
	s, _ = s.Launch(at(0))
	if got := s.keeps(); !reflect.DeepEqual(got, []string{named(1), named(2), named(3)}) {
		t.Errorf("kept: %q", got)
	}
	s = s.Commit(named(3))
	start(named(3))
	s = s.KeeperReady(named(3))
	start(named(3))
}

// TestSteps: whatever happens in whatever order, what is started is kept, a version is started three times at most before
// it is well, and only what was well is gone back to.
func TestSteps(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		s, base, next := State{Base: at(0)}, 0, 1
		well, starts := map[string]bool{Base: true}, map[string]int{}
		for step := range 60 {
			var run string
			switch rnd.IntN(7) {
			case 0:
				if t, err := s.Begin(named(next), at(next), DefaultWithin, false); err == nil {
					s, starts[named(next)] = t, 0
				}
				next++
			case 1:
				base, next = next, next+1
			case 2:
				if t, err := s.Rollback(DefaultWithin); err == nil {
					if s = t; s.Pending != nil {
						starts[s.Pending.Name] = 0
					}
				}
			case 3:
				_, run = s.LaunchKeeper()
			default:
				if s.Base != at(base) { // another program
					starts[Base] = 0
				}
				s, run = s.Launch(at(base))
				starts[run]++
				if s.OnTrial(run) && starts[run] > MostTries {
					t.Fatalf("seed %d, step %d: %s is started %d times", seed, step, run, starts[run])
				}
				if !s.OnTrial(run) && !well[run] {
					t.Fatalf("seed %d, step %d: %s runs and was never well", seed, step, run)
				}
				if rnd.IntN(3) == 0 {
					if s.OnTrial(run) {
						well[run] = true
					}
					s = s.Commit(run)
				}
			}
			if run != "" && run != Base && !strings.Contains(strings.Join(s.keeps(), " "), run) {
				t.Fatalf("seed %d, step %d: %s is started and not kept", seed, step, run)
			}
			if n := len(s.keeps()); n > 5 {
				t.Fatalf("seed %d, step %d: %d versions are kept", seed, step, n)
			}
		}
	}
}

func TestName(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "ledge-v1.2.3-01020304", "../x y": "ledge-..-x-y-01020304", "": "ledge--01020304",
		strings.Repeat("9", 300): "ledge-" + strings.Repeat("9", 60) + "-01020304"} {
		if got := Name(version, []byte{1, 2, 3, 4, 5}); got != want || !local(got) {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
