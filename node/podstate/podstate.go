// Package podstate decides what to do about one pod. It is pure: Decide takes what is wanted, what is seen on
// the board and the time, and says what to do next, what to report and when to ask again. All effects are the
// worker's (package node), all of them idempotent, so a decision may be taken again at any time, also by a
// brain that has just been restarted and remembers nothing.
//
//	            +--> sandbox --> init containers and sidecars, in order --> main containers --+
//	pod bound --+                    | failed for good                        | all ended     |
//	            |                    v                                        v               |
//	            +---- stop ----> preStop, signal, wait, kill ----> final status ----> remove sandbox --> done
package podstate

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/runtime"
)

// Input is everything a decision depends on.
type Input struct {
	Pod  *corev1.Pod // as last read from the API
	Gone bool        // the object was removed (force delete): kill, clean up, report nothing (N-7.32)
	Stop *Stop       // somebody on the board wants it stopped
	// Closing: the board is going down. What runs is left alone until its turn to stop, what has ended is not started again.
	Closing bool
	// Later: the board is going down and is waited for. Of a pod that has ended the volumes are unmounted, and the rest is left
	// until this is over: it is in memory, and goes with the power.
	Later bool
	Seen  Seen
	Mem   Memory
	Now   time.Time
	// Believed says whether the clock is right, as far as anybody knows; nil: it is. It is asked only if that matters.
	Believed func() bool
	// HostIPs are the node's addresses, for status.hostIPs.
	HostIPs []string
}

// Stop says why a pod is stopped from the board's side: eviction, shutdown, preemption.
type Stop struct {
	Reason  string
	Message string
	Grace   *time.Duration // nil: the pod's own
	// Now ends the grace at once: no hook, no signal but SIGKILL.
	Now bool
	// Room means that the pod is stopped for the room its files take: they are deleted before its final status is
	// written, since a full disk may refuse that write.
	Room bool
	// At is when the stop was asked for. A container that ended before it did not end because of it.
	At time.Time
	// Disruption, when set, is the reason of a DisruptionTarget condition, with Says, or Message, as its words.
	Disruption string
	Says       string
}

// Joined is what holds when the same pod is asked to stop once more: the first to ask is why it ends, and its grace can
// only become shorter (N-7.26).
func (s Stop) Joined(later Stop) Stop {
	if later.Grace != nil && (s.Grace == nil || *later.Grace < *s.Grace) {
		s.Grace = later.Grace
	}
	s.Now = s.Now || later.Now
	s.Room = s.Room || later.Room
	return s
}

// Seen is the pod as it is on the board.
type Seen struct {
	Sandbox    bool     // namespaces, cgroup and network are there
	Standing   bool     // the engine holds a sandbox; after a restart, one that is still to be looked after
	IPs        []string // of the pod
	Containers []runtime.Status
	Images     map[string]Image // by container name
	// Pulling are the images on their way, by container name.
	Pulling map[string]string
	// Faults are failed attempts to do something, by container name; "" is the sandbox.
	Faults map[string]Fault
	// Health is what probes have found, by container ID, for containers that have one.
	Health map[string]Health
	// Hooks are lifecycle hooks that have come to their end, by HookKey.
	Hooks map[string]HookEnd
	// Messages are termination messages, by container ID.
	Messages map[string]string
	// Pulled are devices that were unplugged, by the ID of the container that is to begin anew for it.
	Pulled map[string]string
	// Unmounted: nothing runs, and none of its volumes is mounted any more.
	Unmounted bool
	// Emptied: nothing runs, and what its containers have written is deleted, their volumes too.
	Emptied bool
	// Removed: the sandbox and every container record have been removed and nothing is mounted.
	Removed bool
}

// Health is what the probes of one instance of a container have found.
type Health struct {
	Started bool   // the startup probe passed, or there is none
	Ready   bool   // so does the readiness probe, or there is none
	Failed  string // "liveness" or "startup": the probe because of which it has to be restarted
}

