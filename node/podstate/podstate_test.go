package podstate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// board is the smallest world a decision can act on: it carries out actions and moves time.
type board struct {
	t      *testing.T
	in     Input
	log    []string
	sent   []syscall.Signal
	exit   map[string]func(attempt int) (after time.Duration, code int) // by container; nil runs for ever
	deaf   map[string]bool                                              // ignores everything but SIGKILL
	due    map[string]due
	events []EventNote
	hook   map[string]hookPlay // by hook/container; others end well at once

}

// hookPlay is what a hook does.
type hookPlay struct {
	fails, hangs bool
}

type due struct {
	at   time.Time
	code int
}

func newBoard(t *testing.T, pod *corev1.Pod) *board {
	return &board{t: t, in: Input{Pod: pod, Now: time.Unix(1_000_000, 0), HostIPs: []string{"192.0.2.1"}},
		exit: map[string]func(int) (time.Duration, int){}, deaf: map[string]bool{}, due: map[string]due{}}
}

func pod(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u1"}}
	p.Spec.RestartPolicy = policy
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: n, Image: "img"})
	}
	return p
}

func withInit(p *corev1.Pod, names ...string) *corev1.Pod {
	for _, n := range names {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: n, Image: "img"})
	}
	return p
}

// settle decides and acts until nothing is left to do now. It fails if that never comes: Decide must reach a
// fixed point.
func (b *board) settle() Output {
	b.t.Helper()
	for range 100 {
		b.expire()
		out := Decide(b.in)
		same := equality.Semantic.DeepEqual(b.in.Pod.Status, out.Status)
		b.in.Mem = out.Mem
		b.events = append(b.events, out.Events...)
		for _, a := range out.Do {
			if a.Event != nil {
				b.events = append(b.events, *a.Event)
			}
		}
		b.in.Pod.Status = out.Status
		if len(out.Do) == 0 && same {
			return out
		}
		for _, a := range out.Do {
			b.act(a)
		}
	}
	b.t.Fatalf("no fixed point after 100 rounds: %v", b.log)
	return Output{}
}

func (b *board) act(a Action) {
	b.log = append(b.log, fmt.Sprintf("%s %s%s", a.Verb, a.Container, a.ID))
	switch a.Verb {
	case Sandbox:
		b.in.Seen.Sandbox, b.in.Seen.IPs, b.in.Seen.Removed = true, []string{"10.0.0.2"}, false
	case Resolve:
		if b.in.Seen.Images == nil {
			b.in.Seen.Images = map[string]Image{}
		}
		b.in.Seen.Images[a.Container] = Image{ID: "sha256:1", Ref: b.image(a.Container), Attempt: a.Attempt}
	case RunHook:
		play := b.hook[a.Hook+"/"+a.Container]
		if b.in.Seen.Hooks == nil {
			b.in.Seen.Hooks = map[string]HookEnd{}
		}
		if !play.hangs {
			b.in.Seen.Hooks[HookKey(a.Hook, a.ID)] = HookEnd{Failed: play.fails}
		}
	case Start:
		for _, c := range b.in.Seen.Containers {
			if c.Name == a.Container && (c.Phase == runtime.Running || c.Attempt >= a.Attempt) {
				b.t.Fatalf("attempt %d of %s is started beside %+v: %v", a.Attempt, a.Container, c, b.log)
			}
			if c.Name == a.Container && b.in.Closing {
				b.t.Fatalf("%s is restarted while the board goes down: %v", a.Container, b.log)
			}
		}
		id := fmt.Sprintf("u1.%s.%d", a.Container, a.Attempt)
		b.in.Seen.Containers = append(b.in.Seen.Containers, runtime.Status{ID: id, PodUID: "u1", Name: a.Container,
			Attempt: a.Attempt, Phase: runtime.Running, StartedAt: b.in.Now, Labels: map[string]string{LabelImage: b.image(a.Container)}})
		if f := b.exit[a.Container]; f != nil {
			after, code := f(a.Attempt)
			b.due[id] = due{b.in.Now.Add(after), code}
		}
	case Signal:
		name := a.Container
		b.sent = append(b.sent, a.Sig)
		if a.Sig == syscall.SIGKILL {
			b.end(a.ID, 137)
		} else if !b.deaf[name] {
			b.end(a.ID, 0)
		}
	case Discard:
		b.drop(a.ID)
	case Unmount:
		b.in.Seen.Unmounted = true
	case Empty:
		b.in.Seen.Emptied = true
	case Teardown:
		b.in.Seen = Seen{Unmounted: true, Removed: true}
	case DeletePod:
		b.in.Gone = true
	}
}

func (b *board) image(name string) string {
	for _, c := range slices.Concat(b.in.Pod.Spec.InitContainers, b.in.Pod.Spec.Containers) {
		if c.Name == name {
			return c.Image
		}
	}
	return "img"
}

