package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// Prober asks. It is shared by all pods of a board and holds no connection and no goroutine.
type Prober struct {
	engine  runtime.Execer
	version string
	began   time.Time
}

// New makes a prober. version is what probes call themselves: kube-probe/<version>.
func New(engine runtime.Execer, version string) *Prober {
	return &Prober{engine: engine, version: version, began: time.Now()}
}

// Target is one running instance of a container.
type Target struct {
	Spec      *corev1.Container
	ID        string
	StartedAt time.Time
	// Was is what was last reported of this very instance, by a brain that may have been another.
	Was Health
}

// Health is what the probes of an instance have found. What there is no probe for is true.
type Health struct {
	Started bool
	Ready   bool
	Failed  Kind // the probe because of which it has to be killed, or ""
}

// Set is the probes of one pod.
type Set struct {
	p       *Prober
	changed func()
	tell    func(container, eventType, reason, message string)

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // runs under way

	mu   sync.Mutex
	ip   string
	runs map[string]map[Kind]*run // by container ID

	counts []Count
}

// Count is how often the instances of a container were asked by one probe, by what came of it. One that could not ask is unknown.
type Count struct {
	Container                   string
	Kind                        Kind
	Successful, Failed, Unknown uint64
}

// run is one probe of one instance.
type run struct {
	kind  Kind
	t     Target
	spec  *corev1.Probe
	state state
	timer *time.Timer // nil: it does not run yet, or not any more
	stop  context.CancelFunc
	over  bool
}