// The lifecycle hooks.
const (
	PostStart = "postStart"
	PreStop   = "preStop"
)

// HookKey names one run of a hook: that of one instance of a container.
func HookKey(hook, id string) string { return hook + "/" + id }

// HookEnd is how a hook ended.
type HookEnd struct{ Failed bool }

// Image is what is known of the image of a container.
type Image struct {
	Ref     string // as the pod named it
	ID      string // empty: not here
	Attempt int    // of the container it was looked up for: every attempt asks anew, as its pull policy says
}

// LabelImage is the container label that carries the image reference it was started with: a pod's image may be
// changed while it runs, and then the container is replaced (N-7.3).
const LabelImage = "ledge.image"

// LabelResize is the container label with the resources that the container was started with and that cannot change
// while it runs (resizePolicy RestartContainer). If the pod asks for others, the container is replaced, as for
// another image.
const LabelResize = "ledge.resize"

// ResizeKey is what LabelResize holds for a container.
func ResizeKey(pod *corev1.Pod, c *corev1.Container) string {
	var key []string
	c = api.WithPodLimits(c, pod)
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			request, limit := c.Resources.Requests[p.ResourceName], c.Resources.Limits[p.ResourceName]
			key = append(key, fmt.Sprintf("%s=%s/%s", p.ResourceName, request.String(), limit.String()))
		}
	}
	slices.Sort(key)
	return strings.Join(key, " ")
}

// LabelStopSignal is the container label that carries the image's stop signal. It travels with the container so
// that a restarted brain stops it the right way.
const LabelStopSignal = "ledge.stop-signal"

// Fault is a failed effect and what Kubernetes calls it.
type Fault struct {
	Reason  string // CreateContainerError, ErrImagePull ...
	Message string
	At      time.Time
	Count   int
}

// Memory is what the worker carries from one decision to the next. Losing it is harmless: a stop starts its
// grace again, back-offs start from the bottom (N-7.15).
type Memory struct {
	Active    Activity
	StopBegan time.Time
	Grace     time.Duration
	Ends      map[string]Ending  // by container ID
	Hooked    map[string]bool    // hooks that were begun, by HookKey
	Backoff   map[string]Backoff // by container name
	Told      map[string]int     // container name -> attempt whose back-off was told
	// Restarting means that all containers of the pod are being restarted. Reset has the statuses, by name, of the
	// containers that had run when it began; nil before the first such restart.
	Restarting bool
	Reset      map[string]corev1.ContainerStatus
}

// Activity is how long a pod has been active on the board. A clock may be set by years at any moment, so what counts is the time that was
// seen to pass; only what was before that is told by the clock, once it is believed.
type Activity struct {
	Since  time.Time     // it was first seen; zero: not yet
	Before time.Duration // and was active before that
	Told   bool          // Before is known
}

// Ending is the progress of ending one instance of a container.
type Ending struct {
	Began     time.Time // it was decided and told
	Signalled time.Time // SIGTERM or the stop signal was sent
	Killed    time.Time // SIGKILL was sent last
}

// Verb names an effect.
type Verb string

// The effects a decision may ask for.
const (
	Sandbox   Verb = "sandbox"   // namespaces, cgroup, network, volumes
	Resolve   Verb = "resolve"   // find the image of Container for attempt Attempt, or begin to pull it
	Start     Verb = "start"     // start attempt Attempt of Container
	Signal    Verb = "signal"    // send Sig to container ID
	RunHook   Verb = "hook"      // begin the hook Hook of container ID, which ends at Until at the latest
	Discard   Verb = "discard"   // forget the exited container ID
	Unmount   Verb = "unmount"   // unmount the volumes
	Empty     Verb = "empty"     // delete what containers have written, and the volumes
	Teardown  Verb = "teardown"  // remove containers, network, sandbox, volumes
	DeletePod Verb = "deletepod" // the object may go: DELETE with grace 0
)

