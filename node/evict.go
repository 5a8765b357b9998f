package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/internal/grumble"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/node/stats"
	"ledge/node/volume"
)

// evictor watches what the board is short of, and answers: first with what nobody needs, then with one pod at a time,
// looking again before the next.
type evictor struct {
	a      *Agent
	policy pressure.Policy
	all    []pressure.Threshold
	state  pressure.State
	bare   map[string]bool // ended containers whose files have been removed
	blind  grumble.Once
	partly grumble.Once
	stuck  grumble.Once
	dirty  grumble.Once
	tight  grumble.Once
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

	looked  chan struct{} // closed when it has been decided once what the board is short of
	stalled chan struct{} // poked when tasks have to wait for memory
	busy    chan struct{} // the same for a disk or a processor
	told    atomic.Bool   // the kernel does that

	mu        sync.Mutex
	short     map[corev1.NodeConditionType]bool  // what the board is short of
	report    pressure.Report                    // the same in full
	evictions map[pressure.Signal]*api.Durations // since the start
}

func newEvictor(a *Agent) *evictor {
	return &evictor{a: a, policy: a.cfg.Status.Eviction, bare: map[string]bool{}, sights: make(chan sight, 1), looked: make(chan struct{}),
		stalled: make(chan struct{}, 1), busy: make(chan struct{}, 1), evictions: map[pressure.Signal]*api.Durations{}}
}

// going is a pod that was told to go.
type going struct {
	pod   *corev1.Pod
	stop  podstate.Stop
	why   pressure.Signal
	waits int // how often it was waited for
}

// Evicted is the reason of a pod that had to go.
const Evicted = "Evicted"

const (
	// evictWithin is how long the next pod waits for the one before it to be gone (N-6.20).
	evictWithin = 30 * time.Second
	// freedWithin is how long a file system may take to own up to what was removed.
	freedWithin = 2 * time.Second
	// goingWaits is how often that is, when the engine was lost each time.
	goingWaits = 3
	// hurryEach is how often memory is glanced at while an evicted pod ends.
	hurryEach = 100 * time.Millisecond
)

// Run takes a look every few seconds until ctx ends.
func (e *evictor) Run(ctx context.Context) error {
	for s := e.sample(); ctx.Err() == nil; s = e.await(ctx) {
		for e.pass(ctx, s) && ctx.Err() == nil {
			s = e.sample()
		}
	}
	return nil
}

// pass is the answer to one look (N-6.18). True: a pod has gone, look again at once.
func (e *evictor) pass(ctx context.Context, s sight) bool {
	seen, layout, err := e.take(s)
	e.blind.About("cannot see what the board is short of; nothing is decided until it can be", err)
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
		e.stuck.About("", nil)
		clear(e.bare)
		if e.going != nil && e.hasGone(e.going.pod.UID) {
			e.going = nil
		}
		return false
	}
	t := found.Due[0]
	what := t.Signal.Resource()
	e.a.nodeEvent(corev1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", what))
	if seen, layout = e.free(ctx, t.Signal, seen, layout); !pressure.Short(e.all, seen) || ctx.Err() != nil {
		e.eased(seen)
		return false
	}
	if !e.a.engine.running() { // who is chosen now could not be stopped, and would go beside whoever frees enough
		e.halted = true
		e.stuck.About("the board is short, and no pod can be evicted", errors.New("the container engine is away"), "signal", t.Signal)
		return false
	}
	if e.going != nil {
		e.seeOff(ctx, func() {})
		return true
	}
	candidates := e.candidates(t.Signal)
	if c, above, ok := pressure.Fattest(t.Signal, candidates); ok && e.squeeze(ctx, c, above) {
		now, l, err := e.look()
		if err != nil || ctx.Err() != nil {
			return false
		}
		if !pressure.Short(e.all, now) {
			e.eased(now)
			return false
		}
		seen, layout, candidates = now, l, e.candidates(t.Signal)
	}
	if e.over(t) { // the kernel may have killed, or a pod have ended, while all this was measured
		return true
	}
	if ranked := pressure.Rank(t.Signal, layout, candidates); len(ranked) > 0 {
		e.evict(ctx, t, seen[t.Signal], ranked[0])
		e.stuck.About("", nil)
		return true
	}
	e.stuck.About("the board is short, and no pod is left that may be evicted", errors.New(string(what)), "signal", t.Signal)
	return false
}

// evict puts an end to one pod and waits until it is gone. Its end comes before all that is told about it: on a board that is
// out of memory even a line of log can take longer than the pod lives.
func (e *evictor) evict(ctx context.Context, t pressure.Threshold, r pressure.Reading, c pressure.Candidate) {
	message, offences := pressure.Message(t, r, c)
	grace := time.Second // N-6.31
	if t.Soft {
		grace = e.policy.MaxPodGrace
	}
	stop := podstate.Stop{Reason: Evicted, Message: message, Grace: &grace, Room: t.Signal.Disk(),
		Disruption: corev1.PodReasonTerminationByKubelet}
	if !e.a.roster.claim(c.Pod.UID, stop) { // it goes on its own, or for another reason: what that frees is to be seen first
		return
	}
	e.going = &going{pod: c.Pod, stop: stop, why: t.Signal}
	e.seeOff(ctx, func() {
		slog.Warn("evicting a pod", "pod", api.Key(c.Pod), "signal", t.Signal, "available", r.Available, "threshold", t.Below.Of(r.Capacity))
		e.tellEvicted(c.Pod, message, t.Signal.Resource(), offences)
		e.count(t.Signal, time.Since(r.At))
	})
}

