package ending

import "testing"

// Every reason, on a machine with an init system, under process 1, and on one that somebody else takes down.
func TestEndings(t *testing.T) {
	for _, c := range []struct {
		why                               Why
		ordered, podsStop, ends, stopping bool
		clears                            [3]bool // alone, under process 1, the machine goes down
		next, underInit                   Next
		keepsWatchdog                     bool // of a brain that process 1 did not start
	}{
		{why: 0, stopping: true},
		{why: Detached, ordered: true, stopping: true},
		{why: Drained, ordered: true, podsStop: true, stopping: true, clears: [3]bool{true, false, false}},
		{why: PowerOff, ordered: true, podsStop: true, ends: true, stopping: true, next: SwitchOff, underInit: TellInit, keepsWatchdog: true},
		{why: Reboot, ordered: true, podsStop: true, ends: true, stopping: true, next: SwitchOff, underInit: TellInit, keepsWatchdog: true},
		{why: Renew, ordered: true, next: Exec},
	} {
		w := c.why
		if w.Ordered() != c.ordered || w.PodsStop() != c.podsStop || w.EndsMachine() != c.ends || w.Stopping() != c.stopping {
			t.Errorf("%d: ordered %v, pods stop %v, ends the machine %v, told %v", w, w.Ordered(), w.PodsStop(), w.EndsMachine(), w.Stopping())
		}
		if got := [3]bool{w.Clears(false, false), w.Clears(true, false), w.Clears(false, true)}; got != c.clears {
			t.Errorf("%d clears %v, want %v", w, got, c.clears)
		}
		if w.Next(false) != c.next || w.Next(true) != c.underInit {
			t.Errorf("%d: next %d, under process 1 %d", w, w.Next(false), w.Next(true))
		}
		if w.KeepsWatchdog(false) != c.keepsWatchdog || !w.KeepsWatchdog(true) {
			t.Errorf("%d: the watchdog stays armed: %v", w, w.KeepsWatchdog(false))
		}
		if w.EndsMachine() && OfCode(int(w.Code())) != w {
			t.Errorf("%d: process 1 hears %d", w, OfCode(int(w.Code())))
		}
	}
	for _, code := range []int{0, 1, 2, 119, 122} {
		if OfCode(code) != 0 {
			t.Errorf("code %d ends the machine", code)
		}
	}
}
