package podstate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/runtime"
)

// beginsAgain has the end of a container with code 42 restart the whole pod.
func beginsAgain(c *corev1.Container) {
	never := corev1.ContainerRestartPolicyNever
	c.RestartPolicy = &never
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
}

// troupe is a pod with an init container, a sidecar and two main containers, of which "a" has such a rule.
func troupe(t *testing.T) *board {
	p := withInit(pod(corev1.RestartPolicyNever, "a", "b"), "i", "side")
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers[1].RestartPolicy = &always
	beginsAgain(&p.Spec.Containers[0])
	b := newBoard(t, p)
	b.exit["i"] = func(int) (time.Duration, int) { return time.Second, 0 }
	return b
}

// told is what the status says of every container: state, attempt, and why the one before ended.
func (b *board) told() string {
	var out []string
	for _, name := range []string{"i", "side", "a", "b"} {
		s := b.state(name)
		state := "running"
		switch {
		case s.State.Waiting != nil:
			state = s.State.Waiting.Reason
		case s.State.Terminated != nil:
			state = s.State.Terminated.Reason
		}
		last := ""
		if t := s.LastTerminationState.Terminated; t != nil {
			last = fmt.Sprintf("(%s %d)", t.Reason, t.ExitCode)
		}
		out = append(out, fmt.Sprintf("%s %s %d%s", name, state, s.RestartCount, last))
	}
	c := condition(b.in.Pod, corev1.AllContainersRestarting)
	return fmt.Sprintf("%s %s=%s: ", b.in.Pod.Status.Phase, c.Type, c.Status) + strings.Join(out, ", ")
}

// started are the containers in the order of their starts, since n.
func (b *board) started(n int) string {
	var out []string
	for _, l := range b.log[n:] {
		if name, ok := strings.CutPrefix(l, "start "); ok {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

const (
	troupeRuns  = "Running AllContainersRestarting=False: i Completed 0, side running 0, a running 0, b running 0"
	troupeAgain = "Running AllContainersRestarting=False: i Completed 1(Completed 0), side running 1(RestartingAllContainers 137), " +
		"a running 1(Error 42), b running 1(RestartingAllContainers 137)"
)

// run brings the pod to where all of it runs.
func (b *board) run(until string) {
	b.t.Helper()
	out := b.settle()
	for range 10 {
		if b.told() == until {
			return
		}
		b.next(out)
		out = b.settle()
	}
	b.t.Fatalf("%s\nwant %s\n%q", b.told(), until, b.log)
}

// TestRestartAll: one end has everything begin again, init containers first, whatever the policy; not a moment runs
// something of the old beside something of the new.
func TestRestartAll(t *testing.T) {
	b := troupe(t)
	b.run(troupeRuns)
	b.deaf["b"] = true // nobody is asked
	n := len(b.log)
	b.end("u1.a.0", 42)
	b.run(troupeAgain)
	if got := b.started(n); got != "i side a b" {
		t.Errorf("started %s", got)
	}
	if i := slices.Index(b.log[n:], "discard u1.a.0"); i < 0 ||
		slices.ContainsFunc(b.log[n+i+1:], func(l string) bool { return strings.HasPrefix(l, "discard") }) {
		t.Errorf("the one that began it is not the last to go: %q", b.log[n:])
	}
	for _, never := range []string{"sandbox", "teardown", "hook"} {
		if slices.ContainsFunc(b.log[n:], func(l string) bool { return strings.HasPrefix(l, never) }) {
			t.Errorf("%s: %q", never, b.log[n:])
		}
	}
	if c := condition(b.in.Pod, corev1.PodInitialized); c.Status != corev1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	// Any other end is what the policy says, and the pod ends as any other.
	b.end("u1.a.1", 41)
	b.end("u1.b.1", 0)
	for out := b.settle(); !b.in.Seen.Removed && b.next(out); {
		out = b.settle()
	}
	if b.in.Pod.Status.Phase != corev1.PodFailed {
		t.Errorf("at the end: %s", b.told())
	}
}

// TestRestartAllAnywhere: whoever ends so, and whatever a brain forgets or cannot tell meanwhile, the pod comes to the
// same end.
func TestRestartAllAnywhere(t *testing.T) {
	for steps := range 12 {
		for _, how := range []string{"forgets", "cannot tell", "loses the sandbox"} {
			b := troupe(t)
			b.run(troupeRuns)
			b.end("u1.a.0", 42)
			for range steps { // single steps, as a worker takes them
				out := Decide(b.in)
				b.in.Mem = out.Mem
				if how != "cannot tell" {
					b.in.Pod.Status = out.Status
				}
				for _, a := range out.Do {
					b.act(a)
				}
				b.in.Now = b.in.Now.Add(500 * time.Millisecond)
				b.expire()
			}
			if how != "cannot tell" {
				b.in.Mem = Memory{}
			}
			want := troupeAgain
			if how == "loses the sandbox" { // the board was switched off
				b.in.Seen, b.due = Seen{}, map[string]due{}
				for out := b.settle(); b.in.Pod.Status.Phase != corev1.PodRunning && b.next(out); {
					out = b.settle()
				}
				if a := b.state("a"); b.in.Pod.Status.Phase == corev1.PodRunning && a.RestartCount == 0 {
					t.Errorf("%s after %d steps: %s", how, steps, b.told())
				}
				continue
			}
			if b.run(want); b.in.Mem.Restarting {
				t.Errorf("%s after %d steps: still at it", how, steps)
			}
		}
	}
}

// TestRestartAllForgetsNobody: a brain that takes over in the middle tells whom the one before it killed from who ended by
// themselves.
func TestRestartAllForgetsNobody(t *testing.T) {
	for what, c := range map[string]struct {
		at   time.Duration // of b's end, from the moment all are restarted
		exit runtime.Exit
		want string
	}{
		"killed for it": {0, runtime.Exit{Code: 137, Signal: 9}, "RestartingAllContainers 137"},
		"killed before": {-2 * time.Second, runtime.Exit{Code: 137, Signal: 9}, "Error 137"},
		"out of memory": {0, runtime.Exit{Code: 137, Signal: 9, OOMKilled: true}, "OOMKilled 137"},
		"by itself":     {0, runtime.Exit{Code: 3}, "Error 3"},
	} {
		b := troupe(t)
		b.run(troupeRuns)
		b.end("u1.a.0", 42)
		out := Decide(b.in)
		b.in.Pod.Status = out.Status // told, and then the brain was gone
		for _, id := range []string{"u1.b.0", "u1.side.0"} {
			b.end(id, 137)
		}
		for i := range b.in.Seen.Containers {
			if s := &b.in.Seen.Containers[i]; s.ID == "u1.b.0" {
				s.Exit = &c.exit
				s.Exit.FinishedAt = b.in.Now.Add(c.at)
			}
		}
		b.in.Mem = Memory{}
		b.in.Now = b.in.Now.Add(time.Minute)
		b.run(strings.Replace(troupeAgain, "b running 1(RestartingAllContainers 137)", "b running 1("+c.want+")", 1))
		if t.Failed() {
			t.Fatal(what)
		}
	}
}

// TestRestartAllBySidecar: main containers that are killed for it are not the end of a pod that never restarts them.
func TestRestartAllBySidecar(t *testing.T) {
	b := troupe(t)
	b.in.Pod.Spec.Containers[0].RestartPolicyRules, b.in.Pod.Spec.InitContainers[1].RestartPolicyRules =
		nil, b.in.Pod.Spec.Containers[0].RestartPolicyRules
	b.run(troupeRuns)
	n := len(b.log)
	b.end("u1.side.0", 42)
	b.run("Running AllContainersRestarting=False: i Completed 1(Completed 0), side running 1(Error 42), " +
		"a running 1(RestartingAllContainers 137), b running 1(RestartingAllContainers 137)")
	if got := b.started(n); got != "i side a b" {
		t.Errorf("started %s", got)
	}
}

// TestRestartAllByInit: an init container can have it, too, and one that always ends so is held back as in a crash loop.
func TestRestartAllByInit(t *testing.T) { // N-7.14
	p := withInit(pod(corev1.RestartPolicyAlways, "a"), "i", "j")
	beginsAgain(&p.Spec.InitContainers[1])
	b := newBoard(t, p)
	b.exit["i"] = func(int) (time.Duration, int) { return time.Second, 0 }
	b.exit["j"] = func(n int) (time.Duration, int) {
		if n == 4 {
			return time.Second, 0
		}
		return time.Second, 42
	}
	began, out := b.in.Now, b.settle()
	for b.in.Pod.Status.Phase != corev1.PodRunning && b.next(out) {
		out = b.settle()
	}
	if got := b.started(0); got != "i j i j i j i j i j a" {
		t.Errorf("started %s", got)
	}
	// Two runs of a second each time, and 0, 10, 20 and 40 s from j's end to its next start, i running meanwhile.
	if took := b.in.Now.Sub(began); took < 70*time.Second || took > 90*time.Second {
		t.Errorf("took %s", took)
	}
	if !slices.ContainsFunc(b.events, func(e EventNote) bool { return e.Reason == "BackOff" && e.Container == "j" }) {
		t.Errorf("nobody was told: %+v", b.events)
	}
}

// TestRestartAllStopped: a pod that is deleted meanwhile ends, and one without such a rule has no such condition.
func TestRestartAllStopped(t *testing.T) {
	b := troupe(t)
	b.run(troupeRuns)
	b.end("u1.a.0", 42)
	out := Decide(b.in)
	b.in.Mem, b.in.Pod.Status = out.Mem, out.Status
	if c := condition(b.in.Pod, corev1.AllContainersRestarting); c.Status != corev1.ConditionTrue ||
		c.Reason != "RestartAllContainersStarted" {
		t.Errorf("%+v", c)
	}
	n := len(b.log)
	b.in.Pod.DeletionTimestamp = &metav1.Time{Time: b.in.Now}
	for out := b.settle(); !b.in.Gone && b.next(out); {
		out = b.settle()
	}
	if !b.in.Gone || b.started(n) != "" || b.in.Pod.Status.Phase != corev1.PodFailed {
		t.Errorf("%s %q", b.told(), b.log[n:])
	}
	plain := newBoard(t, pod(corev1.RestartPolicyNever, "a"))
	plain.settle()
	if has(&plain.in.Pod.Status, corev1.AllContainersRestarting) {
		t.Error("a condition for nothing")
	}
}
