package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/runtime"
)

// evictor watches what the board is short of, and answers: first with what nobody needs, then with one pod at a time,
// looking again before the next.
type evictor struct {
	a      *Agent
	policy pressure.Policy
	all    []pressure.Threshold
	state  pressure.State
	bare   map[string]bool // ended containers whose files have been removed
	blind  grumble
	partly grumble
	stuck  grumble
	dirty  grumble
	tight  grumble
	// What the last look has seen.
	seen   pressure.Readings
	layout pressure.Layout
	// looking: a look is under way, which will come by sights.
	looking bool
	sights  chan sight
	// swaps: there is something that pods may swap to.
	swaps bool
	// podLimit is how much memory all pods may have together; 0: that is not known, or not bounded.
	podLimit int64
	// going was told to go when the engine was lost: it is the one that goes when the engine is back.
	going *going
	// halted: nothing was done because the engine is away.
	halted bool
}

// going is a pod that was told to go.
type going struct {
	pod  *corev1.Pod
	stop podstate.Stop
}

// Evicted is the reason of a pod that had to go.
const Evicted = "Evicted"

const (
	// evictWithin is how long the next pod waits for the one before it to be gone (N-6.20).
	evictWithin = 30 * time.Second
	// freedWithin is how long a file system may take to own up to what was removed.
	freedWithin = 2 * time.Second
	// hurryEach is how often memory is glanced at while an evicted pod ends.
	hurryEach = 100 * time.Millisecond
)

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

// relieve takes a look every few seconds until ctx ends.
func (a *Agent) relieve(ctx context.Context) error {
	e := &evictor{a: a, policy: a.cfg.Status.Eviction, bare: map[string]bool{}, sights: make(chan sight, 1)}
	for s := e.sample(); ctx.Err() == nil; s = e.await(ctx) {
		for e.pass(ctx, s) && ctx.Err() == nil {
			s = e.sample()
		}
	}
	return nil
}