func (b *board) end(id string, code int) {
	for i := range b.in.Seen.Containers {
		c := &b.in.Seen.Containers[i]
		if c.ID == id && c.Phase == runtime.Running {
			c.Phase, c.Exit = runtime.Exited, &runtime.Exit{Code: code, Signal: max(0, code-128), FinishedAt: b.in.Now}
		}
	}
	delete(b.due, id)
}

func (b *board) drop(id string) {
	kept := b.in.Seen.Containers[:0]
	for _, c := range b.in.Seen.Containers {
		if c.ID != id {
			kept = append(kept, c)
		}
	}
	b.in.Seen.Containers = kept
}

func (b *board) expire() {
	for id, d := range b.due {
		if !b.in.Now.Before(d.at) {
			b.end(id, d.code)
		}
	}
}

// next moves time to whatever comes first: an exit or the wake-up the decision asked for.
func (b *board) next(out Output) bool {
	at := out.Wake
	for _, d := range b.due {
		if at.IsZero() || d.at.Before(at) {
			at = d.at
		}
	}
	if at.IsZero() {
		return false
	}
	if at.After(b.in.Now) {
		b.in.Now = at
	}
	return true
}

func (b *board) state(name string) corev1.ContainerStatus {
	st := b.in.Pod.Status
	for _, s := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
		if s.Name == name {
			return s
		}
	}
	b.t.Fatalf("no status of %s", name)
	return corev1.ContainerStatus{}
}

func condition(p *corev1.Pod, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.PodCondition{}
}

func TestRunsToRunning(t *testing.T) {
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a", "b"))
	b.settle()
	st := b.in.Pod.Status
	if st.Phase != corev1.PodRunning || st.PodIP != "10.0.0.2" || st.HostIP != "192.0.2.1" {
		t.Fatalf("status %+v", st)
	}
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized,
		corev1.PodScheduled, corev1.PodReadyToStartContainers} { // N-7.11
		if condition(b.in.Pod, c).Status != corev1.ConditionTrue {
			t.Errorf("%s is not True", c)
		}
	}
}

// TestObservedGeneration: whoever changed a pod sees in its status, and in what of it was decided anew, that the board
// knows of the change.
func TestObservedGeneration(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, "a")
	p.Generation = 3
	b := newBoard(t, p)
	b.settle()
	ready := condition(b.in.Pod, corev1.PodReady)
	if g := b.in.Pod.Status.ObservedGeneration; g != 3 || ready.Status != corev1.ConditionTrue || ready.ObservedGeneration != 3 {
		t.Errorf("generation 3 runs: observed %d, Ready is %s of %d", g, ready.Status, ready.ObservedGeneration)
	}
	b.in.Pod = b.in.Pod.DeepCopy()
	b.in.Pod.Generation = 4
	b.settle()
	if g := b.in.Pod.Status.ObservedGeneration; g != 4 {
		t.Errorf("generation 4 was changed: observed %d", g)
	}
}

// N-7.14, N-7.15: the first restart is at once and arms 10 s, then 20, 40 ... 300; ten quiet minutes reset it.
func TestBackoff(t *testing.T) {
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.exit["a"] = func(int) (time.Duration, int) { return time.Second, 1 }
	var starts []time.Time
	var waits []time.Duration
	out := b.settle()
	for len(starts) < 9 {
		n := len(b.log)
		b.next(out)
		out = b.settle()
		for _, l := range b.log[n:] {
			if l == "start a" {
				starts = append(starts, b.in.Now)
			}
		}
	}
	for i := 1; i < len(starts); i++ {
		waits = append(waits, starts[i].Sub(starts[i-1])-time.Second)
	}
	want := []time.Duration{10, 20, 40, 80, 160, 300, 300, 300}
	for i := range want {
		if waits[i] != want[i]*time.Second {
			t.Fatalf("restart %d waited %v, want %vs (all %v)", i, waits[i], want[i].Nanoseconds(), waits)
		}
	}
	b.exit["a"] = func(int) (time.Duration, int) { return 601 * time.Second, 1 }
	for range 4 {
		b.next(out)
		out = b.settle()
	}
	if d := b.in.Mem.Backoff["a"].Delay; d != 10*time.Second {
		t.Fatalf("after a long run the back-off is %v, want 10s", d)
	}
}

