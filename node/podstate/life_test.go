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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/internal/testrun"
)

func always() *corev1.ContainerRestartPolicy {
	p := corev1.ContainerRestartPolicyAlways
	return &p
}

// withSidecars puts sidecars, and init containers (named i...), before the main ones.
func withSidecars(p *corev1.Pod, names ...string) *corev1.Pod {
	withInit(p, names...)
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; !strings.HasPrefix(c.Name, "i") {
			c.RestartPolicy = always()
		}
	}
	return p
}

func container(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// feels sets what the probes of a running container have found.
func (b *board) feels(name string, h Health) {
	if b.in.Seen.Health == nil {
		b.in.Seen.Health = map[string]Health{}
	}
	for _, c := range b.in.Seen.Containers {
		if c.Name == name && c.Exit == nil {
			b.in.Seen.Health[c.ID] = h
		}
	}
}

func (b *board) delete(grace int64) {
	b.in.Pod.DeletionTimestamp, b.in.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: b.in.Now}, &grace
	b.log = nil
}

// verbs are the logged actions of some kinds.
func (b *board) verbs(kinds ...string) string {
	var out []string
	for _, l := range b.log {
		if verb, what, _ := strings.Cut(l, " "); slices.Contains(kinds, verb) {
			out = append(out, verb+" "+strings.TrimSpace(what))
		}
	}
	return strings.Join(out, ", ")
}

// TestSidecarOrder: each step begins when the one before has started, which is when its startup probe has passed (N-7.20).
func TestSidecarOrder(t *testing.T) {
	p := withSidecars(pod(corev1.RestartPolicyNever, "main"), "s1", "i1", "s2")
	container(p, "s1").StartupProbe = &corev1.Probe{}
	b := newBoard(t, p)
	b.exit["i1"] = func(int) (time.Duration, int) { return time.Second, 0 }
	b.settle()
	if got := b.verbs("start"); got != "start s1" {
		t.Fatalf("before the startup probe passes: %s", got)
	}
	if c := condition(p, corev1.PodInitialized); c.Message != "containers with incomplete status: [s1 i1 s2]" ||
		p.Status.Phase != corev1.PodPending {
		t.Errorf("%+v %s", c, p.Status.Phase)
	}
	b.feels("s1", Health{Started: true, Ready: true})
	out := b.settle()
	if got := b.verbs("start"); got != "start s1, start i1" {
		t.Fatalf("after it has passed: %s", got)
	}
	b.next(out)
	b.settle()
	if got := b.verbs("start"); got != "start s1, start i1, start s2, start main" || p.Status.Phase != corev1.PodRunning {
		t.Fatalf("%s, phase %s", got, p.Status.Phase)
	}
	// A sidecar that is not ready keeps the pod from being ready.
	if c := condition(p, corev1.PodReady); c.Status != corev1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	container(p, "s2").ReadinessProbe = &corev1.Probe{}
	b.settle()
	if c := condition(p, corev1.ContainersReady); c.Message != "containers with unready status: [s2]" {
		t.Errorf("%+v", c)
	}
}

// TestSidecarRestarts: one that ends comes back, also in a pod that never restarts, and holds up nobody (N-7.20).
func TestSidecarRestarts(t *testing.T) {
	p := withSidecars(pod(corev1.RestartPolicyNever, "main"), "s1", "i1")
	b := newBoard(t, p)
	b.exit["i1"] = func(int) (time.Duration, int) { return 5 * time.Second, 0 }
	b.exit["s1"] = func(int) (time.Duration, int) { return 3 * time.Second, 0 }
	out := b.settle()
	for range 6 {
		b.next(out)
		out = b.settle()
	}
	if got := b.verbs("start"); got != "start s1, start i1, start s1, start main, start s1, start s1" {
		t.Errorf("%s", got)
	}
	if s := b.state("s1"); s.RestartCount != 3 || p.Status.Phase != corev1.PodRunning {
		t.Errorf("%+v", s)
	}
}

// TestSidecarsEndLast: when the main containers are done the sidecars are stopped, last one first, and how they end does
// not count (N-7.21, N-7.22).
func TestSidecarsEndLast(t *testing.T) {
	p := withSidecars(pod(corev1.RestartPolicyNever, "main"), "s1", "s2")
	b := newBoard(t, p)
	b.exit["main"] = func(int) (time.Duration, int) { return 5 * time.Second, 0 }
	b.deaf["s2"] = true
	b.next(b.settle())
	out := b.settle()
	if got := b.verbs("signal"); got != "signal s2u1.s2.0" || p.Status.Phase != corev1.PodRunning {
		t.Fatalf("%s, phase %s", got, p.Status.Phase)
	}
	began := b.in.Now
	b.next(out)
	out = b.settle()
	for !b.in.Seen.Removed && b.next(out) {
		out = b.settle()
	}
	if p.Status.Phase != corev1.PodSucceeded || b.in.Now.Sub(began) < 30*time.Second || b.in.Now.Sub(began) > 32*time.Second {
		t.Fatalf("phase %s after %s: %v", p.Status.Phase, b.in.Now.Sub(began), b.log)
	}
}

// TestStoppedSidecar: a pod that has done its work says all the same that a shutdown stopped what was left of it (N-5.27). One whose
// sidecars had ended before says nothing.
func TestStoppedSidecar(t *testing.T) {
	for _, late := range []bool{true, false} {
		p := withSidecars(pod(corev1.RestartPolicyNever, "main"), "side")
		b := newBoard(t, p)
		b.deaf["side"] = true
		b.settle()
		b.end(b.in.Seen.Containers[1].ID, 0)
		b.settle()
		if !late {
			b.end(b.in.Seen.Containers[0].ID, 0)
		}
		b.in.Now = b.in.Now.Add(time.Second)
		b.in.Stop = &Stop{Reason: "Terminated", Message: "why", Disruption: "TerminationByKubelet", At: b.in.Now}
		b.settle()
		if late {
			b.in.Now = b.in.Now.Add(time.Second)
			b.end(b.in.Seen.Containers[0].ID, 137)
			b.settle()
		}
		if st := p.Status; st.Phase != corev1.PodSucceeded || (st.Reason == "Terminated" && st.Message == "why") != late || !late &&
			st.Reason != "" {
			t.Errorf("late %v: %s %q %q", late, st.Phase, st.Reason, st.Message)
		}
	}
}

// TestStopOrder: main containers together, then sidecars backwards, one grace for all (N-7.22).
func TestStopOrder(t *testing.T) {
	p := withSidecars(pod(corev1.RestartPolicyAlways, "a", "b"), "s1", "s2")
	b := newBoard(t, p)
	b.settle()
	b.deaf["b"] = true
	b.delete(10)
	began := b.in.Now
	out := b.settle()
	if got := b.verbs("signal"); got != "signal au1.a.0, signal bu1.b.0" {
		t.Fatalf("first %s", got)
	}
	b.next(out) // the grace is over: nobody waits any more
	out = b.settle()
	if b.in.Now.Sub(began) != 10*time.Second ||
		!strings.HasPrefix(b.verbs("signal"), "signal au1.a.0, signal bu1.b.0, signal bu1.b.0, signal s2u1.s2.0") || !out.Done {
		t.Fatalf("after %s: %s", b.in.Now.Sub(began), b.verbs("signal"))
	}
	var said []string // all at once, as on Kubernetes
	for _, e := range b.events {
		said = append(said, e.Reason+" "+e.Message)
	}
	slices.Sort(said)
	if got := strings.Join(said, ", "); got != "Killing Stopping container a, Killing Stopping container b, Killing Stopping container s1, Killing Stopping container s2" {
		t.Errorf("events: %s", got)
	}
}

// TestLivenessKills: a container that a probe has given up is ended with its grace and comes back by its policy
// (N-7.30, N-7.35).
func TestLivenessKills(t *testing.T) {
	grace := int64(3)
	for _, tc := range []struct {
		policy corev1.RestartPolicy
		failed string
		own    *int64
		says   string
		after  time.Duration
		phase  corev1.PodPhase
	}{
		{corev1.RestartPolicyAlways, "liveness", nil, "Container a failed liveness probe, will be restarted", 30 * time.Second,
			corev1.PodRunning},
		{corev1.RestartPolicyOnFailure, "startup", &grace, "Container a failed startup probe, will be restarted", 3 * time.Second,
			corev1.PodRunning},
		{corev1.RestartPolicyNever, "liveness", &grace, "Container a failed liveness probe", 3 * time.Second, corev1.PodFailed},
	} {
		p := pod(tc.policy, "a")
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{TerminationGracePeriodSeconds: tc.own}
		p.Spec.Containers[0].StartupProbe = &corev1.Probe{TerminationGracePeriodSeconds: tc.own}
		b := newBoard(t, p)
		b.deaf["a"] = true
		b.settle()
		began := b.in.Now
		b.feels("a", Health{Failed: tc.failed})
		out := b.settle()
		if len(b.events) != 1 || b.events[0].Message != tc.says || b.events[0].Reason != "Killing" {
			t.Errorf("%s: events %v", tc.says, b.events)
		}
		b.next(out)
		b.settle()
		if p.Status.Phase != tc.phase || b.in.Now.Sub(began) != tc.after {
			t.Errorf("%s: %s after %s", tc.says, p.Status.Phase, b.in.Now.Sub(began))
		}
		if tc.phase == corev1.PodRunning && (b.state("a").RestartCount != 1 || b.state("a").LastTerminationState.Terminated.ExitCode != 137) {
			t.Errorf("%s: %+v", tc.says, b.state("a"))
		}
	}
}

// TestSignalsSent: a container gets the stop signal that it was started with, SIGTERM if it has none, and SIGKILL when its
// grace is over (N-7.28).
func TestSignalsSent(t *testing.T) {
	for label, want := range map[string]syscall.Signal{"SIGQUIT": syscall.SIGQUIT, "SIGRTMIN+3": 37, "": syscall.SIGTERM,
		"nonsense": syscall.SIGTERM} {
		b := newBoard(t, pod(corev1.RestartPolicyAlways, "a"))
		b.deaf["a"] = true
		b.settle()
		b.in.Seen.Containers[0].Labels[LabelStopSignal] = label
		b.delete(5)
		b.next(b.settle())
		b.settle()
		if !slices.Equal(b.sent, []syscall.Signal{want, syscall.SIGKILL}) {
			t.Errorf("%q: %v", label, b.sent)
		}
	}
}

// TestClosing: while the board goes down nothing is restarted, or killed to be; if it stays on after all, all of it is due
// (N-5.41).
func TestClosing(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, "a", "b", "c")
	p.Spec.Containers[1].LivenessProbe = &corev1.Probe{}
	b := newBoard(t, p)
	b.settle()
	b.in.Closing = true
	b.end("u1.a.0", 1)
	b.feels("b", Health{Failed: "liveness"})
	p.Spec.Containers[2].Image = "other"
	since := len(b.log)
	for range 3 {
		b.settle()
		b.in.Now = b.in.Now.Add(time.Minute)
	}
	if p.Status.Phase != corev1.PodRunning || b.state("a").State.Terminated == nil || len(b.log) > since || len(b.events) > 0 {
		t.Errorf("%s, %+v, %v, %v", p.Status.Phase, b.state("a").State, b.log[since:], b.events)
	}
	b.in.Closing = false
	b.settle()
	for _, name := range []string{"a", "b", "c"} {
		if s := b.state(name); s.State.Running == nil || s.RestartCount != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	// Nor does a pod that would begin again.
	b = troupe(t)
	b.next(b.settle())
	b.settle()
	b.in.Closing = true
	b.end("u1.a.0", 42)
	since = len(b.log)
	b.settle()
	if len(b.log) > since || b.state("b").State.Running == nil {
		t.Errorf("%v, %+v", b.log[since:], b.state("b"))
	}
	b.in.Closing = false
	b.settle()
	if b.state("b").RestartCount != 1 {
		t.Errorf("%v", b.log[since:])
	}
}

// TestReadiness: started and ready are what the probes say (N-7.12, N-7.34).
func TestReadiness(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, "a")
	p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].StartupProbe = &corev1.Probe{}, &corev1.Probe{}
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
	b := newBoard(t, p)
	for _, tc := range []struct {
		health         Health
		gate           corev1.ConditionStatus
		started, ready bool
		reason, says   string
	}{
		{Health{}, "", false, false, "ContainersNotReady", "containers with unready status: [a]"},
		{Health{Started: true}, "", true, false, "ContainersNotReady", "containers with unready status: [a]"},
		{Health{Started: true, Ready: true}, "", true, true, "ReadinessGatesNotReady",
			`corresponding condition of pod readiness gate "example.com/lb" does not exist.`},
		{Health{Started: true, Ready: true}, "False", true, true, "ReadinessGatesNotReady",
			`the status of pod readiness gate "example.com/lb" is not "True", but False`},
		{Health{Started: true, Ready: true}, "True", true, true, "", ""},
	} {
		b.settle()
		b.feels("a", tc.health)
		if tc.gate != "" {
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "example.com/lb" })
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/lb", Status: tc.gate})
		}
		out := b.settle()
		s, c := b.state("a"), condition(p, corev1.PodReady)
		if *s.Started != tc.started || s.Ready != tc.ready || c.Reason != tc.reason || c.Message != tc.says ||
			(c.Status == "True") != (tc.reason == "") {
			t.Errorf("%+v: started %v ready %v, %+v", tc.health, *s.Started, s.Ready, c)
		}
		if fmt.Sprint(out.Probe) != "[u1.a.0]" || out.Ending {
			t.Errorf("to probe: %v %v", out.Probe, out.Ending)
		}
	}
	b.delete(10)
	b.deaf["a"] = true
	if out := b.settle(); !out.Ending || len(out.Probe) != 1 { // N-7.36: readiness goes on
		t.Errorf("while it ends: %v %v", out.Probe, out.Ending)
	}
}

func hooks(p *corev1.Pod, name string) {
	container(p, name).Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}, PreStop: &corev1.LifecycleHandler{}}
}

// TestPostStart: until its hook is done a container is not shown as running nor probed; a hook that fails ends it.
func TestPostStart(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, "a")
	hooks(p, "a")
	b := newBoard(t, p)
	b.hook = map[string]hookPlay{"postStart/a": {hangs: true}}
	out := b.settle()
	if w := b.state("a").State.Waiting; w == nil || w.Reason != "ContainerCreating" || p.Status.Phase != corev1.PodPending ||
		len(out.Probe) != 0 {
		t.Fatalf("%+v %s", b.state("a").State, p.Status.Phase)
	}
	b.in.Seen.Hooks[HookKey(PostStart, "u1.a.0")] = HookEnd{}
	b.settle()
	if b.state("a").State.Running == nil || p.Status.Phase != corev1.PodRunning {
		t.Fatalf("%+v", b.state("a").State)
	}
	if got := b.verbs("hook"); got != "hook au1.a.0" {
		t.Fatalf("hooks: %s", got)
	}
	b.in.Mem, b.in.Seen.Hooks = Memory{}, nil // a new brain does not run it again
	b.settle()
	if got := b.verbs("hook"); got != "hook au1.a.0" {
		t.Fatalf("hooks after a restart of the brain: %s", got)
	}

	p = pod(corev1.RestartPolicyNever, "a")
	hooks(p, "a")
	b = newBoard(t, p)
	b.hook = map[string]hookPlay{"postStart/a": {fails: true}}
	b.deaf["a"] = true
	b.next(b.settle())
	b.settle()
	if p.Status.Phase != corev1.PodFailed || b.events[0].Message != "FailedPostStartHook" {
		t.Fatalf("%s %v", p.Status.Phase, b.events)
	}
}

// TestPreStop: the hook runs inside the grace; what it leaves is the container's, two seconds at least (N-7.27 to N-7.29).
func TestPreStop(t *testing.T) {
	for _, tc := range []struct {
		name         string
		play         hookPlay
		hookTakes    time.Duration
		signal, kill time.Duration
	}{
		{"at once", hookPlay{}, 0, 0, 10 * time.Second},
		{"fails", hookPlay{fails: true}, 0, 0, 10 * time.Second},
		{"takes 4 s", hookPlay{hangs: true}, 4 * time.Second, 4 * time.Second, 10 * time.Second},
		{"takes 9.5 s", hookPlay{hangs: true}, 9500 * time.Millisecond, 9500 * time.Millisecond, 11500 * time.Millisecond},
		{"never ends", hookPlay{hangs: true}, time.Hour, 10 * time.Second, 12 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pod(corev1.RestartPolicyAlways, "a")
			hooks(p, "a")
			b := newBoard(t, p)
			b.hook = map[string]hookPlay{}
			b.settle()
			b.hook["preStop/a"] = tc.play
			b.deaf["a"] = true
			b.delete(10)
			began := b.in.Now
			times := map[string]time.Duration{}
			for !b.in.Gone {
				n := len(b.log)
				out := b.settle()
				for _, l := range b.log[n:] {
					if strings.HasPrefix(l, "signal") {
						if _, ok := times["signal"]; ok {
							times["kill"] = b.in.Now.Sub(began)
						} else {
							times["signal"] = b.in.Now.Sub(began)
						}
					}
				}
				if at := began.Add(tc.hookTakes); tc.hookTakes > 0 && b.in.Now.Before(at) && (out.Wake.IsZero() || !out.Wake.Before(at)) {
					b.in.Now = at
					b.in.Seen.Hooks = map[string]HookEnd{}
					b.in.Seen.Hooks[HookKey(PreStop, "u1.a.0")] = HookEnd{}
				} else if !b.in.Gone && !b.next(out) {
					t.Fatalf("stuck: %v", b.log)
				}
			}
			if times["signal"] != tc.signal || times["kill"] != tc.kill {
				t.Errorf("signal after %s, kill after %s; want %s, %s: %v", times["signal"], times["kill"], tc.signal, tc.kill, b.log)
			}
		})
	}
}

// TestRestartRules: a container's own policy beats the pod's, and its first rule that matches beats both (N-7.9).
func TestRestartRules(t *testing.T) {
	policy := func(p corev1.ContainerRestartPolicy) *corev1.ContainerRestartPolicy { return &p }
	in := func(codes ...int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: codes}}
	}
	notIn := in(1, 2)
	notIn.ExitCodes.Operator = "NotIn"
	for _, tc := range []struct {
		pod   corev1.RestartPolicy
		own   *corev1.ContainerRestartPolicy
		rules []corev1.ContainerRestartRule
		code  int
		want  corev1.PodPhase
	}{
		{corev1.RestartPolicyNever, policy("Always"), nil, 0, corev1.PodRunning},
		{corev1.RestartPolicyNever, policy("OnFailure"), nil, 0, corev1.PodSucceeded},
		{corev1.RestartPolicyAlways, policy("Never"), nil, 1, corev1.PodFailed},
		{corev1.RestartPolicyAlways, policy("Never"), nil, 0, corev1.PodSucceeded},
		{corev1.RestartPolicyAlways, policy("Never"), []corev1.ContainerRestartRule{in(42)}, 42, corev1.PodRunning},
		{corev1.RestartPolicyAlways, policy("Never"), []corev1.ContainerRestartRule{in(42)}, 43, corev1.PodFailed},
		{corev1.RestartPolicyNever, policy("Never"), []corev1.ContainerRestartRule{in(7), notIn}, 3, corev1.PodRunning},
		{corev1.RestartPolicyNever, policy("Never"), []corev1.ContainerRestartRule{notIn}, 2, corev1.PodFailed},
	} {
		p := pod(tc.pod, "a")
		p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = tc.own, tc.rules
		b := newBoard(t, p)
		b.exit["a"] = func(n int) (time.Duration, int) {
			if n > 0 {
				return time.Hour, 0
			}
			return time.Second, tc.code
		}
		b.next(b.settle())
		b.settle()
		if p.Status.Phase != tc.want {
			t.Errorf("pod %s, container %s, %d rules, exit %d: %s, want %s", tc.pod, *tc.own, len(tc.rules), tc.code, p.Status.Phase, tc.want)
		}
	}
}

// TestEphemeral: it runs once, beside everything, even while init is stuck, and counts for nothing.
func TestEphemeral(t *testing.T) {
	p := withInit(pod(corev1.RestartPolicyNever, "a"), "i")
	b := newBoard(t, p)
	b.settle()
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug",
		Image: "img"}}}
	b.exit["debug"] = func(int) (time.Duration, int) { return 5 * time.Second, 1 }
	out := b.settle()
	if s := b.state("debug"); s.State.Running == nil || p.Status.Phase != corev1.PodPending {
		t.Fatalf("%+v %s", s.State, p.Status.Phase)
	}
	b.next(out)
	b.settle()
	if s := b.state("debug"); s.State.Terminated == nil || s.State.Terminated.ExitCode != 1 || s.RestartCount != 0 {
		t.Fatalf("%+v", s)
	}
	b.end("u1.i.0", 0)
	b.settle()
	if p.Status.Phase != corev1.PodRunning || condition(p, corev1.PodReady).Status != corev1.ConditionTrue {
		t.Fatalf("%s %+v", p.Status.Phase, p.Status.Conditions)
	}
	b.end("u1.a.0", 0)
	b.settle()
	if p.Status.Phase != corev1.PodSucceeded || strings.Count(b.verbs("start"), "debug") != 1 {
		t.Fatalf("%s: %s", p.Status.Phase, b.verbs("start"))
	}
}

// randomPod has a bit of everything.
func randomPod(r *rand.Rand) *corev1.Pod {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	p := pod(policies[r.IntN(3)], "a", "b")
	withSidecars(p, []string{"s1", "i1", "s2"}[:r.IntN(4)]...)
	for _, name := range []string{"s1", "s2", "a", "b"} {
		c := container(p, name)
		if c == nil {
			continue
		}
		if r.IntN(3) == 0 {
			hooks(p, name)
		}
		if r.IntN(3) == 0 {
			c.StartupProbe = &corev1.Probe{}
		}
		if r.IntN(3) == 0 {
			c.LivenessProbe, c.ReadinessProbe = &corev1.Probe{}, &corev1.Probe{}
		}
		if r.IntN(6) == 0 {
			if own := corev1.ContainerRestartPolicy(policies[r.IntN(3)]); c.RestartPolicy == nil {
				c.RestartPolicy = &own
			}
			action := []corev1.ContainerRestartRuleAction{"Restart", "RestartAllContainers"}[r.IntN(2)]
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: action,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{1}}}}
		}
	}
	if r.IntN(4) == 0 {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e",
			Image: "img"}}}
	}
	return p
}

// lifeOf runs a random pod through a random life: exits, probes, hooks, a restart of the brain, a reboot, a deletion.
// What must hold: it settles at every point, deciding again changes nothing, no attempt begins beside another of the same
// container (the board looks), a terminal phase stays, and a deleted pod ends with nothing behind.
func lifeOf(t *testing.T, seed uint64, r *rand.Rand) {
	b := newBoard(t, randomPod(r))
	b.hook = map[string]hookPlay{}
	for _, n := range []string{"a", "b", "i1", "s1", "s2", "e"} {
		if n == "i1" || r.IntN(2) == 0 {
			b.exit[n] = func(int) (time.Duration, int) { return time.Duration(r.IntN(30)) * time.Second, r.IntN(2) }
		}
		b.deaf[n] = r.IntN(3) == 0
		for _, h := range []string{PostStart, PreStop} {
			b.hook[h+"/"+n] = hookPlay{fails: r.IntN(4) == 0, hangs: r.IntN(4) == 0}
		}
	}
	for range 6 { // before the end comes in the middle of things
		for _, n := range []string{"a", "s1"} {
			b.feels(n, Health{Started: r.IntN(4) > 0, Ready: r.IntN(2) == 0, Failed: []string{"", "", "", "liveness"}[r.IntN(4)]})
		}
		out := b.settle()
		again := Decide(b.in)
		if len(again.Do) > 0 || fmt.Sprint(again.Mem) != fmt.Sprint(b.in.Mem) {
			t.Fatalf("seed %d: deciding again does %v", seed, again.Do)
		}
		b.next(out)
	}
	life(t, seed, b, r)
}

func TestRandomLivesOfEverything(t *testing.T) {
	for seed := range uint64(testrun.Rounds(600)) {
		lifeOf(t, seed, rand.New(rand.NewPCG(seed, 2)))
	}
}

func FuzzLife(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { lifeOf(t, a, rand.New(rand.NewPCG(a, b))) })
}
