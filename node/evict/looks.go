package evict

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/pressure"
)

// How an evictor learns what the board is short of, and when it looks. What follows from that is in evict.go.

// sight is what was seen of the board: of all of it, or of a part.
type sight struct {
	seen     pressure.Readings
	whole    bool
	layout   pressure.Layout
	swaps    bool
	podLimit int64
	unread   error // why some of it could not be read
	err      error // why nothing could
}

// await gives what the next pass goes by: a look at everything each MonitorPeriod, before that what was glanced at and is news.
// The looks are taken beside it: a disk that is slow holds up nothing but its own answer.
func (e *Evictor) await(ctx context.Context) sight {
	looked := time.Now()
	next, good, strained := looked.Add(pressure.MonitorPeriod), pressure.RoomAgain(e.all, e.seen), false
	for {
		seen, again := e.glance()
		if pressure.News(e.all, e.state, seen) {
			return sight{seen: seen}
		}
		now := time.Now()
		if e.halted && e.Engine.Running() {
			next, e.halted = now, false
		}
		due := next
		if looked.Add(good).Before(next) {
			due = looked.Add(good)
		}
		switch {
		case e.looking:
		case !now.Before(next):
			e.begin(e.sample)
		case !now.Before(due):
			looked, strained = now, false
			e.begin(func() sight { return sight{seen: e.Machine.Room().Readings(e.Policy, time.Now())} })
		default:
			again = min(again, due.Sub(now))
		}
		busy := e.busy
		if strained { // it is known
			busy = nil
		}
		select {
		case <-ctx.Done():
			return sight{err: ctx.Err()}
		case <-e.stalled:
		case <-busy:
			strained, good = true, pressure.RoomLeast
		case s := <-e.sights:
			e.looking = false
			if s.whole && s.err == nil { // which may have taken long: memory is another by now
				seen, _ := e.glance()
				maps.Copy(s.seen, seen)
			}
			if s.whole || pressure.News(e.all, e.state, s.seen) {
				return s
			}
			if good = pressure.RoomAgain(e.all, s.seen); strained {
				good = pressure.RoomLeast
			}
		case <-time.After(again):
		}
	}
}

// begin takes a look beside everything else, one at a time. Nobody waits for it when the agent ends: its disk may hang.
func (e *Evictor) begin(look func() sight) {
	e.looking = true
	go func() { e.sights <- look() }()
}

// followStalls has a glance taken whenever the kernel says that tasks wait for memory, and a look at disks and processes when
// they wait for a disk or a processor: who fills the one or forks without end makes them. Without a kernel that tells there are
// the glances of the clock.
func (e *Evictor) followStalls(ctx context.Context) {
	e.told.Store(true)
	defer e.told.Store(false)
	err := e.Machine.Stalled(ctx, func(resource string) {
		poke := e.busy
		if resource == "memory" {
			poke = e.stalled
		}
		nudge(poke)
	})
	if err != nil && ctx.Err() == nil {
		slog.Info("the kernel does not tell when tasks have to wait; memory is looked at each second", "err", err)
	}
}

