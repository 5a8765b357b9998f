package node

import (
	"context"
	"fmt"
	"io/fs"
	"sync/atomic"
	"testing"
	"time"

	"ledge/node/machine"
	machinefake "ledge/node/machine/fake"
	"ledge/node/podspec"
	"ledge/node/pressure"
)

// TestReclaimBeforeEvict: what the pod furthest above its request has too much is taken from it first. Only when that is not
// enough, or cannot be, a pod goes.
func TestReclaimBeforeEvict(t *testing.T) { // beyond N-6.23
	for name, c := range map[string]struct {
		frees   int64
		err     error
		evicts  bool
		noSwap  bool
		refused bool // pods may not swap
		working bool // the signal is a kubelet's
		unasked bool
	}{
		"enough": {frees: 200 * mi}, "not enough": {frees: 10 * mi, evicts: true}, "nothing": {evicts: true},
		"an old kernel":      {err: fs.ErrNotExist, evicts: true},
		"nothing to swap to": {frees: 200 * mi, noSwap: true, evicts: true, unasked: true},
		"not for pods":       {frees: 200 * mi, refused: true, evicts: true, unasked: true},
		"page cache counts":  {frees: 200 * mi, noSwap: true, working: true},
	} {
		with(t, nil, func(r *rig) {
			var freed atomic.Int64
			var asked []string
			if !c.refused {
				r.cfg.Resources.Swap = limitedSwap(t)
			}
			r.cfg.Reclaim, r.machine.Take = true, func(_ context.Context, cgroup string, bytes int64) (int64, error) {
				asked = append(asked, fmt.Sprintf("%s %d", cgroup, bytes/mi))
				freed.Store(c.frees)
				return c.frees, c.err
			}
			r.measured(func(s *machine.Sample, running map[string]bool) {
				if running["fat"] {
					s.MemoryAvailable = 40*mi + freed.Load()
				}
				if !c.noSwap {
					s.SwapTotal = 1 << 30
				}
			})
			r.cfg.Status.WorkingSet = c.working
			r.begin()
			r.uses(r.pod("within", asks("500Mi")), 400*mi, 1)
			r.uses(r.pod("critical", class("system-node-critical")), 900*mi, 1)
			fat := r.pod("fat", asks("16Mi"))
			r.uses(fat, 300*mi, 1)
			r.uses(r.pod("small"), 10*mi, 1)
			r.pass(pressure.MonitorPeriod + time.Second)
			if want := fmt.Sprintf("/%s 284", podspec.Cgroup(fat)); !c.unasked && (len(asked) != 1 || asked[0] != want) || c.unasked &&
				len(asked) > 0 {
				t.Errorf("%s: asked for %q, want %q: %v", name, asked, want, !c.unasked)
			}
			if n := len(r.events.of("Evicted")); (n == 1) != c.evicts {
				t.Errorf("%s: %d evicted", name, n)
			}
			if c.evicts {
				r.evicted("fat")
				r.want("running", sortedNames(r), "critical", "small", "within")
			} else {
				r.want("running", sortedNames(r), "critical", "fat", "small", "within")
			}
		})
	}
}

// TestOverMeanwhile: nobody goes for want of memory that is there again when the pods have been measured, because the kernel has
// killed meanwhile, or one has ended.
func TestOverMeanwhile(t *testing.T) { // N-6.20
	with(t, nil, func(r *rig) {
		var left atomic.Int64
		left.Store(600 * mi)
		r.measured(func(s *machine.Sample, running map[string]bool) {
			s.SwapTotal, s.MemoryAvailable = 1<<30, left.Load()
		})
		asked := 0
		r.cfg.Resources.Swap = limitedSwap(t)
		r.cfg.Reclaim = true
		r.machine.Take = func(context.Context, string, int64) (int64, error) { // the moment between the look and the eviction
			asked++
			left.Store(600 * mi)
			return 0, nil
		}
		r.begin()
		r.uses(r.pod("innocent"), 300*mi, 1)
		r.pass(time.Second)
		left.Store(40 * mi)
		r.pass(2 * pressure.MonitorPeriod)
		r.want("evicted", r.events.of("Evicted"))
		if asked != 1 {
			t.Errorf("answered %d times", asked)
		}
	})
}

// TestReclaimIsForMemory: nothing is taken from a pod because the disk is full.
func TestReclaimIsForMemory(t *testing.T) { // N-6.23
	with(t, nil, func(r *rig) {
		r.cfg.Reclaim, r.machine.Take = true, func(context.Context, string, int64) (int64, error) {
			t.Error("asked")
			return 0, nil
		}
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["p"] {
				s.PIDUsed = s.PIDMax
			}
		})
		r.begin()
		r.uses(r.pod("p"), 300*mi, 1)
		r.pass(pressure.MonitorPeriod + time.Second)
		r.evicted("p")
	})
}

// TestSystemOOM: a process that the kernel had to kill is told of on the Node, in a kubelet's words.
func TestSystemOOM(t *testing.T) {
	with(t, nil, func(r *rig) {
		kills := make(chan machinefake.Victim, 1)
		kills <- machinefake.Victim{Name: "eat", PID: 4711}
		r.machine.Kills = kills
		r.begin()
		r.pass(time.Second)
		r.want("events", r.events.of("SystemOOM"), "Warning SystemOOM n: System OOM encountered, victim process: eat, pid: 4711")
	})
}

// reclaimOnce gives back a part, the first time only.
func reclaimOnce(left *atomic.Int64) func(context.Context, string, int64) (int64, error) {
	var done bool
	return func(context.Context, string, int64) (int64, error) {
		if done {
			return 0, nil
		}
		done = true
		left.Store(300 * mi)
		return 260 * mi, nil
	}
}

// TestReclaimIsALook: what is crossed again after memory was taken back does not wait for the next look of the clock.
func TestReclaimIsALook(t *testing.T) { // beyond N-6.23
	with(t, nil, func(r *rig) {
		var left atomic.Int64
		left.Store(600 * mi)
		r.measured(func(s *machine.Sample, running map[string]bool) {
			s.SwapTotal = 1 << 30
			if running["leak"] {
				s.MemoryAvailable = left.Load()
			}
		})
		r.cfg.Resources.Swap = limitedSwap(t)
		r.cfg.Reclaim, r.machine.Take = true, reclaimOnce(&left)
		r.begin()
		r.uses(r.pod("leak"), 300*mi, 1)
		r.pass(11500 * time.Millisecond) // a look has just been
		left.Store(40 * mi)
		r.pass(1100 * time.Millisecond)
		r.want("it was enough", r.events.of("Evicted"))
		if n := left.Load(); n != 300*mi {
			t.Fatalf("nothing was taken back: %d", n)
		}
		left.Store(40 * mi)
		r.pass(1100 * time.Millisecond)
		if n := len(r.events.of("Evicted")); n != 1 {
			t.Errorf("%d evicted a second after the line was crossed again", n)
		}
	})
}

// limitedSwap lets containers have their part of the board's swap.
func limitedSwap(t *testing.T) podspec.SwapRule {
	t.Helper()
	rule, err := podspec.NewSwapRule("LimitedSwap", "", true)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}
