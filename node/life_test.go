package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// clinic plays the commands that probes and hooks run in containers: each answers with the code set for it, 0 at first.
type clinic struct {
	mu    sync.Mutex
	codes map[string]int
	hangs map[string]bool
	asked map[string]int
}

func newClinic() *clinic {
	return &clinic{codes: map[string]int{}, hangs: map[string]bool{}, asked: map[string]int{}}
}

func (c *clinic) run(ctx context.Context, x runtime.Exec) (int, error) {
	c.mu.Lock()
	c.asked[x.Args[0]]++
	code, hangs := c.codes[x.Args[0]], c.hangs[x.Args[0]]
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if code != 0 {
		fmt.Fprint(x.Stderr, "sick")
	}
	return code, nil
}

func (c *clinic) set(command string, code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.codes[command] = code
}

func (c *clinic) count(command string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[command]
}

func execProbe(command string) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}, PeriodSeconds: 5,
		FailureThreshold: 2}
}

func execHook(command string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
}

func (r *rig) readyOf(name string) corev1.ConditionStatus {
	r.Helper()
	for _, c := range r.get(name).Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

// TestProbes: what a pod's probes find is what the API shows, and what the board does about it (N-7.33 to N-7.36).
func TestProbes(t *testing.T) {
	c := newClinic()
	with(t, behaviours{"c": {Exec: c.run, TermCode: 143}}, func(r *rig) {
		r.begin()
		r.pass(time.Minute)
		c.set("started", 1)
		r.pod("p", func(p *corev1.Pod) {
			k := &p.Spec.Containers[0]
			k.StartupProbe, k.LivenessProbe, k.ReadinessProbe = execProbe("started"), execProbe("alive"), execProbe("ready")
			k.StartupProbe.FailureThreshold = 10
		})
		r.pass(12 * time.Second)
		if s := r.get("p").Status.ContainerStatuses[0]; *s.Started || s.Ready || s.State.Running == nil ||
			c.count("ready")+c.count("alive") != 0 {
			t.Errorf("before the startup probe passes: %+v", s)
		}
		c.set("started", 0)
		r.pass(5 * time.Second)
		if s := r.get("p").Status.ContainerStatuses[0]; !*s.Started || !s.Ready || r.readyOf("p") != corev1.ConditionTrue {
			t.Errorf("after it has passed: %+v", s)
		}
		c.set("ready", 1)
		r.pass(12 * time.Second)
		if r.readyOf("p") != corev1.ConditionFalse {
			t.Error("ready though its probe fails")
		}
		c.set("ready", 0)
		c.set("alive", 1)
		r.pass(10 * time.Second)
		c.set("alive", 0)
		r.pass(30 * time.Second)
		if s := r.get("p").Status.ContainerStatuses[0]; s.RestartCount != 1 || !s.Ready || s.LastTerminationState.Terminated.ExitCode != 143 {
			t.Errorf("after the liveness probe failed: %+v", s)
		}
		r.want("events", r.events.of("Unhealthy", "Killing"),
			"Warning Unhealthy p: Startup probe failed: sick", "Warning Unhealthy p: Startup probe failed: sick",
			"Warning Unhealthy p: Readiness probe failed: sick", "Warning Unhealthy p: Readiness probe failed: sick",
			"Warning Unhealthy p: Liveness probe failed: sick", "Warning Unhealthy p: Liveness probe failed: sick",
			"Normal Killing p: Container c failed liveness probe, will be restarted")

		_, text, _, err := r.agent.Page(r.Context(), "/metrics/probes")
		for probe, kind := range map[string]string{"started": "Startup", "alive": "Liveness", "ready": "Readiness"} {
			for result, n := range map[string]int{"failed": 2, "successful": c.count(probe) - 2} {
				if line := fmt.Sprintf(",probe_type=%q,result=%q} %d\n", kind, result, n); !strings.Contains(string(text), line) {
					t.Errorf("%v, no line %s of %s", err, line, text)
				}
			}
		}

		// A new brain finds the pod ready and says nothing else (architecture: Promises).
		rev, before := r.get("p").ResourceVersion, c.count("started")
		r.begin()
		r.pass(time.Minute)
		if p := r.get("p"); p.ResourceVersion != rev || c.count("started") != before {
			t.Errorf("the pod was written, or asked whether it had started, by a brain that found it running: %s, was %s", p.ResourceVersion, rev)
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		r.nothingLeft()
	})
}

// TestHooks: postStart holds the container back, preStop runs inside the grace; failures are told without what the hook
// said (N-7.27).
func TestHooks(t *testing.T) {
	c := newClinic()
	c.hangs["slow"] = true
	with(t, behaviours{"c": {Exec: c.run, TermCode: 143}}, func(r *rig) {
		r.begin()
		hooked := func(start, stop string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: execHook(start), PreStop: execHook(stop)}
			}
		}
		r.pod("waits", hooked("slow", "bye"))
		r.pass(time.Minute)
		if s := r.get("waits").Status; s.Phase != corev1.PodPending || s.ContainerStatuses[0].State.Waiting == nil {
			t.Errorf("while postStart runs: %+v", s)
		}
		c.set("bad", 1)
		r.pod("fails", hooked("bad", "bye"), policy(corev1.RestartPolicyNever))
		r.pass(time.Second)
		if s := r.get("fails").Status; s.Phase != corev1.PodFailed || c.count("bye") != 1 {
			t.Errorf("after postStart failed: %+v, preStop ran %d times", s, c.count("bye"))
		}
		r.pod("goes", hooked("hello", "slow"))
		grace := int64(7)
		r.delete("goes", &grace)
		r.pass(6900 * time.Millisecond)
		if r.gone("goes") || c.count("slow") != 2 {
			t.Errorf("preStop was not waited for, or did not run: %d", c.count("slow"))
		}
		r.pass(200 * time.Millisecond)
		if !r.gone("goes") {
			t.Error("the pod outlives its grace")
		}
		r.pod("sulks", hooked("hello", "bad"))
		r.delete("sulks", &grace)
		r.pass(time.Second)
		if !r.gone("sulks") {
			t.Error("a preStop hook that fails holds up the end")
		}
		r.want("events", r.events.of("FailedPostStartHook", "FailedPreStopHook"),
			"Warning FailedPostStartHook fails: PostStartHook failed", "Warning FailedPreStopHook sulks: PreStopHook failed")
	})
}

// TestStoppedByShutdown: all that has something here is stopped, also who is leaving, ended or static (N-5.29); hooks run
// inside the grace that is given (N-5.24), no end is told before it has come (N-5.28), and a pod has stopped when its volumes
// are unmounted (N-5.26).
func TestStoppedByShutdown(t *testing.T) {
	needsRoot(t)
	var fs unix.Statfs_t
	c := newClinic()
	c.hangs["slow"] = true
	with(t, behaviours{"c": {Exec: c.run, TermCode: 143}, "deaf": {IgnoreTERM: true}}, func(r *rig) {
		put, _ := r.statics()
		put("s.yaml", staticPod)
		r.begin()
		r.pass(5 * time.Second)
		p := r.pod("hooked", volumeOf(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: execHook("slow")}
			})
		leaving := r.pod("leaving", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "deaf" })
		r.pod("over", policy(corev1.RestartPolicyNever))
		r.pass(time.Second)
		r.engine.End(containerID(r.get("over"), "c", 0), runtime.Exit{})
		long := int64(600)
		r.delete("leaving", &long)
		r.pass(time.Second)
		var names []string
		for _, p := range r.agent.Pods() {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		r.want("pods that a shutdown stops", names, "hooked", "leaving", "s-n")

		r.agent.Close("node is shutting down")
		grace := 5 * time.Second
		ended := make(chan error, 2)
		memory := filepath.Join(r.cfg.RunDir, "volumes", string(p.UID))
		for _, uid := range []types.UID{p.UID, leaving.UID} {
			go func() {
				err := r.agent.StopPod(r.Context(), uid, podstate.Stop{Reason: "Terminated", Message: "why", Grace: &grace})
				if left, lerr := mountinfo.GetMounts(mountinfo.PrefixFilter(memory)); uid == p.UID && (lerr != nil || len(left) > 0) {
					err = fmt.Errorf("stopped (%v), and its volumes are still there: %v, %v", err, left, lerr)
				}
				ended <- err
			}()
		}
		if err := unix.Statfs(filepath.Join(memory, "v"), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
			t.Errorf("the volume in memory: %x, %v", fs.Type, err)
		}
		r.pass(4900 * time.Millisecond)
		if s := r.get("hooked").Status; c.count("slow") != 1 || s.Phase != corev1.PodRunning || s.Reason != "" || len(ended) > 1 {
			t.Errorf("while its hook runs: %d, %+v", c.count("slow"), s)
		}
		r.pass(200 * time.Millisecond)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if s := r.get("hooked").Status; s.Phase != corev1.PodFailed || s.Reason != "Terminated" {
			t.Errorf("after its grace: %+v", s)
		}
		// What goes with the power is removed when nobody waits any more.
		if left := r.left(); len(left) < 2 {
			t.Errorf("removed while the board is waited for: only %v are left", left)
		}
		r.agent.Clear()
		if err := r.agent.Cleared(r.Context()); err != nil {
			t.Error(err)
		}
		r.pass(time.Second)
		if left := r.left(); len(left) > 1 || !r.gone("leaving") { // the static one has not been stopped
			t.Errorf("left: %v", left)
		}
		if _, err := os.Lstat(memory); !os.IsNotExist(err) {
			t.Errorf("its volume is still there: %v", err)
		}
	})
}

// TestHookWhileKeeperAway: a keeper that restarts is no reason to take a container for broken.
func TestHookWhileKeeperAway(t *testing.T) {
	c := newClinic()
	c.hangs["hello"] = true
	with(t, behaviours{"c": {Exec: c.run}}, func(r *rig) {
		r.begin()
		r.pod("p", func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: execHook("hello")} })
		r.engine.SetAway(true)
		r.pass(10 * time.Second)
		c.mu.Lock()
		c.hangs["hello"] = false
		c.mu.Unlock()
		r.engine.SetAway(false)
		r.pass(5 * time.Second)
		if s := r.get("p").Status; s.Phase != corev1.PodRunning || s.ContainerStatuses[0].RestartCount != 0 ||
			len(r.events.of("FailedPostStartHook")) > 0 {
			t.Errorf("%+v %v", s, r.events.of("FailedPostStartHook"))
		}
	})
}

// TestSidecars: a job with a sidecar ends when the job is done (N-7.20, N-7.21).
func TestSidecars(t *testing.T) {
	with(t, behaviours{"c": enginefake.For(20*time.Second, 0), "side": {TermCode: 1}}, func(r *rig) {
		r.begin()
		always := corev1.ContainerRestartPolicyAlways
		r.pod("job", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: image, Command: []string{"x"}, RestartPolicy: &always}}
		})
		r.pass(10 * time.Second)
		r.want("running", r.running(), "c.0", "side.0")
		r.pass(20 * time.Second)
		if p := r.get("job"); p.Status.Phase != corev1.PodSucceeded || p.Status.InitContainerStatuses[0].State.Terminated.ExitCode != 1 {
			t.Errorf("%+v", p.Status)
		}
		r.want("running", r.running())
	})
}

// TestStopSignal: the container's own beats its image's, and is shown.
func TestStopSignal(t *testing.T) {
	with(t, behaviours{"c": {TermCode: 7}}, func(r *rig) {
		r.begin()
		sig := corev1.Signal("SIGQUIT")
		r.pod("p", func(p *corev1.Pod) {
			p.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &sig}
		})
		r.pass(time.Second)
		if s := r.get("p").Status.ContainerStatuses[0].StopSignal; s == nil || *s != sig {
			t.Errorf("shown as %v", s)
		}
		st, err := r.engine.List(t.Context())
		if err != nil || len(st.Containers) != 1 || !strings.Contains(fmt.Sprint(st.Containers[0].Labels), "SIGQUIT") {
			t.Errorf("%+v, %v", st.Containers, err)
		}
	})
}

// TestEphemeralContainer: it runs in a pod that runs, beside the container it is to look at, and ends without a trace in
// the pod's own state.
func TestEphemeralContainer(t *testing.T) {
	with(t, behaviours{"c": {TermCode: 143}, "debug": enginefake.For(10*time.Second, 3)}, func(r *rig) {
		r.begin()
		r.pod("p")
		r.pass(time.Second)
		p := r.get("p")
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{TargetContainerName: "c",
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: image, Command: []string{"sh"}}})
		if _, err := r.Update(r.Context(), api.Pods, p, api.WriteOptions{Subresource: api.Ephemeral}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		r.want("running", r.running(), "c.0", "debug.0")
		r.pass(time.Minute)
		p = r.get("p")
		if s := p.Status.EphemeralContainerStatuses; len(s) != 1 || s[0].State.Terminated == nil || s[0].State.Terminated.ExitCode != 3 ||
			p.Status.Phase != corev1.PodRunning || r.readyOf("p") != corev1.ConditionTrue {
			t.Errorf("%+v", p.Status)
		}
		r.begin() // a new brain does not start it again
		r.pass(time.Minute)
		r.want("running", r.running(), "c.0")
		r.delete("p", nil)
		r.pass(time.Minute)
		r.nothingLeft()
	})
}

// TestRestartAllContainers: the records of all containers go and their numbers go on, in the sandbox that was there.
func TestRestartAllContainers(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{*p.Spec.Containers[0].DeepCopy()}
			p.Spec.InitContainers[0].Name = "i"
			p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
			never := corev1.ContainerRestartPolicyNever
			p.Spec.Containers[1].Name, p.Spec.Containers[1].RestartPolicy = "d", &never
			p.Spec.Containers[1].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}}}}
		})
		r.pass(time.Second)
		r.engine.End(containerID(p, "i", 0), runtime.Exit{})
		r.pass(time.Second)
		ip := r.get("p").Status.PodIP
		r.engine.End(containerID(p, "d", 0), runtime.Exit{Code: 3})
		r.pass(time.Second)
		r.engine.End(containerID(p, "i", 1), runtime.Exit{})
		r.pass(time.Second)
		st := r.get("p").Status
		for _, c := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
			if want := podstate.IDPrefix + containerID(p, c.Name, 1); c.ContainerID != want || c.RestartCount != 1 ||
				c.LastTerminationState.Terminated == nil {
				t.Errorf("%s: %+v", c.Name, c)
			}
		}
		if st.Phase != corev1.PodRunning || st.PodIP != ip || ip == "" {
			t.Errorf("%s at %s, was at %s", st.Phase, st.PodIP, ip)
		}
		r.engine.End(containerID(p, "c", 1), runtime.Exit{})
		r.engine.End(containerID(p, "d", 1), runtime.Exit{})
		r.pass(time.Second)
		if st := r.get("p").Status; st.Phase != corev1.PodSucceeded {
			t.Errorf("at the end: %s", st.Phase)
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		r.nothingLeft()
	})
}