func TestCrashLoopStatus(t *testing.T) { // N-7.13, N-7.14
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.exit["a"] = func(int) (time.Duration, int) { return time.Second, 3 }
	out := b.settle()
	for range 2 { // first restart at once, second waits
		b.next(out)
		out = b.settle()
	}
	s := b.state("a")
	if s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" ||
		s.State.Waiting.Message != "back-off 10s restarting failed container=a pod=p_ns(u1)" {
		t.Fatalf("state %+v", s.State)
	}
	if l := s.LastTerminationState.Terminated; l == nil || l.ExitCode != 3 || l.Reason != "Error" {
		t.Fatalf("last %+v", s.LastTerminationState)
	}
	if fmt.Sprint(b.events) != "[{a Warning BackOff Back-off restarting failed container a in pod p_ns(u1)}]" {
		t.Fatalf("events %v", b.events)
	}
	if s.RestartCount != 1 || b.in.Pod.Status.Phase != corev1.PodRunning {
		t.Fatalf("restarts %d phase %s", s.RestartCount, b.in.Pod.Status.Phase)
	}
}

func TestPhaseByPolicy(t *testing.T) { // N-7.8, N-7.9
	for _, tc := range []struct {
		policy corev1.RestartPolicy
		code   int
		want   corev1.PodPhase
	}{
		{corev1.RestartPolicyNever, 0, corev1.PodSucceeded},
		{corev1.RestartPolicyNever, 1, corev1.PodFailed},
		{corev1.RestartPolicyOnFailure, 0, corev1.PodSucceeded},
		{corev1.RestartPolicyOnFailure, 1, corev1.PodRunning},
		{corev1.RestartPolicyAlways, 0, corev1.PodRunning},
	} {
		b := newBoard(t, pod(tc.policy, "a"))
		b.exit["a"] = func(int) (time.Duration, int) { return time.Second, tc.code }
		b.next(b.settle())
		b.settle()
		if got := b.in.Pod.Status.Phase; got != tc.want {
			t.Errorf("%s exit %d: %s, want %s", tc.policy, tc.code, got, tc.want)
		}
		if terminal(tc.want) && !b.in.Seen.Removed {
			t.Errorf("%s exit %d: sandbox left behind", tc.policy, tc.code)
		}
	}
}

func TestInitOrder(t *testing.T) { // N-7.19
	b := newBoard(t, withInit(pod(corev1.RestartPolicyAlways, "main"), "i1", "i2"))
	ok := func(int) (time.Duration, int) { return time.Second, 0 }
	b.exit["i1"], b.exit["i2"] = ok, ok
	out := b.settle()
	for _, name := range []string{"i2", "main"} { // N-7.13: of those that wait for init, init containers are no exception
		if w := b.state(name).State.Waiting; w == nil || w.Reason != "PodInitializing" {
			t.Errorf("%s while i1 runs: %+v", name, b.state(name).State)
		}
	}
	if b.in.Pod.Status.Phase != corev1.PodPending {
		t.Fatalf("while init runs: %+v", b.in.Pod.Status)
	}
	for b.in.Pod.Status.Phase == corev1.PodPending && b.next(out) {
		out = b.settle()
	}
	var order []string
	for _, l := range b.log {
		if l[:5] == "start" {
			order = append(order, l[6:])
		}
	}
	if fmt.Sprint(order) != "[i1 i2 main]" {
		t.Fatalf("order %v", order)
	}
}

func TestInitFailsForGood(t *testing.T) {
	b := newBoard(t, withInit(pod(corev1.RestartPolicyNever, "main"), "i1"))
	b.exit["i1"] = func(int) (time.Duration, int) { return time.Second, 2 }
	b.next(b.settle())
	b.settle()
	if b.in.Pod.Status.Phase != corev1.PodFailed {
		t.Fatalf("phase %s", b.in.Pod.Status.Phase)
	}
}

// N-7.26, N-7.28, N-7.31: signal, wait the grace, kill, final status, teardown, and only then the object goes.
func TestDeleteOrder(t *testing.T) {
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.deaf["a"] = true
	b.settle()
	grace := int64(7)
	b.in.Pod.DeletionTimestamp, b.in.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: b.in.Now}, &grace
	n, began := len(b.log), b.in.Now
	out := b.settle()
	if terminal(b.in.Pod.Status.Phase) {
		t.Fatal("terminal while a container runs")
	}
	b.next(out)
	if got := b.in.Now.Sub(began); got != 7*time.Second {
		t.Fatalf("kill after %v, want 7s", got)
	}
	out = b.settle()
	want := "[signal au1.a.0 signal au1.a.0 teardown  deletepod ]"
	if got := fmt.Sprint(b.log[n:]); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if !out.Done || b.in.Pod.Status.Phase != corev1.PodFailed {
		t.Fatalf("done %v phase %s", out.Done, b.in.Pod.Status.Phase)
	}
}