// await gives what the next pass goes by: a look at everything each MonitorPeriod, before that what was glanced at and is news.
// The looks are taken beside it: a disk that is slow holds up nothing but its own answer.
func (e *evictor) await(ctx context.Context) sight {
	roomer, roomy := e.a.cfg.Board.(Roomer)
	looked := time.Now()
	next, good, strained := looked.Add(pressure.MonitorPeriod), pressure.RoomAgain(e.all, e.seen), false
	for {
		seen, again := e.glance()
		if pressure.News(e.all, e.state, seen) {
			return sight{seen: seen}
		}
		now := time.Now()
		if e.halted && e.a.engineUp() {
			next, e.halted = now, false
		}
		due := next
		if roomy && looked.Add(good).Before(next) {
			due = looked.Add(good)
		}
		switch {
		case e.looking:
		case !now.Before(next):
			e.begin(e.sample)
		case !now.Before(due):
			looked, strained = now, false
			e.begin(func() sight { return sight{seen: roomer.Room().readings(e.policy, time.Now())} })
		default:
			again = min(again, due.Sub(now))
		}
		busy := e.a.busy
		if strained || !roomy { // it is known
			busy = nil
		}
		select {
		case <-ctx.Done():
			return sight{err: ctx.Err()}
		case <-e.a.stalled:
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
func (e *evictor) begin(look func() sight) {
	e.looking = true
	go func() { e.sights <- look() }()
}

// followStalls has a glance taken whenever the kernel says that tasks wait for memory, and a look at disks and processes when
// they wait for a disk or a processor: who fills the one or forks without end makes them. Without a kernel that tells there are
// the glances of the clock.
func (a *Agent) followStalls(ctx context.Context) error {
	if a.cfg.Stalled == nil {
		return nil
	}
	a.told.Store(true)
	defer a.told.Store(false)
	err := a.cfg.Stalled(ctx, func(resource string) {
		poke := a.busy
		if resource == "memory" {
			poke = a.stalled
		}
		select {
		case poke <- struct{}{}:
		default:
		}
	})
	if err != nil && ctx.Err() == nil {
		slog.Info("the kernel does not tell when tasks have to wait; memory is looked at each second", "err", err)
	}
	return nil
}

// followOOMs tells, in a kubelet's words, of every process that the kernel killed because the board was out of memory: each
// is an eviction that came too late.
func (a *Agent) followOOMs(ctx context.Context) error {
	if a.cfg.OOMs == nil {
		return nil
	}
	err := a.cfg.OOMs(ctx, func(name string, pid int) {
		a.nodeWarning("SystemOOM", fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", name, pid))
	})
	if err != nil && ctx.Err() == nil {
		slog.Info("what the kernel kills for want of memory is not told as events of the Node", "err", err)
	}
	return nil
}

// Glancer is a Board that can tell its available memory at little cost: memory is used up faster than anything else.
type Glancer interface {
	MemoryAvailable() (available, mapped, total int64, err error)
}

// Roomer is a Board that can tell what it has left of disks and processes without all the rest. What cannot be read has no
// capacity.
type Roomer interface {
	Room() Sample
}

// glance reads memory only, and says how long that is good for. What the pods have left of theirs is read when it may
// matter: to have a kernel add up the memory of a cgroup costs as much as all the rest.
func (e *evictor) glance() (pressure.Readings, time.Duration) {
	now := time.Now()
	seen := pressure.Readings{}
	if g, ok := e.a.cfg.Board.(Glancer); ok {
		if n, mapped, total, err := g.MemoryAvailable(); err == nil {
			seen[pressure.MemoryAvailable] = pressure.Reading{Available: e.policy.Spare(n, mapped, total), Capacity: total, At: now}
		}
	}
	most := pressure.GlanceMost
	if e.a.told.Load() {
		most = pressure.GlanceMostTold
	}
	if board, ok := seen[pressure.MemoryAvailable]; ok && e.podLimit > 0 {
		seen[pressure.AllocatableMemory] = pressure.PodsAtLeast(board, e.podLimit)
		if pressure.GlanceAgain(e.all, seen, most) == most {
			return seen, most
		}
		delete(seen, pressure.AllocatableMemory)
	}
	if r, ok := e.a.podMemory(now); ok {
		seen[pressure.AllocatableMemory], e.podLimit = r, r.Capacity
	}
	if len(seen) == 0 { // a machine that tells nothing between two looks is not asked each second
		return seen, pressure.MonitorPeriod
	}
	return seen, pressure.GlanceAgain(e.all, seen, most)
}

// pass is the answer to one look (N-6.18). True: a pod has gone, look again at once.
func (e *evictor) pass(ctx context.Context, s sight) bool {
	seen, layout, err := e.take(s)
	e.blind.about("cannot see what the board is short of; nothing is decided until it can be", err)
	if err != nil { // N-6.21
		e.weighed()
		return false
	}
	e.all = e.policy.All(layout, !e.a.cfg.Resources.Unenforced)
	var found pressure.Verdict
	e.state, found = e.policy.Step(e.state, e.all, seen, time.Now())
	e.publish(found, seen)
	e.weighed()
	if len(found.Due) == 0 {
		e.stuck.about("", nil)
		clear(e.bare)
		return false
	}
	t := found.Due[0]
	what := t.Signal.Resource()
	e.a.nodeEvent(corev1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", what))
	if seen, layout = e.free(ctx, t.Signal, seen, layout); !pressure.Short(e.all, seen) || ctx.Err() != nil {
		e.eased(seen)
		return false
	}
	if !e.a.engineUp() { // who is chosen now could not be stopped, and would go beside whoever frees enough
		e.halted = true
		e.stuck.about("the board is short, and no pod can be evicted", errors.New("the container engine is away"), "signal", t.Signal)
		return false
	}
	if e.going != nil {
		e.seeOff(ctx)
		return true
	}
	candidates := e.a.candidates(t.Signal)
	if c, above, ok := pressure.Fattest(t.Signal, candidates); ok && e.squeeze(ctx, c, above) {
		now, l, err := e.look()
		if err != nil || ctx.Err() != nil {
			return false
		}
		if !pressure.Short(e.all, now) {
			e.eased(now)
			return false
		}
		seen, layout, candidates = now, l, e.a.candidates(t.Signal)
	}
	if e.over(t) { // the kernel may have killed, or a pod have ended, while all this was measured
		return true
	}
	if ranked := pressure.Rank(t.Signal, layout, candidates); len(ranked) > 0 {
		e.evict(ctx, t, seen[t.Signal], ranked[0])
		e.stuck.about("", nil)
		return true
	}
	e.stuck.about("the board is short, and no pod is left that may be evicted", errors.New(string(what)), "signal", t.Signal)
	return false
}

// over says that a threshold of memory, which changes faster than a machine that is short of it can measure its pods, is not met
// any more.
func (e *evictor) over(t pressure.Threshold) bool {
	seen, _ := e.glance()
	r, ok := seen[t.Signal]
	return ok && r.Capacity > 0 && !t.Unresolved(r)
}

// sample reads every signal.
func (e *evictor) sample() sight {
	s, err := e.a.cfg.Board.Sample()
	if err != nil {
		return sight{whole: true, err: err}
	}
	now := time.Now()
	out := sight{seen: s.readings(e.policy, now), whole: true, layout: s.layout(), swaps: s.SwapTotal > 0 && e.a.cfg.Resources.Swap.kind != swapNone, unread: s.Unread}
	if r, ok := e.a.podMemory(now); ok {
		out.seen[pressure.AllocatableMemory], out.podLimit = r, r.Capacity
	}
	return out
}

// take remembers a look. What is news is added to what the last one has seen: the answer to it does not wait for a look at the
// disks, which may be slow.
func (e *evictor) take(s sight) (pressure.Readings, pressure.Layout, error) {
	switch {
	case s.err != nil:
		return nil, 0, s.err
	case s.whole:
		e.partly.about("something the board may be short of cannot be read; it decides nothing until it can be", s.unread)
		e.seen, e.layout, e.swaps, e.podLimit = s.seen, s.layout, s.swaps, s.podLimit
	default:
		e.seen = maps.Clone(e.seen)
		maps.Copy(e.seen, s.seen)
	}
	return e.seen, e.layout, nil
}

// look reads every signal at once.
func (e *evictor) look() (pressure.Readings, pressure.Layout, error) { return e.take(e.sample()) }

// eased takes what was seen after something was freed for a look too: what is met from now on is news, and does not wait for
// the clock.
func (e *evictor) eased(seen pressure.Readings) {
	var found pressure.Verdict
	e.state, found = e.policy.Step(e.state, e.all, seen, time.Now())
	e.publish(found, seen)
}

// publish tells the rest of the agent.
func (e *evictor) publish(found pressure.Verdict, seen pressure.Readings) {
	a := e.a
	report := pressure.Describe(e.all, e.state, found, seen, time.Now())
	a.mu.Lock()
	changed := !maps.Equal(a.short, found.Conditions)
	a.short, a.pressure = found.Conditions, report
	a.mu.Unlock()
	if changed {
		a.pokeStatus()
	}
}

// Pressure is what the last look has found.
func (a *Agent) Pressure() pressure.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pressure
}

// weighed lets the Node be posted: the first status shall not call a board well that is not.
func (e *evictor) weighed() {
	select {
	case <-e.a.weighed:
	default:
		close(e.a.weighed)
	}
}

// shortOf are the pressure conditions of the board, as last decided.
func (a *Agent) shortOf() map[corev1.NodeConditionType]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.short
}

// evict puts an end to one pod and waits until it is gone. Its end comes before all that is told about it: on a board that is
// out of memory even a line of log can take longer than the pod lives.
func (e *evictor) evict(ctx context.Context, t pressure.Threshold, r pressure.Reading, c pressure.Candidate) {
	message, offences := pressure.Message(t, r, c)
	grace := time.Second // N-6.31
	if t.Soft {
		grace = e.policy.MaxPodGrace
	}
	stop := podstate.Stop{Reason: Evicted, Message: message, Grace: &grace, Room: t.Signal.Disk(), Disruption: corev1.PodReasonTerminationByKubelet}
	if !e.a.claim(c.Pod.UID, stop) { // it goes on its own, or for another reason: what that frees is to be seen first
		return
	}
	hurried, arrived := context.WithCancel(ctx)
	var hurry sync.WaitGroup
	defer hurry.Wait()
	defer arrived()
	hurry.Go(func() { e.hurry(hurried, t, c.Pod.UID, stop) })
	slog.Warn("evicting a pod", "pod", api.Key(c.Pod), "signal", t.Signal, "available", r.Available, "threshold", t.Below.Of(r.Capacity))
	e.a.tellEvicted(c.Pod, message, t.Signal.Resource(), offences)
	e.a.countEviction(t.Signal, time.Since(r.At))
	e.going = &going{c.Pod, stop}
	e.seeOff(ctx)
}

// seeOff waits until the pod that goes is gone. The next one does not wait longer for it than evictWithin (N-6.20); but while there
// is no engine to end it, others could not go either, and would all go once there is one again.
func (e *evictor) seeOff(ctx context.Context) {
	began := time.Now()
	wait, cancel := context.WithTimeout(ctx, evictWithin)
	defer cancel()
	err := e.a.StopPod(wait, e.going.pod.UID, e.going.stop)
	if err != nil && !errors.Is(err, ErrUnknownPod) && ctx.Err() == nil {
		if !e.a.engineUp() || e.a.engineSince(began) {
			return
		}
		slog.Warn("an evicted pod takes long to end; the next one does not wait for it", "pod", api.Key(e.going.pod), "err", err)
	}
	e.going = nil
}

// hurry lets a pod that goes for want of memory have its grace only as long as there is memory to wait with: a pod that does
// not hear its stop signal (every program without a handler, as first process of its container) eats on meanwhile, and then
// the kernel kills, by its own choice, in the middle of everything.
func (e *evictor) hurry(ctx context.Context, t pressure.Threshold, uid types.UID, stop podstate.Stop) {
	stop.Now = true
	for t.Signal == pressure.MemoryAvailable || t.Signal == pressure.AllocatableMemory {
		if seen, _ := e.glance(); pressure.Dire(e.all, seen) {
			e.a.hasten(uid, stop)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(hurryEach):
		}
	}
}

// mayEvict: the pod is here, and nobody has put an end to it yet.
func (a *Agent) mayEvict(uid types.UID) bool {
	w := a.worker(uid)
	return w != nil && w.mayStop() && !w.isEnded()
}

// tellEvicted is the event of N-6.32.
func (a *Agent) tellEvicted(pod *corev1.Pod, message string, what corev1.ResourceName, offences []pressure.Offence) {
	if a.cfg.Events == nil {
		return
	}
	var containers, usage []string
	for _, o := range offences {
		containers, usage = append(containers, o.Container), append(usage, o.Usage)
	}
	notes := map[string]string{"starved_resource": string(what)}
	if len(offences) > 0 {
		notes["offending_containers"], notes["offending_containers_usage"] = strings.Join(containers, ","), strings.Join(usage, ",")
	}
	a.cfg.Events.Annotated(corev1.ObjectReference{Kind: api.Pods.Name, APIVersion: api.Pods.APIVersion(), Namespace: pod.Namespace,
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}, notes, corev1.EventTypeWarning, Evicted, message)
}

// ageBuckets are Kubernetes' usual ones, in seconds.
var ageBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// countEviction counts what a signal has cost, and how old what was decided on had become by then.
func (a *Agent) countEviction(s pressure.Signal, age time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.evictions[s]
	if d == nil {
		d = &api.Durations{Bounds: ageBuckets}
		a.evictions[s] = d
	}
	d.Saw(age)
}

// candidates are the pods that stand on the board and may be evicted, measured anew. One that has nothing there yet would
// free nothing.
func (a *Agent) candidates(s pressure.Signal) []pressure.Candidate {
	var out []pressure.Candidate
	usage := a.usageNow(s)
	for _, pod := range a.Pods() {
		if a.critical(pod) || terminal(pod.Status.Phase) || !a.mayEvict(pod.UID) { // N-6.30
			continue
		}
		if _, stands, _ := a.held(pod.UID); stands {
			out = append(out, pressure.Candidate{Pod: pod, Used: usage[string(pod.UID)]})
		}
	}
	return out
}

// usageNow measures what a signal is about, by the UID of pods.
func (a *Agent) usageNow(s pressure.Signal) map[string]*pressure.Usage {
	out := map[string]*pressure.Usage{}
	if a.cfg.Stats == nil {
		return out
	}
	pass := a.readStats()
	for i := range pass.Pods {
		p := &pass.Pods[i]
		if s.Disk() {
			if u, err := a.filesOf(p.Pod); err == nil {
				out[p.UID] = u
			} else {
				slog.Warn("cannot measure the files of a pod", "pod", p.Namespace+"/"+p.Name, "err", err)
			}
			continue
		}
		u := &pressure.Usage{}
		if p.Memory != nil {
			u.Memory = p.Memory.WorkingSet
		}
		if p.Pids != nil {
			u.Processes = *p.Pids
		}
		if p.Memory == nil && s.Resource() == pressure.Memory || p.Pids == nil && s.Resource() == pressure.PIDs {
			continue // the kernel does not count it: not measured
		}
		for _, c := range p.Containers {
			if c.Memory != nil {
				u.Containers = append(u.Containers, pressure.ContainerUsage{Name: c.Name, Memory: c.Memory.WorkingSet})
			}
		}
		out[p.UID] = u
	}
	return out
}

// endedContainers are those that nothing will run in again.
func (a *Agent) endedContainers() (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cs := range a.engine.containers {
		for id, c := range cs {
			if c.Phase == runtime.Exited {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}
