// Package evict watches what a board is short of, and answers: first with what nobody needs, then with one pod at a time, looking again
// before the next. What is short, what that means and who goes is decided in node/pressure, which has no effects; the effects are here, and
// go through the interfaces of Config.
package evict

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
	"ledge/node/machine"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/node/stats"
	"ledge/node/volume"
)

// Config is what an evictor needs.
type Config struct {
	Policy     pressure.Policy
	Unenforced bool // all pods together have no bound
	Swaps      bool // pods may swap
	WorkingSet bool // memory in use is what Kubernetes calls so, page cache in use included
	Reclaim    bool // memory is taken back from a pod before one goes

	Machine Machine
	Engine  Engine
	Pods    Pods
	Events  Events
	Node    corev1.ObjectReference // whom events are about that are not a pod's

	// Own frees room on the disk of ledge's own files, Stored on that of images and containers: each the least missed first.
	Own, Stored []Step
	// Changed is called when the board is short of something else than before.
	Changed func()
}

// Step removes something that nobody needs. freed: there is more room now, or soon.
type Step func(context.Context) (freed bool, err error)

// Machine is what may run short, and who tells of it.
type Machine interface {
	// Left is a look at all that may run short, Room one at disks and processes alone. What cannot be read has no capacity; Unread of
	// Left says why.
	Left() machine.Sample
	Room() machine.Sample
	// MemoryAvailable costs little: memory is used up faster than anything else. It fails where nobody can tell between two looks.
	MemoryAvailable() (available, mapped, total int64, err error)
	// Stalled calls fn whenever tasks have to wait for "memory", "io" or "cpu", until ctx ends. It fails where the kernel does not tell.
	Stalled(ctx context.Context, fn func(resource string)) error
	// OOMs calls fn for each process that the kernel kills because the board is out of memory, until ctx ends.
	OOMs(ctx context.Context, fn func(name string, pid int)) error
	// Reclaim takes memory back from a cgroup and gives how much it was; fs.ErrNotExist where the kernel cannot.
	Reclaim(ctx context.Context, cgroup string, bytes int64) (int64, error)
}

// Engine ends containers. It may be away.
type Engine interface {
	Running() bool
	// RunningSince: it has been there all the time since then.
	RunningSince(time.Time) bool
}

// Pods are those of the board.
type Pods interface {
	// Memory is what is left of the memory that all pods may have together; false: nobody can tell.
	Memory(now time.Time) (left pressure.Reading, known bool)
	// Candidates are the pods that stand on the board and may be evicted, measured anew.
	Candidates(pressure.Signal) []pressure.Candidate
	// Cgroup is where the kernel can take memory back from a pod; empty: nowhere.
	Cgroup(types.UID) string
	// Claim has a pod end; false: it ends already, for another reason.
	Claim(types.UID, podstate.Stop) bool
	// Hasten is another word on a pod's end, which is coming already.
	Hasten(types.UID, podstate.Stop)
	// Stop has a pod end, and waits until it has; a pod that is not here has.
	Stop(context.Context, types.UID, podstate.Stop) error
	// Unheard is closed when all that the pod took is free but its end could not be told to the API; nil: there is no such pod.
	Unheard(types.UID) <-chan struct{}
	// Gone: the pod is not here any more, or nothing of it.
	Gone(types.UID) bool
}

// Events takes events for users to read.
type Events interface {
	EventOn(ref corev1.ObjectReference, eventType, reason, message string)
	Annotated(ref corev1.ObjectReference, annotations map[string]string, eventType, reason, message string)
}

// Evictor is one board's.
type Evictor struct {
	Config
	all    []pressure.Threshold
	state  pressure.State
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
	// podLimit is the memory that all pods may have together; 0: unknown, or not bounded.
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
	diary     pressure.Diary                     // of amounts
	evictions map[pressure.Signal]*api.Durations // since the start
}

// New makes an evictor that has seen nothing yet.
func New(cfg Config) *Evictor {
	return &Evictor{Config: cfg, sights: make(chan sight, 1), looked: make(chan struct{}), stalled: make(chan struct{}, 1),
		busy: make(chan struct{}, 1), evictions: map[pressure.Signal]*api.Durations{}}
}

// going is a pod that was told to go.
type going struct {
	pod   *corev1.Pod
	stop  podstate.Stop
	why   pressure.Signal
	waits int // how often it was waited for
}

// Reason is the reason in the status of an evicted pod.
const Reason = "Evicted"

const (
	// evictWithin bounds the wait of the next pod for the end of the one before it (N-6.20).
	evictWithin = 30 * time.Second
	// freedWithin bounds the time in which a file system counts removed files as free space.
	freedWithin = 2 * time.Second
	// goingWaits bounds how often one eviction is waited for, when the engine was lost each time.
	goingWaits = 3
	// hurryEach is how often memory is glanced at while an evicted pod ends.
	hurryEach = 100 * time.Millisecond
)

// Run takes a look every few seconds until ctx ends.
func (e *Evictor) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { e.followStalls(ctx) })
	beside.Go(func() { e.followOOMs(ctx) })
	for s := e.sample(); ctx.Err() == nil; s = e.await(ctx) {
		for e.pass(ctx, s) && ctx.Err() == nil {
			s = e.sample()
		}
	}
	return nil
}