func TestSecondDeleteShortens(t *testing.T) { // N-7.26
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.deaf["a"] = true
	b.settle()
	grace := int64(30)
	b.in.Pod.DeletionTimestamp, b.in.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: b.in.Now}, &grace
	b.settle()
	grace = 3
	out := b.settle()
	if d := out.Wake.Sub(b.in.Now); d != 3*time.Second {
		t.Fatalf("wakes after %v", d)
	}
	grace = 60
	if d := b.settle().Wake.Sub(b.in.Now); d != 3*time.Second {
		t.Fatalf("grace grew: wakes after %v", d)
	}
}

func TestForceDelete(t *testing.T) { // N-7.32: the object is gone, the processes must go too
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.deaf["a"] = true
	b.settle()
	b.in.Gone = true
	out := b.settle()
	for !out.Done && b.next(out) {
		out = b.settle()
	}
	if !out.Done || !b.in.Seen.Removed {
		t.Fatalf("left behind: %v", b.log)
	}
}

func TestStopGivesReason(t *testing.T) { // N-5.27, N-5.28
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.settle()
	g := 5 * time.Second
	b.in.Stop = &Stop{Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown.",
		Grace: &g, Disruption: "TerminationByKubelet"}
	b.settle()
	st := b.in.Pod.Status
	if st.Phase != corev1.PodFailed || st.Reason != "Terminated" || st.Message != b.in.Stop.Message {
		t.Fatalf("%+v", st)
	}
	if c := condition(b.in.Pod, corev1.DisruptionTarget); c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" {
		t.Fatalf("%+v", c)
	}
}

// TestLater: while a board that goes down is waited for, a pod that has ended only has its volumes unmounted, once its end is
// in the API. The rest follows when nobody waits any more, and at once for a pod whose object has gone.
func TestLater(t *testing.T) {
	began := func() *board {
		b := newBoard(t, pod(corev1.RestartPolicyAlways, "a", "b"))
		b.settle()
		b.log = nil
		b.in.Closing, b.in.Later = true, true
		b.in.Stop = &Stop{Reason: "Terminated", At: b.in.Now}
		return b
	}
	b := began()
	b.settle()
	want := []string{"signal au1.a.0", "signal bu1.b.0", "unmount "}
	if b.in.Pod.Status.Phase != corev1.PodFailed || !slices.Equal(b.log, want) {
		t.Errorf("%s after %q, want %q", b.in.Pod.Status.Phase, b.log, want)
	}
	told := b.in.Pod.Status.DeepCopy()
	b.in.Later = false
	b.settle()
	if want = append(want, "teardown "); !slices.Equal(b.log, want) || !equality.Semantic.DeepEqual(*told, b.in.Pod.Status) {
		t.Errorf("%q, want %q; %+v was %+v", b.log, want, b.in.Pod.Status, told)
	}
	b = began()
	b.in.Gone = true
	if out := b.settle(); !out.Done || !slices.Contains(b.log, "teardown ") {
		t.Errorf("its object has gone: %q", b.log)
	}
}