// followOOMs tells, in a kubelet's words, of every process that the kernel killed because the board was out of memory: each
// is an eviction that came too late.
func (e *Evictor) followOOMs(ctx context.Context) {
	err := e.Machine.OOMs(ctx, func(name string, pid int) {
		e.Events.EventOn(e.Node, corev1.EventTypeWarning, "SystemOOM", fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", name, pid))
	})
	if err != nil && ctx.Err() == nil {
		slog.Info("what the kernel kills for want of memory is not told as events of the Node", "err", err)
	}
}

// glance reads memory only, and says how long that is good for. What the pods have left of theirs is read when it may
// matter: to have a kernel add up the memory of a cgroup costs as much as all the rest.
func (e *Evictor) glance() (pressure.Readings, time.Duration) {
	now := time.Now()
	seen := pressure.Readings{}
	if n, mapped, total, err := e.Machine.MemoryAvailable(); err == nil {
		seen[pressure.MemoryAvailable] = pressure.Reading{Available: e.Policy.Spare(n, mapped, total), Capacity: total, At: now}
	}
	most := pressure.GlanceMost
	if e.told.Load() {
		most = pressure.GlanceMostTold
	}
	if board, ok := seen[pressure.MemoryAvailable]; ok && e.podLimit > 0 {
		seen[pressure.AllocatableMemory] = pressure.PodsAtLeast(board, e.podLimit)
		if pressure.GlanceAgain(e.all, seen, most) == most {
			return seen, most
		}
		delete(seen, pressure.AllocatableMemory)
	}
	if r, ok := e.Pods.Memory(now); ok {
		seen[pressure.AllocatableMemory], e.podLimit = r, r.Capacity
	}
	if len(seen) == 0 { // a machine that tells nothing between two looks is not asked each second
		return seen, pressure.MonitorPeriod
	}
	return seen, pressure.GlanceAgain(e.all, seen, most)
}

// over says that a threshold of memory is not met any more. Memory changes faster than a machine that is short of it can measure its
// pods, so it is looked at once more.
func (e *Evictor) over(t pressure.Threshold) bool {
	seen, _ := e.glance()
	r, ok := seen[t.Signal]
	return ok && r.Capacity > 0 && !t.Unresolved(r)
}

// sample reads every signal.
func (e *Evictor) sample() sight {
	s, now := e.Machine.Left(), time.Now()
	seen := s.Readings(e.Policy, now)
	if len(seen) == 0 && s.Unread != nil {
		return sight{whole: true, err: s.Unread}
	}
	out := sight{seen: seen, whole: true, layout: s.Layout(), swaps: s.SwapTotal > 0 && e.Swaps,
		unread: s.Unread}
	if r, ok := e.Pods.Memory(now); ok {
		out.seen[pressure.AllocatableMemory], out.podLimit = r, r.Capacity
	}
	return out
}

// take remembers a look. What is news is added to what the last one has seen: the answer to it does not wait for a look at the
// disks, which may be slow.
func (e *Evictor) take(s sight) (pressure.Readings, pressure.Layout, error) {
	switch {
	case s.err != nil:
		return nil, 0, s.err
	case s.whole:
		e.partly.About("something the board may be short of cannot be read; it decides nothing until it can be", s.unread)
		e.seen, e.layout, e.swaps, e.podLimit = s.seen, s.layout, s.swaps, s.podLimit
	default:
		e.seen = maps.Clone(e.seen)
		maps.Copy(e.seen, s.seen)
	}
	return e.seen, e.layout, nil
}

// look reads every signal at once.
func (e *Evictor) look() (pressure.Readings, pressure.Layout, error) { return e.take(e.sample()) }

// eased takes what was seen after something was freed for a look too: what is met from now on is news, and does not wait for
// the clock.
func (e *Evictor) eased(seen pressure.Readings) {
	var found pressure.Verdict
	e.state, found = e.Policy.Step(e.state, e.all, seen, time.Now())
	e.publish(found, seen)
}

// publish lets others know.
func (e *Evictor) publish(found pressure.Verdict, seen pressure.Readings) {
	report := pressure.Describe(e.all, e.state, found, seen, time.Now())
	e.mu.Lock()
	changed := !maps.Equal(e.short, found.Conditions)
	e.short, e.report = found.Conditions, report
	e.diary.Note(seen, report.At)
	e.mu.Unlock()
	if changed {
		e.Changed()
	}
}

// Report is the result of the last look.
func (e *Evictor) Report() pressure.Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.report
}

// History is what looks have found in the last hour.
func (e *Evictor) History() pressure.History {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.diary.History()
}

// Looked is closed when it has been decided once what the board is short of: the first status of its Node shall not call a board well that
// is not.
func (e *Evictor) Looked() <-chan struct{} { return e.looked }

func (e *Evictor) weighed() {
	select {
	case <-e.looked:
	default:
		close(e.looked)
	}
}

// Again has memory looked at now: pods can be evicted again.
func (e *Evictor) Again() { nudge(e.stalled) }

// nudge wakes who waits at c, if that is not to be woken already.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Short are the pressure conditions of the board, as last decided.
func (e *Evictor) Short() map[corev1.NodeConditionType]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.short
}
