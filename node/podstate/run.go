package podstate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// run brings the pod forward: sandbox, init containers one by one, then all main containers.
func (d *decision) run() {
	if d.ended() {
		return
	}
	if !d.in.Seen.Sandbox {
		if d.held("") {
			return
		}
		d.do(Action{Verb: Sandbox})
		return
	}
	if !d.runInit() {
		return
	}
	for _, v := range d.views.main {
		d.bring(v)
	}
}

// runInit starts init containers in order; true when all have succeeded (N-7.19).
func (d *decision) runInit() bool {
	if d.views.mainStarted() {
		return true // init ran before; its records may have been cleared
	}
	for _, v := range d.views.init {
		if v.succeeded() {
			continue
		}
		d.bring(v)
		return false
	}
	return true
}

// ended says that nothing of the pod will ever run again: an init container failed for good, or every main
// container ended and none is to be restarted.
func (d *decision) ended() bool {
	if !d.views.mainStarted() {
		for _, v := range d.views.init {
			if v.ended() && !v.succeeded() && !d.restarts(v) {
				return true
			}
		}
	}
	for _, v := range d.views.main {
		if !v.ended() || d.restarts(v) {
			return false
		}
	}
	return len(d.views.main) > 0
}

// bring starts or restarts one container if it is time to.
func (d *decision) bring(v *view) {
	switch {
	case v.running() && v.outdated():
		d.replace(v)
		return
	case v.running():
		return
	case v.ended() && !d.restarts(v):
		return
	}
	if v.ended() && !v.outdated() {
		if at, delay := d.mem.Backoff[v.spec.Name].until(v.finishedAt()); d.in.Now.Before(at) {
			d.wait(v.spec.Name, "CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s",
				delay, v.spec.Name, d.podID()))
			d.tellBackoff(v)
			d.wake(at)
			return
		}
	}
	if d.held(v.spec.Name) {
		return
	}
	if ref, ok := d.in.Seen.Pulling[v.spec.Name]; ok && ref == v.spec.Image {
		return // we are told when it is here
	}
	img, ok := d.in.Seen.Images[v.spec.Name]
	if !ok || img.ID == "" || img.Ref != v.spec.Image || img.Attempt != v.nextAttempt() {
		d.do(Action{Verb: Resolve, Container: v.spec.Name, Attempt: v.nextAttempt()})
		return
	}
	if v.ended() && !v.outdated() {
		b := d.mem.Backoff[v.spec.Name].next(v.finishedAt(), d.in.Now)
		d.mem.setBackoff(v.spec.Name, b)
	}
	for _, old := range v.older { // one dead instance is kept, for lastState and logs --previous (N-6.24)
		d.do(Action{Verb: Discard, ID: old.ID})
	}
	d.do(Action{Verb: Start, Container: v.spec.Name, Attempt: v.nextAttempt()})
}

// tellBackoff has the owner told, once for each time it waits.
func (d *decision) tellBackoff(v *view) {
	if next := v.nextAttempt(); d.mem.Told[v.spec.Name] != next {
		d.mem.Told[v.spec.Name] = next
		d.out.Events = append(d.out.Events, EventNote{v.spec.Name, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s", v.spec.Name, d.podID())})
	}
}

// held says that the last try failed and it is too early for the next; it also reports why we wait.
func (d *decision) held(name string) bool {
	f, ok := d.in.Seen.Faults[name]
	if !ok {
		return false
	}
	retry := f.At.Add(retryAfter(f.Count))
	switch {
	case f.Reason == "ErrImagePull":
		retry = f.At.Add(pullAgainAfter(f.Count))
		d.heldPull(name, f)
	case name != "":
		d.wait(name, f.Reason, f.Message)
	}
	if d.in.Now.Before(retry) {
		d.wake(retry)
		return true
	}
	return false
}

// heldPull reports a failed pull: as the error first, and when it has been that for a while as the wait for the next
// try, which is how the two follow each other on Kubernetes.
func (d *decision) heldPull(name string, f Fault) {
	if next := f.At.Add(backoffFirst); d.in.Now.Before(next) {
		d.wait(name, f.Reason, f.Message)
		d.wake(next)
		return
	}
	image := ""
	for _, v := range d.views.all() {
		if v.spec.Name == name {
			image = v.spec.Image
		}
	}
	d.wait(name, "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: %s: %s", image, f.Reason, f.Message))
	if key := "pull " + name; d.in.Now.Before(f.At.Add(pullAgainAfter(f.Count))) && d.mem.Told[key] != f.Count {
		d.mem.Told[key] = f.Count
		d.out.Events = append(d.out.Events, EventNote{name, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", image)},
			EventNote{name, corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff"})
	}
}

// pullAgainAfter is the pause after the count-th failed pull of an image (N-7.16).
func pullAgainAfter(count int) time.Duration {
	if count > 5 {
		return backoffMost
	}
	return min(backoffFirst<<max(count-1, 0), backoffMost)
}

// restarts says whether an ended container is to be started again (N-7.9).
func (d *decision) restarts(v *view) bool {
	if v.outdated() {
		return true
	}
	switch d.in.Pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return !v.succeeded()
	}
	return !v.init || !v.succeeded()
}

// podID is how Kubernetes' messages name a pod: name_namespace(uid).
func (d *decision) podID() string {
	p := d.in.Pod
	return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID)
}

// Backoff is the restart delay of one container.
type Backoff struct {
	Delay time.Duration
	Last  time.Time // when Delay was last advanced: the last restart
}

const (
	backoffFirst = 10 * time.Second
	backoffMost  = 300 * time.Second
)

// fresh says that the container ran long enough for the past to be forgotten (N-7.15).
func (b Backoff) fresh(finished time.Time) bool {
	return b.Delay == 0 || finished.Sub(b.Last) > 2*backoffMost
}

// until is when a container that finished then may start again.
func (b Backoff) until(finished time.Time) (time.Time, time.Duration) {
	if b.fresh(finished) {
		return time.Time{}, 0
	}
	return finished.Add(b.Delay), b.Delay
}

// next advances the back-off at a restart: the first restart is at once and arms 10 s (N-7.14).
func (b Backoff) next(finished, now time.Time) Backoff {
	if b.fresh(finished) {
		return Backoff{Delay: backoffFirst, Last: now}
	}
	return Backoff{Delay: min(2*b.Delay, backoffMost), Last: now}
}

// retryAfter is the pause after the count-th failure of an effect: 10 s doubling to 5 min (N-7.16). The first
// retry of a sandbox or start comes sooner, since on a booting board the cause is often just order.
func retryAfter(count int) time.Duration {
	switch {
	case count <= 1:
		return 2 * time.Second
	case count > 6:
		return backoffMost
	}
	return min(backoffFirst<<(count-2), backoffMost)
}

func (m Memory) clone() Memory {
	out := m
	out.Signalled = cloneMap(m.Signalled)
	out.Killed = cloneMap(m.Killed)
	out.Backoff = cloneMap(m.Backoff)
	out.Told = cloneMap(m.Told)
	return out
}

func (m *Memory) setBackoff(name string, b Backoff) {
	if m.Backoff == nil {
		m.Backoff = map[string]Backoff{}
	}
	m.Backoff[name] = b
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// view is one container of the pod: its spec, what the engine holds of it, and what the API last said.
type view struct {
	spec   *corev1.Container
	init   bool
	latest *runtime.Status  // highest attempt
	prev   *runtime.Status  // the one before
	older  []runtime.Status // everything before latest
	past   *corev1.ContainerStatus
}

// outdated: it was started with another image than the pod now asks for, or with resources that take a restart to change.
func (v *view) outdated() bool {
	if v.latest == nil || v.init || v.latest.Labels[LabelImage] == "" {
		return false
	}
	return v.latest.Labels[LabelImage] != v.spec.Image || v.latest.Labels[LabelResize] != ResizeKey(v.spec)
}

func (v *view) running() bool { return v.latest != nil && v.latest.Phase == runtime.Running }

// lost: the API says it ran, the engine knows nothing of it: a reboot, or a keeper that lost its records.
func (v *view) lost() bool {
	return v.latest == nil && v.past != nil && v.past.ContainerID != "" && v.past.State.Terminated == nil
}

// ended: it ran and does not run any more. What the API says of an init container's end counts only while its
// sandbox lives: after a boot init containers run again.
func (v *view) ended() bool {
	return v.latest != nil && v.latest.Phase == runtime.Exited || v.lost() || v.endKnown()
}

// endKnown: it ended for good earlier, its record is gone, the API still tells how.
func (v *view) endKnown() bool {
	return !v.init && v.latest == nil && v.past != nil && v.past.State.Terminated != nil
}

func (v *view) succeeded() bool {
	if v.endKnown() {
		return v.past.State.Terminated.ExitCode == 0
	}
	return v.latest != nil && v.latest.Phase == runtime.Exited && v.latest.Exit != nil &&
		v.latest.Exit.Code == 0 && !v.latest.Exit.Unknown
}

func (v *view) finishedAt() time.Time {
	switch {
	case v.latest != nil && v.latest.Exit != nil:
		return v.latest.Exit.FinishedAt
	case v.endKnown():
		return v.past.State.Terminated.FinishedAt.Time
	}
	return time.Time{}
}

func (v *view) nextAttempt() int {
	switch {
	case v.latest != nil:
		return v.latest.Attempt + 1
	case v.past != nil && v.past.ContainerID != "":
		return int(v.past.RestartCount) + 1
	case v.past != nil:
		return int(v.past.RestartCount)
	}
	return 0
}

type views struct{ init, main []*view }

func (vs views) all() []*view { return append(append([]*view(nil), vs.init...), vs.main...) }

func (vs views) anyRunning() bool {
	for _, v := range vs.all() {
		if v.running() {
			return true
		}
	}
	return false
}

// mainStarted: some main container of this sandbox has run, so init is behind us.
func (vs views) mainStarted() bool {
	for _, v := range vs.main {
		if v.latest != nil {
			return true
		}
	}
	return false
}

func viewsOf(in Input) views {
	var out views
	for i := range in.Pod.Spec.InitContainers {
		out.init = append(out.init, viewOf(in, &in.Pod.Spec.InitContainers[i], in.Pod.Status.InitContainerStatuses, true))
	}
	for i := range in.Pod.Spec.Containers {
		out.main = append(out.main, viewOf(in, &in.Pod.Spec.Containers[i], in.Pod.Status.ContainerStatuses, false))
	}
	return out
}

func viewOf(in Input, c *corev1.Container, past []corev1.ContainerStatus, init bool) *view {
	v := &view{spec: c, init: init}
	for i := range past {
		if past[i].Name == c.Name {
			v.past = &past[i]
		}
	}
	for i := range in.Seen.Containers {
		s := &in.Seen.Containers[i]
		if s.Name != c.Name {
			continue
		}
		switch {
		case v.latest == nil || s.Attempt > v.latest.Attempt:
			if v.latest != nil {
				v.older = append(v.older, *v.latest)
			}
			v.prev, v.latest = v.latest, s
		default:
			v.older = append(v.older, *s)
			if v.prev == nil || s.Attempt > v.prev.Attempt {
				v.prev = s
			}
		}
	}
	return v
}