// TestRoom: where its files are what is wanted of a pod, they go when nothing runs in it any more, before its end is in the
// API; what tells of the end stays until it is.
func TestRoom(t *testing.T) {
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a", "b"))
	b.settle()
	verbs := func() (all []Verb) {
		for _, a := range Decide(b.in).Do {
			all = append(all, a.Verb)
		}
		return all
	}
	b.in.Stop = &Stop{Reason: "Evicted", Room: true, At: b.in.Now}
	b.end("u1.a.0", 143)
	if got := verbs(); slices.Contains(got, Empty) {
		t.Errorf("something still runs: %v", got)
	}
	b.end("u1.b.0", 143)
	for _, c := range []struct {
		room, emptied bool
		want          []Verb
	}{{true, false, []Verb{Empty}}, {true, true, nil}, {false, false, nil}} {
		b.in.Stop.Room, b.in.Seen.Emptied = c.room, c.emptied
		if got := verbs(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	b.in.Stop.Room, b.in.Seen.Emptied = true, false
	b.in.Seen.Faults = map[string]Fault{"": {At: b.in.Now, Count: 1}}
	if out := Decide(b.in); len(out.Do) > 0 || out.Wake.IsZero() {
		t.Errorf("it failed just now: %v, again at %v", out.Do, out.Wake)
	}
	b.in.Seen.Faults = nil
	b.log = nil
	b.settle()
	if want := []string{"empty ", "teardown "}; b.in.Pod.Status.Phase != corev1.PodFailed || !slices.Equal(b.log, want) {
		t.Errorf("%s after %q, want %q", b.in.Pod.Status.Phase, b.log, want)
	}
}

// TestStoppedHasItsReason: whatever a pod dies of once it was told to stop, that is why it ended. What ended by itself before
// keeps its own end.
func TestStoppedHasItsReason(t *testing.T) { // N-5.27, N-6.32, N-7.6
	const before, after = -time.Second, time.Second
	for _, tc := range []struct {
		name   string
		policy corev1.RestartPolicy
		ends   time.Duration // of the container, from when the pod is told to stop; 0: at its signal
		code   int
		phase  corev1.PodPhase
		reason string
	}{
		{"exits 0 at its signal", corev1.RestartPolicyNever, 0, 0, corev1.PodFailed, "Evicted"},
		{"the same, to be restarted", corev1.RestartPolicyAlways, 0, 0, corev1.PodFailed, "Evicted"},
		{"is done in its grace", corev1.RestartPolicyOnFailure, after, 0, corev1.PodFailed, "Evicted"},
		{"is killed by another", corev1.RestartPolicyNever, after, 137, corev1.PodFailed, "Evicted"},
		{"fails in its grace", corev1.RestartPolicyOnFailure, after, 1, corev1.PodFailed, "Evicted"},
		{"was killed before anybody saw", corev1.RestartPolicyNever, before, 137, corev1.PodFailed, "Evicted"},
		{"was done before anybody saw", corev1.RestartPolicyNever, before, 0, corev1.PodSucceeded, ""},
		{"was done once more", corev1.RestartPolicyAlways, before, 0, corev1.PodFailed, "Evicted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBoard(t, pod(tc.policy, "a"))
			b.settle()
			end := func() {
				c := &b.in.Seen.Containers[0]
				c.Phase, c.Exit = runtime.Exited, &runtime.Exit{Code: tc.code, FinishedAt: b.in.Now}
			}
			b.in.Now = b.in.Now.Add(time.Minute)
			if tc.ends < 0 {
				end()
				b.in.Now = b.in.Now.Add(-tc.ends)
			}
			b.in.Stop = &Stop{Reason: "Evicted", Message: "why", At: b.in.Now}
			b.deaf["a"] = true
			if tc.ends >= 0 {
				b.settle()
				b.in.Now = b.in.Now.Add(tc.ends)
				end()
			}
			b.settle()
			if st := b.in.Pod.Status; st.Phase != tc.phase || st.Reason != tc.reason || tc.reason != "" && st.Message != "why" {
				t.Errorf("%s %q %q", st.Phase, st.Reason, st.Message)
			}
		})
	}
}

// TestDoneInTime: a deadline that passes later takes nothing away from a job that was done, and one that exits well because of
// it was not.
func TestDoneInTime(t *testing.T) { // N-7.17
	for ended, want := range map[time.Duration]corev1.PodPhase{59 * time.Second: corev1.PodSucceeded, 61 * time.Second: corev1.PodFailed} {
		p := pod(corev1.RestartPolicyNever, "a")
		secs := int64(60)
		p.Spec.ActiveDeadlineSeconds = &secs
		b := newBoard(t, p)
		b.deaf["a"] = true
		b.settle()
		began := b.in.Now
		b.in.Now = began.Add(time.Minute)
		c := &b.in.Seen.Containers[0]
		if ended > time.Minute {
			b.settle()
		}
		c.Phase, c.Exit = runtime.Exited, &runtime.Exit{FinishedAt: began.Add(ended)}
		b.in.Now = began.Add(2 * time.Minute)
		b.settle()
		if st := b.in.Pod.Status; st.Phase != want || (st.Reason == DeadlineExceeded) != (want == corev1.PodFailed) {
			t.Errorf("ended after %v: %s %q", ended, st.Phase, st.Reason)
		}
	}
}

// TestStopJoined: who asks first says why; a grace only becomes shorter.
func TestStopJoined(t *testing.T) { // N-7.26
	long, short := 5*time.Second, time.Second
	for _, tc := range []struct{ first, later, want *time.Duration }{
		{nil, nil, nil}, {nil, &long, &long}, {&short, nil, &short}, {&long, &short, &short}, {&short, &long, &short},
	} {
		got := Stop{Reason: "Evicted", Message: "m", Grace: tc.first}.Joined(Stop{Reason: "Terminated", Grace: tc.later})
		if got.Reason != "Evicted" || got.Message != "m" || got.Grace != tc.want || got.Now {
			t.Errorf("%+v", got)
		}
	}
	if !(Stop{}).Joined(Stop{Now: true}).Now || !(Stop{Now: true}).Joined(Stop{}).Now {
		t.Error("who cannot wait does not become patient")
	}
}

// TestStopNow: when nobody can wait, there is no hook and no signal but SIGKILL, for the sidecars too, and what has begun
// politely ends there.
func TestStopNow(t *testing.T) { // beyond N-7.29
	grace := 5 * time.Second
	for _, asked := range []bool{false, true} {
		p := pod(corev1.RestartPolicyAlways, "a", "s")
		hooks(p, "a")
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[1:], p.Spec.Containers[:1]
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers[0].RestartPolicy = &always
		b := newBoard(t, p)
		b.hook = map[string]hookPlay{"preStop/a": {hangs: true}}
		b.deaf["a"], b.deaf["s"] = true, true
		for len(b.in.Seen.Containers) < 2 {
			b.next(b.settle())
		}
		b.hook["preStop/a"] = hookPlay{hangs: true}
		if asked {
			b.in.Stop = &Stop{Reason: "Evicted", Grace: &grace}
			b.settle()
			b.in.Now = b.in.Now.Add(time.Second)
		}
		since := len(b.log)
		b.in.Stop = &Stop{Reason: "Evicted", Grace: &grace, Now: true}
		b.settle()
		if p.Status.Phase != corev1.PodFailed || !slices.Equal(b.sent, []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL}) ||
			strings.Contains(strings.Join(b.log[since:], " "), "hook") {
			t.Errorf("asked before: %t; %s, sent %v, %v", asked, p.Status.Phase, b.sent, b.log[since:])
		}
	}
}

