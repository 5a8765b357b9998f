package podstate

import (
	"fmt"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// minRest is what a container gets between its stop signal and SIGKILL at the very least (N-7.29).
const minRest = 2 * time.Second

// rekill is how long a SIGKILL may take (a process in uninterruptible sleep) before it is sent again.
const rekill = 5 * time.Second

// DeadlineExceeded is the reason of a pod that outlived its activeDeadlineSeconds (N-7.17).
const DeadlineExceeded = "DeadlineExceeded"

// stopping says that the pod is to end: deleted, stopped from the board's side, too old, or over already.
func (d *decision) stopping() bool {
	if d.in.Stop == nil && !terminal(d.in.Pod.Status.Phase) {
		d.deadline()
	}
	return d.in.Gone || d.in.Pod.DeletionTimestamp != nil || d.in.Stop != nil || terminal(d.in.Pod.Status.Phase)
}

// deadline turns an expired activeDeadlineSeconds into a stop.
func (d *decision) deadline() {
	secs, start := d.in.Pod.Spec.ActiveDeadlineSeconds, d.in.Pod.Status.StartTime
	if secs == nil || start == nil {
		return
	}
	at := start.Add(time.Duration(*secs) * time.Second)
	if d.in.Now.Before(at) {
		d.wake(at)
		return
	}
	d.in.Stop = &Stop{Reason: DeadlineExceeded,
		Message: "Pod was active on the node longer than the specified deadline"}
}

// stop signals what runs, and kills it when the grace is over.
func (d *decision) stop() {
	if !d.views.anyRunning() {
		return
	}
	if d.mem.StopBegan.IsZero() {
		d.mem.StopBegan = d.in.Now
	}
	d.mem.Grace = d.grace()
	end := d.mem.StopBegan.Add(max(d.mem.Grace, minRest))
	for _, v := range d.views.all() {
		if v.running() {
			d.stopOne(v, end, fmt.Sprintf("Stopping container %s", v.spec.Name))
		}
	}
}

// replace stops a container whose image was changed; once it has ended, bring starts the new one at once.
func (d *decision) replace(v *view) {
	began, ok := d.mem.Signalled[v.latest.ID]
	if !ok {
		began = d.in.Now
	}
	d.stopOne(v, began.Add(max(d.grace(), minRest)), fmt.Sprintf("Container %s definition changed, will be restarted", v.spec.Name))
}

func (d *decision) stopOne(v *view, end time.Time, why string) {
	id := v.latest.ID
	if _, done := d.mem.Signalled[id]; !done {
		d.mem.Signalled[id] = d.in.Now
		d.do(Action{Verb: Signal, Container: v.spec.Name, ID: id, Sig: d.stopSignal(v),
			Event: &EventNote{v.spec.Name, corev1.EventTypeNormal, "Killing", why}})
	}
	if d.in.Now.Before(end) {
		d.wake(end)
		return
	}
	if last, done := d.mem.Killed[id]; !done || !d.in.Now.Before(last.Add(rekill)) {
		d.mem.Killed[id] = d.in.Now
		d.do(Action{Verb: Signal, Container: v.spec.Name, ID: id, Sig: syscall.SIGKILL})
	}
	d.wake(d.mem.Killed[id].Add(rekill))
}

// grace is the shortest of all that apply, never under a second, and never grows while stopping (N-7.26).
func (d *decision) grace() time.Duration {
	pod := d.in.Pod
	g := 30 * time.Second
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		g = time.Duration(*s) * time.Second
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		g = min(g, time.Duration(*s)*time.Second)
	}
	if d.in.Stop != nil && d.in.Stop.Grace != nil {
		g = min(g, *d.in.Stop.Grace)
	}
	if d.mem.Grace > 0 {
		g = min(g, d.mem.Grace)
	}
	return max(g, time.Second)
}

func (d *decision) stopSignal(v *view) syscall.Signal {
	if sig, ok := ParseSignal(v.latest.Labels[LabelStopSignal]); ok {
		return sig
	}
	return syscall.SIGTERM
}