// NewSet makes an empty set. changed is called when Health may have changed, and must not block; tell has an event
// recorded for the pod's owner.
func (p *Prober) NewSet(changed func(), tell func(container, eventType, reason, message string)) *Set {
	s := &Set{p: p, changed: changed, tell: tell, runs: map[string]map[Kind]*run{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Sync makes the set probe exactly these instances, and tells whether one of them is new. When the pod is stopping
// only readiness goes on (N-7.36).
func (s *Set) Sync(ip string, targets []Target, stopping bool) (added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.ip = ip
	live := map[string]bool{}
	for _, t := range targets {
		live[t.ID] = true
		if s.runs[t.ID] == nil {
			s.runs[t.ID], added = newRuns(t), true
		}
	}
	for id, kinds := range s.runs {
		for kind, r := range kinds {
			if !live[id] || stopping && kind != Readiness {
				r.end()
			}
			if stopping && kind != Readiness {
				r.state = state{result: Success}
			}
		}
		if !live[id] {
			delete(s.runs, id)
		} else {
			s.arm(kinds)
		}
	}
	return added
}

func newRuns(t Target) map[Kind]*run {
	kinds := map[Kind]*run{}
	for kind, was := range map[Kind]bool{Startup: t.Was.Started, Liveness: false, Readiness: t.Was.Ready} {
		if spec := probeOf(kind, t.Spec); spec != nil {
			kinds[kind] = &run{kind: kind, t: t, spec: spec, state: begin(kind, was)}
		}
	}
	return kinds
}

// arm sets the timers of probes that may begin: nothing but startup runs before the container has started.
func (s *Set) arm(kinds map[Kind]*run) {
	began := time.Time{}
	if up := kinds[Startup]; up != nil {
		switch {
		case up.state.result == Success:
			if up.timer != nil { // else it was known from an earlier brain
				began = time.Now()
			}
			up.end()
		case up.timer == nil && !up.over:
			s.schedule(up, firstRun(Startup, up.spec, up.t.StartedAt))
			return
		default:
			return
		}
	}
	for _, kind := range []Kind{Liveness, Readiness} {
		r := kinds[kind]
		if r == nil || r.timer != nil || r.over {
			continue
		}
		at := firstRun(kind, r.spec, r.t.StartedAt)
		if kind == Liveness && !began.IsZero() { // it has just passed a probe
			at = later(at, began.Add(period(r.spec)))
		}
		s.schedule(r, at)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// spread is the longest time over which a brain that has just begun asks the containers it finds.
const spread = 10 * time.Second

// schedule sets the timer for the first run. A brain that has just begun finds many containers whose time has come;
// it asks them at a random part of a period (N-7.34), of which only the beginning counts when it is long: one that was not
// ready should not wait for it.
func (s *Set) schedule(r *run, at time.Time) {
	wait := max(0, time.Until(at))
	if per := period(r.spec); r.t.StartedAt.Before(s.p.began) && wait < per && time.Since(s.p.began) < per {
		wait = max(wait, rand.N(min(per, spread)))
	}
	r.timer = time.AfterFunc(wait, func() { s.fire(r) })
}

// end stops a run for good.
func (r *run) end() {
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.stop != nil {
		r.stop()
	}
}

// fire asks once and sets the timer for the next time. Runs of one probe never overlap.
func (s *Set) fire(r *run) {
	ctx, ip, ok := s.enter(r)
	if !ok {
		return
	}
	defer s.wg.Done()
	began := time.Now()
	out := s.p.ask(ctx, r.spec, r.t.Spec, r.t.ID, ip)
	changed, wanted := s.leave(r, out, began)
	if !wanted {
		return
	}
	switch {
	case untold(out.Err):
	case out.Err != nil:
		s.tell(r.t.Spec.Name, corev1.EventTypeWarning, "Unhealthy",
			fmt.Sprintf("%s probe errored and resulted in unknown state: %v", r.kind, out.Err))
	case out.Result == Failure:
		s.tell(r.t.Spec.Name, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %s", r.kind, out.Output))
	case out.Warning:
		s.tell(r.t.Spec.Name, corev1.EventTypeWarning, "ProbeWarning", fmt.Sprintf("%s probe warning: %s", r.kind, out.Output))
	}
	if changed {
		s.changed()
	}
}

// untold: the keeper restarts, or the container has just ended; neither says anything to the pod's owner.
func untold(err error) bool {
	return errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrNotRunning) || errors.Is(err, runtime.ErrNotFound)
}

func (s *Set) enter(r *run) (ctx context.Context, ip string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.over || s.ctx.Err() != nil {
		return nil, "", false
	}
	ctx, r.stop = context.WithCancel(s.ctx)
	s.wg.Add(1)
	return ctx, s.ip, true
}

// leave takes the outcome into account, and says whether that changes what counts. What was stopped meanwhile nobody
// wants to know.
func (s *Set) leave(r *run, out Outcome, began time.Time) (changed, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.stop()
	if r.over {
		return false, false
	}
	s.count(r, out)
	was := r.state.result
	if out.Err == nil { // else the result is thrown away (N-7.33)
		r.state = r.state.after(r.kind, r.spec, out.Result)
	}
	if r.state.held || r.kind == Startup && r.state.result == Success {
		r.over = true
		s.arm(s.runs[r.t.ID])
	} else {
		r.timer.Reset(max(0, time.Until(began.Add(period(r.spec)))))
	}
	return r.state.result != was, true
}

// count is one more of what came of a probe.
func (s *Set) count(r *run, out Outcome) {
	i := slices.IndexFunc(s.counts, func(c Count) bool { return c.Container == r.t.Spec.Name && c.Kind == r.kind })
	if i < 0 {
		i, s.counts = len(s.counts), append(s.counts, Count{Container: r.t.Spec.Name, Kind: r.kind})
	}
	switch c := &s.counts[i]; {
	case out.Err != nil:
		c.Unknown++
	case out.Result == Failure:
		c.Failed++
	default:
		c.Successful++
	}
}

// Counts are those of all probes that have asked, since this brain has looked after the pod.
func (s *Set) Counts() []Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.counts)
}

// Health is what is known of each instance that has a probe, by container ID.
func (s *Set) Health() map[string]Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]Health, len(s.runs))
	for id, kinds := range s.runs {
		h := Health{Started: true, Ready: true}
		for kind, r := range kinds {
			switch {
			case kind == Startup:
				h.Started = r.state.result == Success
			case kind == Readiness:
				h.Ready = r.state.result == Success
			}
			if kind != Readiness && r.state.result == Failure && (h.Failed == "" || kind == Startup) {
				h.Failed = kind
			}
		}
		out[id] = h
	}
	return out
}

// Close ends every probe and waits for those under way.
func (s *Set) Close() {
	s.mu.Lock()
	s.cancel()
	for _, kinds := range s.runs {
		for _, r := range kinds {
			r.end()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}