func TestDeadline(t *testing.T) { // N-7.17
	p := pod(corev1.RestartPolicyAlways, "a")
	secs := int64(60)
	p.Spec.ActiveDeadlineSeconds = &secs
	b := newBoard(t, p)
	began := b.in.Now
	out := b.settle()
	b.next(out)
	b.settle()
	if b.events[0] != (EventNote{"", "Normal", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"}) {
		t.Errorf("events %v", b.events)
	}
	if b.in.Now.Sub(began) != time.Minute || b.in.Pod.Status.Reason != DeadlineExceeded {
		t.Fatalf("after %v: %+v", b.in.Now.Sub(began), b.in.Pod.Status)
	}
}

// TestDeadlineAndClock: whoever sets the clock neither ends a pod early nor has it go on for ever; after a restart of the brain what was
// before it is told by a clock that is believed, and not by one that was never set.
func TestDeadlineAndClock(t *testing.T) { // N-7.17
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		began   time.Time     // of the pod's status; zero: it begins here
		passed  time.Duration // that was seen
		clock   time.Duration // set by
		doubted bool
		ends    bool
	}{
		{"in time", time.Time{}, 59 * time.Second, 0, false, false},
		{"too old", time.Time{}, 61 * time.Second, 0, false, true},
		{"set to the future", time.Time{}, 59 * time.Second, 50 * 365 * 24 * time.Hour, false, false},
		{"set to the past", time.Time{}, 61 * time.Second, -10 * time.Hour, false, true},
		{"begun before a restart", noon.Add(-59 * time.Second), 2 * time.Second, 0, false, true},
		{"begun before a restart, young", noon.Add(-50 * time.Second), 2 * time.Second, 0, false, false},
		{"by a clock that is not believed", noon.Add(-time.Hour), 59 * time.Second, 0, true, false},
		{"by one that is not, but old enough", noon.Add(-time.Hour), 61 * time.Second, 0, true, true},
		{"begun when no clock was set", time.Unix(60, 0), 59 * time.Second, 0, false, false},
		{"begun when none was set, old enough", time.Unix(60, 0), 61 * time.Second, 0, false, true},
		{"begun in what is now the future", noon.Add(time.Hour), 61 * time.Second, 0, false, true},
	} {
		secs := int64(60)
		p := pod(corev1.RestartPolicyAlways, "a")
		p.Spec.ActiveDeadlineSeconds = &secs
		if !c.began.IsZero() {
			p.Status.StartTime = &metav1.Time{Time: c.began}
		}
		start := time.Now() // with what a clock that is set does not touch
		in := Input{Pod: p, Now: start.Add(0), Believed: func() bool { return !c.doubted }}
		if p.Status.StartTime != nil {
			p.Status.StartTime.Time = c.began.Add(start.Sub(noon)).Truncate(0)
			if c.began.Year() < 2000 {
				p.Status.StartTime.Time = c.began
			}
		}
		in.Mem = Decide(in).Mem
		if p.Status.StartTime == nil {
			p.Status.StartTime = &metav1.Time{Time: start.Add(-c.clock).Truncate(time.Second)} // as a clock sees it that was set by that
		}
		in.Now = start.Add(c.passed)
		out := Decide(in)
		if ends := out.Status.Reason == DeadlineExceeded || len(out.Events) > 0 && out.Events[0].Reason == DeadlineExceeded; ends != c.ends {
			t.Errorf("%s: ends %v, want %v", c.name, ends, c.ends)
		}
	}
}

