package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/node/probe"
	"ledge/node/volume"
	"ledge/runtime"
)

// worker owns one pod: nothing else acts on it.
type worker struct {
	a      *Agent
	uid    types.UID
	static bool
	wake   chan struct{} // capacity 1
	ended  chan struct{} // closed once nothing of the pod runs or is mounted and its end is in the API
	bare   chan struct{} // closed after that, once nothing of it is left on the board
	// unheard is closed before both, when only the API is waited for; it may come with them.
	unheard chan struct{}

	mu    sync.Mutex
	pod   *corev1.Pod // latest; shared, read-only
	gone  bool
	stopw *podstate.Stop
	over  bool // it has come to its end without being told to, whether the API knows yet or not
	retry bool
	// endStart ends the start that is under way, if one is.
	endStart context.CancelCauseFunc
	fresh    bool // something the pod names has changed
	// hooked are the lifecycle hooks that have come to their end, by podstate.HookKey.
	hooked map[string]podstate.HookEnd

	// decided: the board has said whether it takes the pod; counted: it does. Both guarded by the roster's lock.
	decided, counted bool

	probes *probe.Set

	// below: only the worker's own goroutine
	mem     podstate.Memory
	seen    podstate.Seen
	stuck   int // actions in a row that have to be repeated and have no back-off of their own
	resize  resizing
	status  statusWriter
	stale   string // why the pod's volumes could not be renewed, as last told
	images  imageVolumes
	pulled  pulled
	pulls   pulls
	helpers sync.WaitGroup // pulls, lifecycle hooks
}

func newWorker(a *Agent, pod *corev1.Pod) *worker {
	w := &worker{a: a, uid: pod.UID, pod: pod, wake: make(chan struct{}, 1), ended: make(chan struct{}), bare: make(chan struct{}),
		unheard: make(chan struct{}), hooked: map[string]podstate.HookEnd{},
		seen: podstate.Seen{Images: map[string]podstate.Image{}, Faults: map[string]podstate.Fault{}, Messages: map[string]string{}}}
	w.images, w.resize, w.pulled = imageVolumes{w: w}, resizing{w: w}, pulled{a: a}
	w.pulls = pulls{w: w, on: map[string]*pulling{}, silent: map[string]silence{}}
	w.status = statusWriter{home: apiPods{a.cfg.Client}, owner: w}
	w.probes = a.prober.NewSet(w.poke, func(container, eventType, reason, message string) {
		a.containerEvent(w.current(), container, eventType, reason, message)
	})
	return w
}

func (w *worker) poke() {
	nudge(w.wake)
}

// offer gives the worker the latest pod; only the last one counts.
func (w *worker) offer(p *corev1.Pod) {
	w.mu.Lock()
	changed := w.pod.ResourceVersion != p.ResourceVersion
	// A path in a volume may be made of an annotation.
	w.fresh = w.fresh || !maps.Equal(w.pod.Labels, p.Labels) || !maps.Equal(w.pod.Annotations, p.Annotations)
	w.pod = p
	if p.DeletionTimestamp != nil {
		w.endStartLocked()
	}
	w.mu.Unlock()
	if changed {
		w.poke()
	}
}

func (w *worker) vanished() {
	w.mu.Lock()
	first := !w.gone
	w.gone = true
	w.endStartLocked()
	w.mu.Unlock()
	if first {
		w.poke()
	}
}

// retire ends a static pod whose file is gone, as a deletion would.
func (w *worker) retire(now time.Time) {
	w.mu.Lock()
	already := w.pod.DeletionTimestamp != nil
	if !already {
		w.pod = w.pod.DeepCopy()
		w.pod.DeletionTimestamp = &metav1.Time{Time: now}
		w.pod.DeletionGracePeriodSeconds = w.pod.Spec.TerminationGracePeriodSeconds
		w.endStartLocked()
	}
	w.mu.Unlock()
	if !already {
		w.poke()
	}
}

func (w *worker) toldToStop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopw != nil
}

// stoppedForNothing: the pod was stopped from the board's side, and the board is still there.
func (w *worker) stoppedForNothing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopw != nil && !w.gone && w.isEnded()
}

func (w *worker) retryNow() {
	w.mu.Lock()
	w.retry = true
	w.mu.Unlock()
	w.poke()
}

// sourcesChanged: what could not be done for want of a ConfigMap or Secret may be possible now.
func (w *worker) sourcesChanged() {
	w.mu.Lock()
	w.fresh = true
	w.mu.Unlock()
	w.poke()
}

// written implements statusOwner: it takes in the pod as its status was written.
func (w *worker) written(got *corev1.Pod) {
	w.mu.Lock()
	changed := w.pod.ResourceVersion != got.ResourceVersion
	w.pod = got
	w.mu.Unlock()
	if changed {
		w.poke()
	}
}

func (w *worker) current() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

func (w *worker) isEnded() bool { return isClosed(w.ended) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// run decides and acts until the pod is gone or ctx ends. When ctx ends the pod runs on.
func (w *worker) run(ctx context.Context) {
	defer w.a.workerDone(w)
	ctx, stop := context.WithCancel(ctx)
	defer w.helpers.Wait()
	defer w.probes.Close()
	defer stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wake, done := w.step(ctx)
		if done {
			return
		}
		timer.Reset(wake)
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// resync is how often a pod is looked at when nothing happens (N-7.16).
const resync = time.Minute

// step is one round: look, decide, report, act. It says how long to rest.
func (w *worker) step(ctx context.Context) (rest time.Duration, done bool) {
	in, ok := w.input()
	if !ok {
		return resync, false // poked when the engine is back
	}
	why, later := w.admission(ctx, in)
	if later {
		return resync, false // poked when it is its turn
	}
	if why != nil && in.Stop == nil {
		in.Stop = w.stop(*why)
	}
	w.refreshVolumes(ctx, in)
	in.Pod = w.resize.sized(in)
	w.resize.setSizes(ctx, in.Pod)
	out := w.decide(in)
	if ctx.Err() != nil {
		return resync, false
	}
	if !w.finish(in, out) {
		return 0, false
	}
	w.resize.tellSizes(in.Pod, &out.Status)
	tellMounts(in.Pod, &out.Status)
	if out.Unheard && !isClosed(w.unheard) {
		close(w.unheard)
	}
	first, again := urgent(in, out), false
	if first {
		again = w.carryOut(ctx, in, out)
	}
	if !w.status.onItsWay(in, out) && !in.Gone && !w.status.write(ctx, in.Pod, out.Status) {
		return 0, false // the decision was about a pod that has changed
	}
	if !first {
		again = w.carryOut(ctx, in, out)
	}
	if again {
		w.status.writeHeld(ctx, in.Pod, out.Status, 0)
	}
	w.markEnd(in, out)
	if out.Done {
		w.forgetFiles(in.Pod)
		return 0, true
	}
	return w.rest(in, out, again), false
}

// urgent: the board wants an end of the pod, and signals are all there is to be done about it. They do not wait for the status to
// be written: where memory or power runs out that can take longer than there is.
func urgent(in podstate.Input, out podstate.Output) bool {
	return in.Stop != nil && !slices.ContainsFunc(out.Do, func(a podstate.Action) bool { return a.Verb != podstate.Signal })
}

// carryOut does what was decided. True: something could not be done yet.
func (w *worker) carryOut(ctx context.Context, in podstate.Input, out podstate.Output) (again bool) {
	w.mem = out.Mem
	for _, e := range out.Events {
		w.a.containerEvent(in.Pod, e.Container, e.Type, e.Reason, e.Message)
	}
	for _, act := range out.Do {
		w.status.writeHeld(ctx, in.Pod, out.Status, statusHeld)
		again = !w.act(ctx, in.Pod, act) || again
	}
	return again
}

// refreshVolumes brings files made of objects up to date: at every change of one, and each time the pod is looked
// at, until it is to end. What cannot be renewed stays as it is.
func (w *worker) refreshVolumes(ctx context.Context, in podstate.Input) {
	pod := in.Pod
	if in.Gone || in.Stop != nil || pod.DeletionTimestamp != nil || !w.seen.Sandbox || w.seen.Unmounted ||
		!slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return volume.OfObjects(&v) }) {
		return
	}
	err := w.a.volumes.Refresh(ctx, pod, podSource{w.a, pod})
	if ctx.Err() != nil {
		return
	}
	if text := fmt.Sprint(err); err != nil && text != w.stale {
		w.a.event(pod, corev1.EventTypeWarning, "FailedMount", text)
		w.stale = text
	}
	if err == nil {
		w.stale = ""
	}
}

// rest is how long nothing need be done unless something happens.
func (w *worker) rest(in podstate.Input, out podstate.Output, again bool) time.Duration {
	rest := w.status.rest(resync)
	if w.resize.pending != nil || w.resize.trouble != nil {
		rest = min(rest, resizeRetry)
	}
	switch {
	case again:
		rest = min(rest, time.Second<<min(w.stuck, 5))
		w.stuck++
	case len(out.Do) > 0:
		rest, w.stuck = 0, 0
	case !out.Wake.IsZero():
		rest = min(rest, max(0, out.Wake.Sub(in.Now)))
	}
	return rest
}