// pass is the answer to one look (N-6.18). True: a pod has gone, look again at once.
func (e *Evictor) pass(ctx context.Context, s sight) bool {
	seen, layout, err := e.take(s)
	e.blind.About("cannot see what the board is short of; nothing is decided until it can be", err)
	if err != nil { // N-6.21
		e.weighed()
		return false
	}
	e.all = e.Policy.All(layout, !e.Unenforced)
	var found pressure.Verdict
	e.state, found = e.Policy.Step(e.state, e.all, seen, time.Now())
	e.publish(found, seen)
	e.weighed()
	if len(found.Due) == 0 {
		e.stuck.About("", nil)
		if e.going != nil && e.Pods.Gone(e.going.pod.UID) {
			e.going = nil
		}
		return false
	}
	t := found.Due[0]
	what := t.Signal.Resource()
	e.Events.EventOn(e.Node, corev1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", what))
	if seen, layout = e.free(ctx, t.Signal, seen, layout); !pressure.Short(e.all, seen) || ctx.Err() != nil {
		e.eased(seen)
		return false
	}
	if !e.Engine.Running() { // who is chosen now could not be stopped, and would go beside whoever frees enough
		e.halted = true
		e.stuck.About("the board is short, and no pod can be evicted", errors.New("the container engine is away"), "signal", t.Signal)
		return false
	}
	if e.going != nil {
		e.seeOff(ctx, func() {})
		return true
	}
	candidates := e.Pods.Candidates(t.Signal)
	if c, above, ok := pressure.Fattest(t.Signal, candidates); ok && e.squeeze(ctx, c, above) {
		now, l, err := e.look()
		if err != nil || ctx.Err() != nil {
			return false
		}
		if !pressure.Short(e.all, now) {
			e.eased(now)
			return false
		}
		seen, layout, candidates = now, l, e.Pods.Candidates(t.Signal)
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
func (e *Evictor) evict(ctx context.Context, t pressure.Threshold, r pressure.Reading, c pressure.Candidate) {
	message, offences := pressure.Message(t, r, c)
	grace := time.Second // N-6.31
	if t.Soft {
		grace = e.Policy.MaxPodGrace
	}
	stop := podstate.Stop{Reason: Reason, Message: message, Grace: &grace, Room: t.Signal.Disk(),
		Disruption: corev1.PodReasonTerminationByKubelet}
	if !e.Pods.Claim(c.Pod.UID, stop) { // it goes on its own, or for another reason: what that frees is to be seen first
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
func (e *Evictor) seeOff(ctx context.Context, tell func()) {
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
	err := e.Pods.Stop(end, g.pod.UID, g.stop)
	if err != nil && !errors.Is(context.Cause(end), errUnheard) && ctx.Err() == nil {
		if g.waits < goingWaits && !e.Engine.RunningSince(began) {
			return
		}
		slog.Warn("an evicted pod takes long to end; the next one does not wait for it", "pod", api.Key(g.pod), "err", err)
	}
	e.going = nil
}

var errUnheard = errors.New("the API has not heard of the pod's end")

// unheard waits until all that the pod took of what the board is short of is free. Its end is told at once then, as a rule; where
// that cannot be done it has gone all the same. What it has in memory stays until its end has been told.
func (e *Evictor) unheard(ctx context.Context, g *going) bool {
	unheard := e.Pods.Unheard(g.pod.UID)
	if unheard == nil || g.why.Resource() == pressure.Memory && slices.ContainsFunc(g.pod.Spec.Volumes, volume.InMemory) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-unheard:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(freedWithin):
		return true
	}
}

// hurry shortens the grace of a pod that goes for want of memory: it lasts only as long as there is memory to wait with. A pod may not
// hear its stop signal (a program without a handler does not, as first process of its container) and go on to take memory. Then the
// kernel would kill, whom it chooses, in the middle of everything.
func (e *Evictor) hurry(ctx context.Context, g *going) {
	stop := g.stop
	stop.Now = true
	for g.why.Resource() == pressure.Memory {
		if seen, _ := e.glance(); pressure.Dire(e.all, seen) {
			e.Pods.Hasten(g.pod.UID, stop)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(hurryEach):
		}
	}
}

// tellEvicted is the event of N-6.32.
func (e *Evictor) tellEvicted(pod *corev1.Pod, message string, what corev1.ResourceName, offences []pressure.Offence) {
	var containers, usage []string
	for _, o := range offences {
		containers, usage = append(containers, o.Container), append(usage, o.Usage)
	}
	notes := map[string]string{"starved_resource": string(what)}
	if len(offences) > 0 {
		notes["offending_containers"], notes["offending_containers_usage"] = strings.Join(containers, ","), strings.Join(usage, ",")
	}
	e.Events.Annotated(corev1.ObjectReference{Kind: api.Pods.Name, APIVersion: api.Pods.APIVersion(), Namespace: pod.Namespace,
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}, notes, corev1.EventTypeWarning, Reason, message)
}

// ageBuckets are Kubernetes' usual ones, in seconds.
var ageBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// count counts what a signal has cost, and how old what was decided on had become by then.
func (e *Evictor) count(s pressure.Signal, age time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.evictions[s]
	if d == nil {
		d = &api.Durations{Bounds: ageBuckets}
		e.evictions[s] = d
	}
	d.Saw(age)
}

// WriteMetrics writes those of N-6.37: how many pods had to go for each signal, and how old the figures were on which that was decided.
func (e *Evictor) WriteMetrics(t *stats.Text) {
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
