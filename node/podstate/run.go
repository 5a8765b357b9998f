package podstate

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// run brings the pod forward: sandbox, init containers and sidecars one by one, then all main containers.
func (d *decision) run() {
	if d.facts.ended() {
		d.stop() // sidecars, and what somebody runs there to look
		return
	}
	if !d.facts.in.Seen.Sandbox {
		if d.held("") {
			return
		}
		d.do(Action{Verb: Sandbox})
		return
	}
	for _, v := range d.facts.views.ephemeral {
		if v.running() || !v.ended() {
			d.bring(v)
		}
	}
	if !d.runInit() {
		return
	}
	for _, v := range d.facts.views.main {
		d.bring(v)
	}
}

// runInit starts init containers and sidecars in order, each when the one before has succeeded or started; true when
// all have (N-7.19, N-7.20). Sidecars behind that point are kept running and hold up nobody.
func (d *decision) runInit() bool {
	at := d.facts.initAt()
	for i, v := range d.facts.views.init {
		switch {
		case v.role == sidecarRole:
			d.bring(v)
			if i >= at && !d.facts.started(v) {
				return false
			}
		case i >= at && !v.succeeded():
			d.bring(v)
			return false
		}
	}
	return true
}

// initAt is the place of the furthest init container or sidecar that has run in this sandbox. Everything before it is
// done or has started once; the records of that may have been cleared.
func (f *facts) initAt() int {
	if f.views.mainStarted() {
		return len(f.views.init)
	}
	at := 0
	for i, v := range f.views.init {
		if v.latest != nil {
			at = i
		}
	}
	return at
}

// ended says that nothing of the pod will ever run again but sidecars: an init container failed for good, or every
// main container ended and none is to be restarted.
func (f *facts) ended() bool {
	if f.mem.Restarting {
		return false // whatever the policy says of those that are killed for it
	}
	if !f.views.mainStarted() {
		for _, v := range f.views.init {
			if v.ended() && !v.succeeded() && !f.restarts(v) {
				return true
			}
		}
	}
	for _, v := range f.views.main {
		if !v.ended() || f.restarts(v) {
			return false
		}
	}
	return len(f.views.main) > 0
}

// begun: the container runs and its postStart hook is done. The API knows it as running only from then on; after a
// restart of the brain, what the API knows is taken for it.
func (f *facts) begun(v *view) bool {
	return v.running() && (v.hook(PostStart) == nil || v.reported() || f.hookDone(PostStart, v))
}

func (f *facts) hookDone(hook string, v *view) bool {
	end, done := f.in.Seen.Hooks[HookKey(hook, v.latest.ID)]
	return done && !(hook == PostStart && end.Failed)
}

// started: it has begun, and passed its startup probe if it has one.
func (f *facts) started(v *view) bool {
	return f.begun(v) && (v.spec.StartupProbe == nil || f.in.Seen.Health[v.latest.ID].Started)
}

// ready tells whether the container has started and its readiness probe, if any, has passed.
func (f *facts) ready(v *view) bool {
	return f.started(v) && (v.spec.ReadinessProbe == nil || f.in.Seen.Health[v.latest.ID].Ready)
}

// tend looks after a container that runs: its postStart hook, and its end when that or a probe has failed.
func (d *decision) tend(v *view) {
	id := v.latest.ID
	key := HookKey(PostStart, id)
	_, hookOver := d.facts.in.Seen.Hooks[key]
	health := d.facts.in.Seen.Health[id]
	switch _, ending := d.facts.mem.Ends[id]; {
	case v.outdated() && !d.facts.in.Closing: // nothing would come after it
		d.kill(v, d.facts.grace(), fmt.Sprintf("Container %s definition changed, will be restarted", v.spec.Name))
	case health.Failed != "" && !d.facts.in.Closing:
		why := fmt.Sprintf("Container %s failed %s probe", v.spec.Name, health.Failed)
		if d.facts.mayRestart(v) {
			why += ", will be restarted"
		}
		d.kill(v, d.facts.probeGrace(v, health.Failed), why)
	case d.facts.in.Seen.Pulled[id] != "" && !d.facts.in.Closing:
		why := fmt.Sprintf("Container %s lost device %s", v.spec.Name, d.facts.in.Seen.Pulled[id])
		if d.facts.mayRestart(v) {
			why += ", will be restarted"
		}
		d.kill(v, d.facts.grace(), why)
	case !d.facts.begun(v) && hookOver:
		d.kill(v, d.facts.grace(), "FailedPostStartHook")
	case ending:
		d.kill(v, d.facts.grace(), "") // whatever it was for
	case !d.facts.begun(v) && !d.facts.mem.Hooked[key]:
		d.facts.mem.Hooked[key] = true
		d.do(Action{Verb: RunHook, Container: v.spec.Name, ID: id, Hook: PostStart})
	}
}