// N-7.18: after a boot nothing of the pod is left on the board; restart counts go on.
func TestReboot(t *testing.T) {
	for _, tc := range []struct {
		policy corev1.RestartPolicy
		want   corev1.PodPhase
	}{{corev1.RestartPolicyAlways, corev1.PodRunning}, {corev1.RestartPolicyNever, corev1.PodFailed}} {
		b := newBoard(t, withInit(pod(tc.policy, "a"), "i"))
		b.exit["i"] = func(int) (time.Duration, int) { return time.Second, 0 }
		b.next(b.settle())
		b.settle()
		if b.in.Pod.Status.Phase != corev1.PodRunning {
			t.Fatalf("before: %s", b.in.Pod.Status.Phase)
		}
		b.in.Seen, b.in.Mem, b.log = Seen{}, Memory{}, nil
		for range 4 {
			b.next(b.settle())
		}
		if got := b.in.Pod.Status.Phase; got != tc.want {
			t.Fatalf("%s: %s, want %s (%v)", tc.policy, got, tc.want, b.log)
		}
		s := b.state("a")
		if tc.want == corev1.PodRunning {
			if s.RestartCount != 1 || s.LastTerminationState.Terminated == nil ||
				s.LastTerminationState.Terminated.Reason != "ContainerStatusUnknown" {
				t.Fatalf("%+v %v %v", s, b.log, b.in.Pod.Status.Phase)
			}
			if b.log[1] != "resolve i" {
				t.Fatalf("init containers did not run again: %v", b.log)
			}
		} else if s.State.Terminated == nil || s.State.Terminated.ExitCode != 137 {
			t.Fatalf("%+v", s)
		}
	}
}

func TestFaultsAreReportedAndRetried(t *testing.T) { // N-7.13, N-7.16
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.in.Seen.Sandbox = true
	b.in.Seen.Faults = map[string]Fault{"a": {Reason: "ErrImagePull", Message: "no such image", At: b.in.Now, Count: 3}}
	out := b.settle()
	if w := b.state("a").State.Waiting; w == nil || w.Reason != "ErrImagePull" {
		t.Fatalf("%+v", b.state("a").State)
	}
	if out.Wake.Sub(b.in.Now) != 10*time.Second {
		t.Fatalf("wakes after %v", out.Wake.Sub(b.in.Now))
	}
	b.in.Now = b.in.Now.Add(10 * time.Second)
	out = b.settle()
	if w := b.state("a").State.Waiting; w == nil || w.Reason != "ImagePullBackOff" ||
		w.Message != `Back-off pulling image "img": ErrImagePull: no such image` {
		t.Fatalf("%+v", b.state("a").State)
	}
	if out.Wake.Sub(b.in.Now) != 30*time.Second {
		t.Fatalf("wakes after %v", out.Wake.Sub(b.in.Now))
	}
	if want := (EventNote{"a", corev1.EventTypeNormal, "BackOff", `Back-off pulling image "img"`}); len(b.events) != 2 || b.events[0] != want {
		t.Errorf("told %+v", b.events)
	}
}

func TestPullBackOff(t *testing.T) { // N-7.16
	var got []time.Duration
	for n := range 8 {
		got = append(got, pullAgainAfter(n+1)/time.Second)
	}
	if want := []time.Duration{10, 20, 40, 80, 160, 300, 300, 300}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// While an image is on its way nothing else is done for its container, and other containers go on.
func TestPulling(t *testing.T) {
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a", "b"))
	b.in.Seen.Pulling = map[string]string{"a": b.image("a")}
	b.settle()
	if s := b.state("a").State; s.Waiting == nil || s.Waiting.Reason != "ContainerCreating" {
		t.Errorf("%+v", s)
	}
	if s := b.state("b").State; s.Running == nil {
		t.Errorf("%+v", s)
	}
	b.in.Seen.Pulling = map[string]string{"a": "what it was before"}
	b.settle()
	if s := b.state("a").State; s.Running == nil {
		t.Errorf("%+v", s)
	}
}

func TestChangedImageReplacesTheContainer(t *testing.T) { // N-7.3
	b := newBoard(t, pod(corev1.RestartPolicyNever, "a", "b"))
	b.settle()
	b.in.Pod.Spec.Containers[0].Image = "other"
	n := len(b.log)
	b.settle()
	if got := fmt.Sprint(b.log[n:]); got != "[signal au1.a.0 resolve a start a]" {
		t.Fatal(got)
	}
	if s := b.state("a"); s.RestartCount != 1 || s.State.Running == nil || b.in.Pod.Status.Phase != corev1.PodRunning {
		t.Fatalf("%+v", s)
	}
	if s := b.state("b"); s.RestartCount != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestOneDeadInstanceIsKept(t *testing.T) { // N-6.24
	b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
	b.exit["a"] = func(int) (time.Duration, int) { return time.Second, 1 }
	out := b.settle()
	for range 12 {
		b.next(out)
		out = b.settle()
	}
	if n := len(b.in.Seen.Containers); n != 2 {
		t.Fatalf("%d records, want 2", n)
	}
}

// Whatever happens in whatever order, the machine settles, a terminal phase never changes, nothing starts while
// stopping, and a deleted pod ends with nothing behind.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(testrun.Rounds(400)) {
		r := rand.New(rand.NewPCG(seed, 1))
		policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
		p := pod(policies[r.IntN(3)], "a", "b")
		if r.IntN(2) == 0 {
			withInit(p, "i")
		}
		b := newBoard(t, p)
		for _, n := range []string{"a", "b", "i"} {
			if n == "i" || r.IntN(2) == 0 {
				b.exit[n] = func(int) (time.Duration, int) { return time.Duration(r.IntN(30)) * time.Second, r.IntN(2) }
			}
			b.deaf[n] = r.IntN(3) == 0
		}
		life(t, seed, b, r)
	}
}

