package podstate

import (
	"math"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// minRest is what a container gets between its stop signal and SIGKILL at the very least (N-7.29).
const minRest = 2 * time.Second

// rekill is how long a SIGKILL may take (a process in uninterruptible sleep) before it is sent again.
const rekill = 5 * time.Second

// doubt is the time after which a doubted clock is read again.
const doubt = 30 * time.Second

// noClock is before ledge was: a pod that began earlier began while the clock was not set. How long it has been active nobody knows.
var noClock = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// DeadlineExceeded is the reason of a pod that outlived its activeDeadlineSeconds (N-7.17).
const DeadlineExceeded = "DeadlineExceeded"

// stopping says that the pod is to end: deleted, stopped from the board's side, too old, or over already.
func (f *facts) stopping() bool {
	return f.in.Gone || f.in.Pod.DeletionTimestamp != nil || f.in.Stop != nil || terminal(f.in.Pod.Status.Phase)
}

// deadline turns an expired activeDeadlineSeconds into a stop, unless the pod has another, or is over.
func (d *decision) deadline() {
	if d.facts.in.Stop != nil || terminal(d.facts.in.Pod.Status.Phase) {
		return
	}
	age, secs := d.facts.mem.Active.age(d.facts.in), d.facts.in.Pod.Spec.ActiveDeadlineSeconds
	if secs == nil {
		return
	}
	left := time.Duration(min(*secs, math.MaxInt64/int64(time.Second)))*time.Second - age
	if left > 0 {
		if !d.facts.mem.Active.Told {
			left = min(left, doubt)
		}
		d.wake(d.facts.in.Now.Add(left))
		return
	}
	at := d.facts.in.Now.Add(left)
	const words = "Pod was active on the node longer than the specified deadline"
	d.facts.in.Stop = &Stop{Reason: DeadlineExceeded, Message: words, At: at}
	if d.facts.mem.Told[DeadlineExceeded] == 0 { // no container has such a name
		d.facts.mem.Told[DeadlineExceeded] = 1
		d.out.Events = append(d.out.Events, EventNote{"", corev1.EventTypeNormal, DeadlineExceeded, words})
	}
}

// age is how long the pod has been active.
func (a *Activity) age(in Input) time.Duration {
	start := in.Pod.Status.StartTime
	if a.Since.IsZero() {
		*a = Activity{Since: in.Now, Told: start == nil || start.Before(&noClock)}
	}
	seen := in.Now.Sub(a.Since)
	if !a.Told && (in.Believed == nil || in.Believed()) {
		a.Told, a.Before = true, max(in.Now.Sub(start.Time)-seen, 0)
	}
	return a.Before + seen
}

// stop ends what runs: main containers together, then sidecars in the reverse of their order, each when those after
// it have ended (N-7.22). All of it has one grace; when that is over nobody waits for anybody.
func (d *decision) stop() {
	if !d.facts.views.anyRunning() {
		return
	}
	if d.facts.mem.StopBegan.IsZero() {
		d.facts.mem.StopBegan = d.facts.in.Now
	}
	d.facts.mem.Grace = d.facts.grace()
	until := d.facts.mem.StopBegan.Add(d.facts.mem.Grace)
	turn := true
	for _, v := range slices.Concat(d.facts.views.main, d.facts.views.ephemeral, d.facts.views.init) {
		if v.running() && v.role != sidecarRole {
			d.end(v, until, true, "Stopping container "+v.spec.Name)
			turn = turn && v.role != mainRole
		}
	}
	for _, v := range slices.Backward(d.facts.views.init) {
		if v.running() && v.role == sidecarRole {
			d.end(v, until, turn, "Stopping container "+v.spec.Name)
			turn = false
		}
	}
}

// kill ends one container of a pod that goes on.
func (d *decision) kill(v *view, grace time.Duration, why string) {
	began := d.facts.mem.Ends[v.latest.ID].Began
	if began.IsZero() {
		began = d.facts.in.Now
	}
	d.end(v, began.Add(grace), true, why)
}

// end brings a container to its end: preStop hook, stop signal, SIGKILL (N-7.27 to N-7.29). until is the end of its
// grace. Before its turn it gets no signal, but its hook runs like all others.
func (d *decision) end(v *view, until time.Time, turn bool, why string) {
	id := v.latest.ID
	e, known := d.facts.mem.Ends[id]
	var event *EventNote
	if !known {
		e.Began = d.facts.in.Now
		event = &EventNote{v.spec.Name, corev1.EventTypeNormal, "Killing", why}
	}
	defer func() {
		d.facts.mem.Ends[id] = e
		if event != nil { // nothing was done yet that it could go with
			d.out.Events = append(d.out.Events, *event)
		}
	}()
	now := d.facts.in.Stop != nil && d.facts.in.Stop.Now
	if e.Signalled.IsZero() && !now {
		hook := v.hook(PreStop) != nil && !d.facts.hookDone(PreStop, v)
		if key := HookKey(PreStop, id); hook && !d.facts.mem.Hooked[key] {
			d.facts.mem.Hooked[key] = true
			d.do(Action{Verb: RunHook, Container: v.spec.Name, ID: id, Hook: PreStop, Until: until, Event: event})
			event = nil
		}
		if (hook || !turn) && d.facts.in.Now.Before(until) {
			d.wake(until)
			return
		}
		e.Signalled = d.facts.in.Now
		d.do(Action{Verb: Signal, Container: v.spec.Name, ID: id, Sig: d.facts.stopSignal(v), Event: event})
		event = nil
	}
	end := until
	if least := e.Signalled.Add(minRest); end.Before(least) {
		end = least
	}
	if d.facts.in.Now.Before(end) && !now {
		d.wake(end)
		return
	}
	if e.Killed.IsZero() || !d.facts.in.Now.Before(e.Killed.Add(rekill)) {
		e.Killed = d.facts.in.Now
		d.do(Action{Verb: Signal, Container: v.spec.Name, ID: id, Sig: syscall.SIGKILL})
	}
	d.wake(e.Killed.Add(rekill))
}

// probeGrace is what a container gets that a probe has failed (N-7.30).
func (f *facts) probeGrace(v *view, failed string) time.Duration {
	p := v.spec.LivenessProbe
	if failed == "startup" {
		p = v.spec.StartupProbe
	}
	if p != nil && p.TerminationGracePeriodSeconds != nil {
		return max(time.Duration(*p.TerminationGracePeriodSeconds)*time.Second, time.Second)
	}
	return f.grace()
}

// grace is the shortest of all that apply, never under a second, and never grows while stopping (N-7.26).
func (f *facts) grace() time.Duration {
	pod := f.in.Pod
	g := 30 * time.Second
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		g = time.Duration(*s) * time.Second
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		g = min(g, time.Duration(*s)*time.Second)
	}
	if f.in.Stop != nil && f.in.Stop.Grace != nil {
		g = min(g, *f.in.Stop.Grace)
	}
	if f.mem.Grace > 0 {
		g = min(g, f.mem.Grace)
	}
	return max(g, time.Second)
}

func (f *facts) stopSignal(v *view) syscall.Signal {
	if sig, ok := ParseSignal(v.latest.Labels[LabelStopSignal]); ok {
		return sig
	}
	return syscall.SIGTERM
}