// seeOff waits until the pod that goes is gone. The next one does not wait longer for it than evictWithin (N-6.20), nor for an API that
// cannot be told; but while there is no engine to end it, others could not go either, and would all go once there is one again.
func (e *evictor) seeOff(ctx context.Context, tell func()) {
	g, began := e.going, time.Now()
	g.waits++
	wait, cancel := context.WithTimeout(ctx, evictWithin)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { e.hurry(wait, g) })
	end, gone := context.WithCancelCause(wait)
	defer gone(nil)
	beside.Go(func() {
		if e.unheard(end, g) {
			gone(errUnheard)
		}
	})
	tell()
	err := e.a.StopPod(end, g.pod.UID, g.stop)
	if err != nil && !errors.Is(err, ErrUnknownPod) && !errors.Is(context.Cause(end), errUnheard) && ctx.Err() == nil {
		if g.waits < goingWaits && !e.a.engine.runningSince(began) {
			return
		}
		slog.Warn("an evicted pod takes long to end; the next one does not wait for it", "pod", api.Key(g.pod), "err", err)
	}
	e.going = nil
}

var errUnheard = errors.New("the API has not heard of the pod's end")

// unheard waits until all that the pod took of what the board is short of is free. Its end is told at once then, as a rule; where
// that cannot be done it has gone all the same. What it has in memory stays until its end has been told.
func (e *evictor) unheard(ctx context.Context, g *going) bool {
	w := e.a.roster.of(g.pod.UID)
	if w == nil || g.why.Resource() == pressure.Memory && slices.ContainsFunc(g.pod.Spec.Volumes, volume.InMemory) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.unheard:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(freedWithin):
		return true
	}
}

// hurry lets a pod that goes for want of memory have its grace only as long as there is memory to wait with: a pod that does
// not hear its stop signal (every program without a handler, as first process of its container) eats on meanwhile, and then
// the kernel kills, by its own choice, in the middle of everything.
func (e *evictor) hurry(ctx context.Context, g *going) {
	stop := g.stop
	stop.Now = true
	for g.why.Resource() == pressure.Memory {
		if seen, _ := e.glance(); pressure.Dire(e.all, seen) {
			e.a.roster.hasten(g.pod.UID, stop)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(hurryEach):
		}
	}
}

// hasGone: the pod is not here any more, or nothing of it.
func (e *evictor) hasGone(uid types.UID) bool {
	w := e.a.roster.of(uid)
	return w == nil || w.isEnded()
}

// tellEvicted is the event of N-6.32.
func (e *evictor) tellEvicted(pod *corev1.Pod, message string, what corev1.ResourceName, offences []pressure.Offence) {
	if e.a.cfg.Events == nil {
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
	e.a.cfg.Events.Annotated(corev1.ObjectReference{Kind: api.Pods.Name, APIVersion: api.Pods.APIVersion(), Namespace: pod.Namespace,
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}, notes, corev1.EventTypeWarning, Evicted, message)
}

// ageBuckets are Kubernetes' usual ones, in seconds.
var ageBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// count counts what a signal has cost, and how old what was decided on had become by then.
func (e *evictor) count(s pressure.Signal, age time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.evictions[s]
	if d == nil {
		d = &api.Durations{Bounds: ageBuckets}
		e.evictions[s] = d
	}
	d.Saw(age)
}

// candidates are the pods that stand on the board and may be evicted, measured anew. One that has nothing there yet would
// free nothing.
func (e *evictor) candidates(s pressure.Signal) []pressure.Candidate {
	var out []pressure.Candidate
	usage := e.usageNow(s)
	for _, pod := range e.a.Pods() {
		if e.a.roster.critical(pod) || terminal(pod.Status.Phase) || !e.a.roster.mayEvict(pod.UID) { // N-6.30
			continue
		}
		if _, stands, _ := e.a.engine.held(pod.UID); stands {
			out = append(out, pressure.Candidate{Pod: pod, Used: usage[string(pod.UID)]})
		}
	}
	return out
}

// usageNow measures what a signal is about, by the UID of pods.
func (e *evictor) usageNow(s pressure.Signal) map[string]*pressure.Usage {
	out := map[string]*pressure.Usage{}
	if e.a.cfg.Stats == nil {
		return out
	}
	pass := e.a.usage.readStats()
	for i := range pass.Pods {
		p := &pass.Pods[i]
		if s.Disk() {
			if u, err := e.a.storage.filesOf(p.Pod); err == nil {
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

// metrics of N-6.37: how many pods had to go for each signal, and how old the figures were on which that was decided.
func (e *evictor) metrics(t *stats.Text) {
	const name, age = "kubelet_evictions", "kubelet_eviction_stats_age_seconds"
	e.mu.Lock()
	defer e.mu.Unlock()
	t.Head(name, "counter", "[ALPHA] Cumulative number of pod evictions by eviction signal")
	for _, s := range pressure.Signals {
		if d := e.evictions[s]; d != nil {
			t.Line(name, float64(d.Count()), "eviction_signal", string(s))
		}
	}
	t.Head(age, "histogram", "[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal")
	for _, s := range pressure.Signals {
		if d := e.evictions[s]; d != nil {
			t.Histogram(age, d, "eviction_signal", string(s))
		}
	}
}