func life(t *testing.T, seed uint64, b *board, r *rand.Rand) {
	t.Helper()
	var last corev1.PodPhase
	for step := range 40 {
		out := b.settle()
		phase := b.in.Pod.Status.Phase
		if terminal(last) && phase != last {
			t.Fatalf("seed %d: phase %s after %s", seed, phase, last)
		}
		last = phase
		if terminal(phase) && !b.in.Seen.Removed {
			t.Fatalf("seed %d: terminal but not removed", seed)
		}
		switch {
		case step == 30:
			g := int64(r.IntN(20))
			b.in.Pod.DeletionTimestamp, b.in.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: b.in.Now}, &g
			b.log = nil
		case r.IntN(12) == 0:
			b.in.Mem = Memory{} // the brain restarted
		case r.IntN(12) == 0:
			b.in.Closing = !b.in.Closing
		case r.IntN(15) == 0 && !b.in.Gone:
			b.in.Seen, b.in.Mem, b.due = Seen{}, Memory{}, map[string]due{} // the board rebooted
		default:
			if !b.next(out) {
				b.in.Now = b.in.Now.Add(time.Second)
			}
		}
		if step > 30 {
			for _, l := range b.log {
				if l[:5] == "start" {
					t.Fatalf("seed %d: started while stopping: %v", seed, b.log)
				}
			}
		}
	}
	out := b.settle()
	for range 20 {
		if out.Done {
			return
		}
		b.in.Now = b.in.Now.Add(10 * time.Second)
		out = b.settle()
	}
	t.Fatalf("seed %d: never done: %v %+v", seed, b.log, b.in.Seen)
}

func TestParseSignal(t *testing.T) {
	for s, want := range map[string]syscall.Signal{"SIGTERM": 15, "TERM": 15, "quit": 3, "9": 9, "SIGRTMIN+3": 37, "SIGRTMIN": 34} {
		if got, ok := ParseSignal(s); !ok || got != want {
			t.Errorf("%s: %v %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "SIGNOPE", "0", "65", "SIGRTMIN+99"} {
		if got, ok := ParseSignal(s); ok {
			t.Errorf("%q accepted as %v", s, got)
		}
	}
}

// TestNeverTheirTurn: of a pod that is ended while one container waits for its image, those whose turn had not come go on
// waiting, as on Kubernetes. The others have failed, for all anyone knows.
func TestNeverTheirTurn(t *testing.T) {
	const unknown = "ContainerStatusUnknown"
	for name, c := range map[string]struct {
		init  []string
		stuck string
		want  []string // of each container: why it ended; "" waits
	}{
		"no init containers":       {nil, "main", []string{unknown}},
		"at the first of them":     {[]string{"i1", "i2"}, "i1", []string{unknown, "", ""}},
		"at another":               {[]string{"i1", "i2", "i3"}, "i2", []string{"Completed", "", "", ""}},
		"when init has come about": {[]string{"i1"}, "main", []string{"Completed", unknown}},
	} {
		b := newBoard(t, withInit(pod(corev1.RestartPolicyAlways, "main"), c.init...))
		for _, i := range c.init {
			b.exit[i] = func(int) (time.Duration, int) { return time.Second, 0 }
		}
		b.in.Seen.Pulling = map[string]string{c.stuck: b.image(c.stuck)}
		for out := b.settle(); b.next(out); {
			out = b.settle()
		}
		b.in.Pod.DeletionTimestamp = &metav1.Time{Time: b.in.Now}
		b.settle()
		var got []string
		for _, name := range append(c.init, "main") {
			st := b.state(name).State
			if st.Waiting == nil && st.Terminated == nil {
				t.Fatalf("%s: %s is %+v", name, name, st)
			}
			if st.Terminated == nil {
				st.Terminated = &corev1.ContainerStateTerminated{}
			}
			got = append(got, st.Terminated.Reason)
		}
		if !slices.Equal(got, c.want) || b.in.Pod.Status.Phase != corev1.PodFailed || !b.in.Gone {
			t.Errorf("%s: %s, %q, want %q", name, b.in.Pod.Status.Phase, got, c.want)
		}
	}
}