// input is what there is to decide on; ok is false while the engine is away.
func (w *worker) input() (in podstate.Input, ok bool) {
	containers, sandbox, ok := w.a.engine.held(w.uid)
	if !ok {
		return in, false
	}
	w.mu.Lock()
	in = podstate.Input{Pod: w.pod, Gone: w.gone, Stop: w.stopw}
	if w.retry {
		w.retry = false
		for name, f := range w.seen.Faults {
			if f.Reason == "ErrImagePull" || f.Reason == "ErrImageNeverPull" {
				delete(w.seen.Faults, name)
			}
		}
	}
	if w.fresh {
		w.fresh = false
		w.retryFaults("CreateContainerConfigError", "FailedMount")
	}
	w.mu.Unlock()
	w.pulls.lookAtPulls(in)
	w.seen.Containers = containers
	w.seen.Hooks, w.seen.Health = w.hookEnds(containers), w.health()
	w.seen.Standing = sandbox
	w.seen.Sandbox = w.seen.Sandbox && sandbox // an engine that lost it (its run directory was removed) gets it anew
	w.readMessages(in.Pod)
	w.seen.Pulled = w.pulled.of(in.Pod, containers)
	in.Seen, in.Mem, in.Now, in.HostIPs = w.seen, w.mem, time.Now(), w.a.outlook.last().hostIPs
	in.Closing, in.Later = w.a.goingDown()
	in.Believed = w.a.cfg.Believed
	return in, true
}

// retryFaults has what failed for one of these reasons tried again at once, and then from the shortest back-off on.
func (w *worker) retryFaults(reasons ...string) {
	for name, f := range w.seen.Faults {
		if slices.Contains(reasons, f.Reason) {
			f.At, f.Count = time.Time{}, 0
			w.seen.Faults[name] = f
		}
	}
}

// markEnd closes ended when the pod has left the board and the API knows; when the board is going down, what is left of it
// must not hold that up.
func (w *worker) markEnd(in podstate.Input, out podstate.Output) {
	over := out.Done || in.Gone && w.seen.Removed
	if p := in.Pod.Status.Phase; p == corev1.PodSucceeded || p == corev1.PodFailed {
		over = over || w.seen.Removed || in.Later && w.seen.Unmounted
	}
	if over && !w.isEnded() {
		close(w.ended)
		w.a.roster.pokeUndecided()
		if asksDevices(in.Pod) {
			w.a.roster.tryDevices() // what it had may go to others
			w.a.poster.Poke()       // and counts again, if a volume had it
		}
	}
	if over && (out.Done || w.seen.Removed) && !isClosed(w.bare) {
		close(w.bare)
	}
}

// act carries out one action and remembers the result. False means that the action is not over and Decide, which has
// no back-off for it, would ask for it again at once.
func (w *worker) act(ctx context.Context, pod *corev1.Pod, act podstate.Action) bool {
	if act.Event != nil {
		w.a.containerEvent(pod, act.Container, act.Event.Type, act.Event.Reason, act.Event.Message)
	}
	key, patient := act.Container, true
	switch act.Verb {
	case podstate.Signal, podstate.RunHook, podstate.Discard, podstate.DeletePod:
		key, patient = string(act.Verb)+":"+act.ID, false
	}
	err := w.a.hands.perform(ctx, w, pod, act)
	if err == nil {
		if act.Verb != podstate.Resolve { // which may only have begun to pull; found tells
			delete(w.seen.Faults, key)
		}
		return act.Verb != podstate.DeletePod // it may be held by a finalizer; when it has gone we are told
	}
	w.unmark(act)
	if ctx.Err() != nil || errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, errOnItsWay) || errors.Is(err, errEnding) {
		return false // not carried out: decide it again when the engine is back, or what it needs has come
	}
	w.failed(pod, act.Verb, act.Container, key, err)
	return patient
}

// unmark takes back that a signal was sent.
func (w *worker) unmark(act podstate.Action) {
	if act.Verb != podstate.Signal {
		return
	}
	end := w.mem.Ends[act.ID]
	if act.Sig == syscall.SIGKILL {
		end.Killed = time.Time{}
	} else {
		end.Signalled = time.Time{}
	}
	w.mem.Ends[act.ID] = end
}

func (a *Agent) event(pod *corev1.Pod, eventType, reason, message string) {
	a.cfg.Events.Event(pod, eventType, reason, message)
}

// containerEvent names its container, so that equal messages of two containers are not merged.
func (a *Agent) containerEvent(pod *corev1.Pod, name, eventType, reason, message string) {
	c := api.ContainerNamed(pod, name)
	if c == nil {
		a.event(pod, eventType, reason, message)
		return
	}
	list := "containers"
	for i := range pod.Spec.InitContainers {
		if name == pod.Spec.InitContainers[i].Name {
			list = "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if name == pod.Spec.EphemeralContainers[i].Name {
			list = "ephemeralContainers"
		}
	}
	a.cfg.Events.EventOn(corev1.ObjectReference{Kind: api.Pods.Name, APIVersion: api.Pods.APIVersion(), Namespace: pod.Namespace,
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.%s{%s}", list, name)},
		eventType, reason, message)
}