// bring starts or restarts one container if it is time to.
func (d *decision) bring(v *view) {
	switch {
	case v.running():
		d.tend(v)
		return
	case v.ended() && !d.facts.restarts(v):
		return
	}
	finished, again := v.endBefore()
	if _, failed := d.facts.in.Seen.Faults[v.spec.Name]; failed {
		again = false // it is held back for what keeps it from starting, and says so
	}
	if again {
		if at, delay := d.facts.mem.Backoff[v.spec.Name].until(finished); d.facts.in.Now.Before(at) {
			d.waiting.set(v.spec.Name, "CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s",
				delay, v.spec.Name, d.facts.podID()))
			d.tellBackoff(v)
			d.wake(at)
			return
		}
	}
	if d.facts.in.Closing && (v.ended() || v.anew()) {
		return // asked again when the board stays on
	}
	if d.held(v.spec.Name) {
		return
	}
	if ref, ok := d.facts.in.Seen.Pulling[v.spec.Name]; ok && ref == v.spec.Image {
		return // we are told when it is here
	}
	img, ok := d.facts.in.Seen.Images[v.spec.Name]
	if !ok || img.ID == "" || img.Ref != v.spec.Image || img.Attempt != v.nextAttempt() {
		d.do(Action{Verb: Resolve, Container: v.spec.Name, Attempt: v.nextAttempt()})
		return
	}
	if again {
		b := d.facts.mem.Backoff[v.spec.Name].next(finished, d.facts.in.Now)
		d.facts.mem.setBackoff(v.spec.Name, b)
	}
	for _, old := range v.older { // one dead instance is kept, for lastState and logs --previous (N-6.24)
		d.do(Action{Verb: Discard, ID: old.ID})
	}
	d.do(Action{Verb: Start, Container: v.spec.Name, Attempt: v.nextAttempt()})
}

// tellBackoff has the owner told, once for each time it waits.
func (d *decision) tellBackoff(v *view) {
	if next := v.nextAttempt(); d.facts.mem.Told[v.spec.Name] != next {
		d.facts.mem.Told[v.spec.Name] = next
		d.out.Events = append(d.out.Events, EventNote{v.spec.Name, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s", v.spec.Name, d.facts.podID())})
	}
}

// held says that the last try failed and it is too early for the next; it also reports why we wait.
func (d *decision) held(name string) bool {
	f, ok := d.facts.in.Seen.Faults[name]
	if !ok {
		return false
	}
	retry := f.At.Add(retryAfter(f.Count))
	switch {
	case f.Reason == "ErrImagePull":
		retry = f.At.Add(pullAgainAfter(f.Count))
		d.heldPull(name, f)
	case name != "":
		d.waiting.set(name, f.Reason, f.Message)
	}
	if d.facts.in.Now.Before(retry) {
		d.wake(retry)
		return true
	}
	return false
}

// heldPull reports a failed pull: as the error first, and when it has been that for a while as the wait for the next
// try, which is how the two follow each other on Kubernetes.
func (d *decision) heldPull(name string, f Fault) {
	if next := f.At.Add(backoffFirst); d.facts.in.Now.Before(next) {
		d.waiting.set(name, f.Reason, f.Message)
		d.wake(next)
		return
	}
	image := ""
	for _, v := range d.facts.views.all() {
		if v.spec.Name == name {
			image = v.spec.Image
		}
	}
	d.waiting.set(name, "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: %s: %s", image, f.Reason, f.Message))
	if key := "pull " + name; d.facts.in.Now.Before(f.At.Add(pullAgainAfter(f.Count))) && d.facts.mem.Told[key] != f.Count {
		d.facts.mem.Told[key] = f.Count
		d.out.Events = append(d.out.Events, EventNote{name, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", image)},
			EventNote{name, corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff"})
	}
}

// podID is how Kubernetes' messages name a pod: name_namespace(uid).
func (f *facts) podID() string {
	p := f.in.Pod
	return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID)
}

func (m Memory) clone() Memory {
	out := m
	out.Ends = cloneMap(m.Ends)
	out.Hooked = cloneMap(m.Hooked)
	out.Backoff = cloneMap(m.Backoff)
	out.Told = cloneMap(m.Told)
	out.Reset = maps.Clone(m.Reset) // nil stays nil
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