// Action is one effect.
type Action struct {
	Verb      Verb
	Container string // name
	Attempt   int
	ID        string
	Sig       syscall.Signal
	Hook      string
	Until     time.Time  // zero: no end
	Event     *EventNote // to record when the effect is carried out
}

// EventNote is an event for the pod's owner to read.
type EventNote struct {
	Container             string
	Type, Reason, Message string
}

// Output is a decision.
type Output struct {
	Do     []Action
	Status corev1.PodStatus
	Mem    Memory
	Events []EventNote
	Probe  []string  // IDs of containers that may be probed: they run, and their postStart hook is done
	Ending bool      // the pod is on its way out: of its probes only readiness goes on (N-7.36)
	Wake   time.Time // ask again then at the latest; zero: nothing to wait for but events
	Done   bool      // the worker may end
	// Unheard: nothing of the pod runs, and all is done that may be before the API has heard of its end.
	Unheard bool
}

// Decide says what to do about the pod.
func Decide(in Input) Output {
	f := &facts{in: in, mem: in.Mem.clone(), views: viewsOf(in, in.Mem.Reset)}
	d := &decision{facts: f, waiting: waits{}}
	d.deadline()
	switch {
	case f.stopping():
		d.stop()
	case d.restartsAll():
		d.restartAll()
	default:
		d.run()
	}
	d.out.Ending = f.stopping() || f.ended()
	for _, v := range f.views.all() {
		if v.running() && f.begun(v) {
			d.out.Probe = append(d.out.Probe, v.latest.ID)
		}
	}
	d.out.Mem = f.mem
	d.out.Status = (&report{facts: f, waiting: d.waiting}).status()
	d.finish()
	return d.out
}

// facts is what is known of a pod, and what follows from it: what was seen, what is remembered, and how its containers are.
type facts struct {
	in    Input
	mem   Memory
	views views
}

// waits are the reasons of containers that cannot run yet, by name.
type waits map[string]corev1.ContainerStateWaiting

func (w waits) set(name, reason, message string) {
	w[name] = corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

// decision is one run of Decide: what it does, by the facts.
type decision struct {
	facts   *facts
	out     Output
	waiting waits
}

func (d *decision) do(a Action) { d.out.Do = append(d.out.Do, a) }

func (d *decision) wake(at time.Time) {
	if !at.IsZero() && (d.out.Wake.IsZero() || at.Before(d.out.Wake)) {
		d.out.Wake = at
	}
}

// finish takes the last steps of a pod that has ended: once its final status is in the API the sandbox goes,
// and once that is gone the object may (N-7.31).
func (d *decision) finish() {
	if d.facts.views.anyRunning() || len(d.out.Do) > 0 {
		return
	}
	pod := d.facts.in.Pod
	switch {
	case d.facts.in.Gone:
	case !terminal(d.out.Status.Phase):
		return
	case !terminal(pod.Status.Phase):
		// The final status must be committed before anything it describes is removed: records and logs.
		if s := d.facts.in.Stop; s != nil && s.Room && !d.facts.in.Seen.Emptied {
			d.remove(Empty)
			return
		}
		d.out.Unheard = true
		return
	}
	if d.facts.in.Later && d.facts.in.Seen.Unmounted && !d.facts.in.Gone {
		return
	}
	if !d.facts.in.Seen.Removed {
		verb := Teardown
		if d.facts.in.Later && !d.facts.in.Gone {
			verb = Unmount
		}
		d.remove(verb)
		return
	}
	if d.facts.in.Gone {
		d.out.Done = true
		return
	}
	if pod.DeletionTimestamp != nil {
		d.do(Action{Verb: DeletePod})
	}
}

// remove does what verb says, or waits to try it again.
func (d *decision) remove(verb Verb) {
	if f, ok := d.facts.in.Seen.Faults[""]; ok {
		at := f.At.Add(retryAfter(f.Count))
		d.wake(at)
		if d.facts.in.Now.Before(at) {
			return
		}
	}
	d.do(Action{Verb: verb})
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }
