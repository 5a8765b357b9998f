package lease

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// jumped is the same moment after somebody set the wall clock: the reading of the monotonic clock beside it stays. The
// package time cannot do that.
func jumped(t *testing.T, at time.Time, by time.Duration) time.Time {
	t.Helper()
	const nsBits = 30 // of the first word; above them the wall's seconds, topped by "has a monotonic reading"
	out := at
	*(*uint64)(unsafe.Pointer(&out)) += uint64(int64(by/time.Second)) << nsBits
	if out.Sub(at) != 0 || out.Unix()-at.Unix() != int64(by/time.Second) {
		t.Skip("package time keeps its readings in another way now")
	}
	return out
}

// TestClockJumps: the observer's wall clock is set by hours in both directions, again and again, and so are the agents':
// nobody who beats is lost, and who is silent is lost after the grace and not before (N-3.2, N-3.7, N-3.11;
// architecture: Observer's clock).
func TestClockJumps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	hours := func() time.Duration { return time.Duration(rng.IntN(49)-24) * time.Hour }
	f := newFleet(Settings{})
	for _, name := range []string{"alive", "silent", "also"} {
		f.add(name, nil, corev1.ConditionTrue)
	}
	start := time.Now()
	step := func(after time.Duration, beats ...string) {
		for _, name := range beats {
			f.renew(name, jumped(t, start.Add(after), hours()))
		}
		f.now = jumped(t, start.Add(after), hours())
		f.step()
	}
	for at := time.Duration(0); at < time.Hour; at += 5 * time.Second {
		step(at, "alive", "silent", "also")
	}
	if len(f.log) > 0 {
		t.Fatalf("lost while they beat: %q", f.log)
	}
	last := time.Hour
	step(last, "alive", "silent", "also")
	for at := last + 5*time.Second; at <= last+40*time.Second; at += 5 * time.Second {
		step(at, "alive", "also")
	}
	if len(f.log) > 0 {
		t.Fatalf("lost before the grace was over: %q", f.log)
	}
	step(last+41*time.Second, "alive", "also")
	if c := api.NodeCondition(f.nodes["silent"], corev1.NodeReady); c.Status != corev1.ConditionUnknown {
		t.Error("not lost after the grace")
	}
	if c := api.NodeCondition(f.nodes["alive"], corev1.NodeReady); c.Status != corev1.ConditionTrue {
		t.Error("lost with another")
	}
}

// TestClocksOfAgents: what a board believes the time to be is compared with what it said before, and with nothing else
// (N-3.7): one that lives in 1970, or whose clock is set back, is alive.
func TestClocksOfAgents(t *testing.T) {
	var h Health
	lease := func(at time.Time) *coordinationv1.Lease {
		f := newFleet(Settings{})
		f.renew("n", at)
		return f.leases["n"]
	}
	n := newFleet(Settings{}).add("n", nil, corev1.ConditionTrue)
	now, s := epoch, Settings{}.withDefaults()
	for i, stamp := range []time.Time{time.Unix(10, 0), time.Unix(20, 0), epoch.AddDate(50, 0, 0), time.Unix(5, 0), epoch} {
		now = now.Add(39 * time.Second)
		var silent bool
		if h, silent = Assess(h, n, lease(stamp), now, s); silent {
			t.Errorf("beat %d, of %s, is no sign of life", i, stamp)
		}
	}
	if _, silent := Assess(h, n, lease(epoch), now.Add(41*time.Second), s); !silent {
		t.Error("the same stamp again is one")
	}
}
