package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/images"
	"ledge/node/podstate"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

type behaviours = map[string]enginefake.Behaviour

// TestLife of a pod, from its binding to the last trace of it (N-7.31).
func TestLife(t *testing.T) {
	with(t, behaviours{"c": {TermTakes: 3 * time.Second, TermCode: 0}}, func(r *rig) {
		r.begin()
		r.pod("p", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		})
		r.pass(time.Second)
		p := r.get("p")
		if p.Status.Phase != corev1.PodRunning || p.Status.HostIP != "192.0.2.10" || p.Status.PodIP == "" {
			t.Errorf("the pod is %+v", p.Status)
		}
		r.want("events", r.events.of("Pulled", "Created", "Started"),
			`Normal Pulled p: Container image "example.com/app:v1" already present on machine`,
			"Normal Created p: Container created", "Normal Started p: Container started")
		r.delete("p", nil)
		r.pass(2 * time.Second)
		if r.gone("p") || r.get("p").Status.Phase != corev1.PodRunning {
			t.Error("the object goes before the container")
		}
		r.want("events", r.events.of("Killing"), "Normal Killing p: Stopping container c")
		r.pass(2 * time.Second)
		if !r.gone("p") {
			t.Errorf("the pod is still there: %+v", r.get("p").Status)
		}
		r.nothingLeft()
	})
}

// TestOrphans: what pods left that were deleted while no agent was there to see it (N-7.32, N-3.51).
func TestOrphans(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		old, kept := r.pod("old"), r.pod("kept")
		r.pass(time.Second)
		for _, p := range []*corev1.Pod{old, kept} { // as the keeper would
			logs := r.agent.logs.Path(p, "c", 0)
			if err := os.MkdirAll(filepath.Dir(logs), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(logs, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.end()
		r.delete("old", new(int64))
		before := r.running()
		r.begin()
		r.pass(time.Second)
		r.want("running before", before, "c.0", "c.0")
		r.want("running", r.running(), "c.0")
		left := map[string]bool{"logs": true, "podfiles": true, "address": true, "root": true}
		for name, gone := range map[string]bool{
			"logs":     !exists(filepath.Dir(filepath.Dir(r.agent.logs.Path(old, "c", 0)))),
			"podfiles": !exists(r.agent.podRunDir(string(old.UID))),
			"root":     r.images.Mounts()[containerID(old, "c", 0)] == "",
			"address":  len(r.network.Pods()) == 1,
		} {
			left[name] = !gone
			if !gone {
				t.Errorf("%s of the pod that is gone are still there", name)
			}
		}
		if !exists(r.agent.logs.Path(kept, "c", 0)) || !exists(r.agent.podRunDir(string(kept.UID))) ||
			r.images.Mounts()[containerID(kept, "c", 0)] == "" {
			t.Error("something of the other pod went too")
		}
	})
}

// TestRestartTouchesNothing: another agent finds everything as it was, and has nothing to say about it.
func TestRestartTouchesNothing(t *testing.T) {
	end := 2 * time.Second
	with(t, behaviours{"job": {ExitAfter: &end}}, func(r *rig) {
		r.begin()
		r.pod("runs", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, aPod("x").Spec.Containers[0])
			p.Spec.Containers[1].Name = "d"
		})
		r.pod("init", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "job", Image: image, Command: []string{"x"}}}
		})
		r.pod("done", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) { p.Spec.Containers[0].Name = "job" })
		r.pod("host", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
		r.pod("waits", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "example.com/none:v1" })
		r.pass(10 * time.Minute)
		names := []string{"runs", "init", "done", "host"}
		revs := map[string]string{}
		for _, n := range names {
			revs[n] = r.get(n).ResourceVersion
		}
		before, _ := r.engine.List(r.Context())
		r.begin()
		r.pass(time.Minute)
		after, _ := r.engine.List(r.Context())
		if len(before.Containers) != 5 || len(after.Containers) != 5 {
			t.Errorf("containers: %v, were %v", after.Containers, before.Containers)
		}
		for i := range min(len(before.Containers), len(after.Containers)) {
			if before.Containers[i].Pid != after.Containers[i].Pid {
				t.Errorf("container %s is another process", before.Containers[i].ID)
			}
		}
		for _, n := range names {
			if is := r.get(n).ResourceVersion; is != revs[n] {
				t.Errorf("pod %s was written: %s, was %s", n, is, revs[n])
			}
		}
	})
}

// TestEngineAway: while the keeper restarts nothing is decided; what happened meanwhile is seen when it is back.
// After 30 s the node says so (N-1.48).
func TestEngineAway(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p")
		r.pass(time.Second)
		r.engine.SetAway(true)
		r.engine.End(containerID(p, "c", 0), runtime.Exit{Code: 3})
		r.pass(29 * time.Second)
		if c := r.get("p").Status.ContainerStatuses[0]; c.State.Running == nil {
			t.Errorf("decided without the engine: %+v", c)
		}
		if !isReady(r.node()) {
			t.Error("the node is not ready after 29 s without the engine")
		}
		r.pass(12 * time.Second)
		c := nodeCondition(r.node(), corev1.NodeReady)
		if c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" || !strings.HasPrefix(c.Message, "container runtime is down") {
			t.Errorf("after 41 s: %+v", c)
		}
		r.engine.SetAway(false)
		r.pass(time.Second)
		if !isReady(r.node()) {
			t.Error("the node is not ready with the engine back")
		}
		st := r.get("p").Status.ContainerStatuses[0]
		if st.State.Running == nil || st.RestartCount != 1 || st.LastTerminationState.Terminated.ExitCode != 3 {
			t.Errorf("with the engine back: %+v", st)
		}
	})
}

// TestEngineForgets: the engine's state was thrown away under a living agent. The pod is made anew, not started for
// ever in a sandbox that is not there.
func TestEngineForgets(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p")
		r.pass(time.Second)
		r.engine.Reboot()
		r.pass(time.Minute)
		r.want("running", r.running(), "c.1")
		if p := r.get("p"); p.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("%+v", p.Status)
		}
	})
}

// TestImageArrives: pods that wait for an image do not wait for their back-off when it comes (N-7.16 would be five
// minutes), whatever their pull policy.
func TestImageArrives(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		wait := map[corev1.PullPolicy]string{corev1.PullAlways: "ErrImagePull", corev1.PullIfNotPresent: "ErrImagePull",
			corev1.PullNever: "ErrImageNeverPull"}
		for policy := range wait {
			r.pod(strings.ToLower(string(policy)), func(p *corev1.Pod) {
				p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "example.com/late:v1", policy
			})
		}
		r.pass(time.Second)
		for policy, reason := range wait {
			w := r.get(strings.ToLower(string(policy))).Status.ContainerStatuses[0].State.Waiting
			if w == nil || w.Reason != reason && w.Reason != "ImagePullBackOff" {
				t.Errorf("%s: waits for %+v, want %s", policy, w, reason)
			}
		}
		r.pass(time.Hour)
		r.addImage("example.com/late:v1")
		r.agent.ImagesChanged()
		synctest.Wait()
		r.want("running at once", r.running(), "c.0", "c.0", "c.0")
	})
}

// TestAPIAway: an agent that cannot tell goes on working (a board whose uplink is down, a control plane whose disk is
// full), and tells when it can.
func TestAPIAway(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p")
		r.pass(time.Second)
		r.via.breaks(down)
		r.engine.End(containerID(p, "c", 0), runtime.Exit{Code: 3})
		r.pass(time.Second)
		r.want("running", r.running(), "c.1")
		r.via.breaks(nil)
		r.pass(mostSilence)
		if c := r.get("p").Status.ContainerStatuses[0]; c.RestartCount != 1 || c.State.Running == nil {
			t.Errorf("%+v", c)
		}
	})
}

// TestPoliteWithoutAPI: the stop signal is not lost when the status before it could not be written; the container
// would have no other warning than SIGKILL.
func TestPoliteWithoutAPI(t *testing.T) {
	with(t, behaviours{"c": {TermCode: 7}}, func(r *rig) {
		r.begin()
		r.pod("p")
		r.pass(time.Second)
		r.via.breaks(failing("update pods", apierrors.NewServiceUnavailable("full")))
		r.delete("p", nil)
		r.pass(5 * time.Second)
		r.want("running", r.running())
		if r.gone("p") {
			t.Fatal("the object went although its end could not be told (N-7.31)")
		}
		var last *corev1.Pod
		r.via.breaks(func(verb string, kind *api.Kind) error {
			if verb == "delete" {
				last = r.get("p")
			}
			return nil
		})
		r.pass(mostSilence + time.Second)
		if !r.gone("p") || last == nil || last.Status.ContainerStatuses[0].State.Terminated.ExitCode != 7 {
			t.Errorf("gone: %v; at the end it was %+v", r.gone("p"), last)
		}
		r.nothingLeft()
	})
}

// TestFinalizer: an object that somebody holds back is asked for now and then, not as fast as the machine can.
func TestFinalizer(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} })
		r.pass(time.Second)
		r.delete("p", nil)
		r.pass(time.Hour)
		if n := r.via.count("delete pods"); n < 1 || n > 200 {
			t.Errorf("%d deletes in an hour", n)
		}
		patch := api.Patch{Type: types.MergePatchType, Data: []byte(`{"metadata":{"finalizers":null}}`)}
		if _, err := r.Patch(r.Context(), api.Pods, "default", "p", patch, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		if !r.gone("p") {
			t.Error("the pod is still there")
		}
		r.nothingLeft()
	})
}

// TestFailingSteps that Decide has no back-off for are not repeated as fast as the machine can.
func TestFailingSteps(t *testing.T) {
	with(t, nil, func(r *rig) {
		broken := &brokenEngine{Engine: r.engine}
		r.cfg.Engine = broken
		r.begin()
		r.pod("p")
		r.pass(time.Second)
		boom := errors.New("boom")
		broken.signal.Store(&boom)
		r.delete("p", nil)
		r.pass(10 * time.Minute)
		if n := broken.signals.Load(); n < 5 || n > 200 {
			t.Errorf("%d signals in ten minutes", n)
		}
		broken.signal.Store(nil)
		r.via.breaks(failing("delete pods", apierrors.NewServiceUnavailable("full")))
		r.pass(time.Hour)
		r.want("running", r.running())
		if n := r.via.count("delete pods"); n < 5 || n > 200 {
			t.Errorf("%d deletes in an hour", n)
		}
		r.via.breaks(nil)
		r.pass(time.Minute)
		if !r.gone("p") {
			t.Error("the pod is still there")
		}
	})
}

// TestUnavailableCalls: an engine whose calls fail while its watch goes on is not asked as fast as the machine can.
func TestUnavailableCalls(t *testing.T) {
	with(t, nil, func(r *rig) {
		broken := &brokenEngine{Engine: r.engine}
		r.cfg.Engine = broken
		r.begin()
		r.pod("p")
		r.pass(time.Second)
		away := error(runtime.ErrUnavailable)
		broken.signal.Store(&away)
		r.delete("p", nil)
		r.pass(10 * time.Minute)
		if n := broken.signals.Load(); n < 5 || n > 200 {
			t.Errorf("%d signals in ten minutes", n)
		}
	})
}

type brokenEngine struct {
	Engine
	signal  atomic.Pointer[error]
	signals atomic.Int64
}

func (e *brokenEngine) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	if err := e.signal.Load(); err != nil {
		e.signals.Add(1)
		return *err
	}
	return e.Engine.Signal(ctx, id, sig)
}

// TestConflict: what others write of a pod's status at the same moment is not overwritten (architecture: One writer per field).
func TestConflict(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p")
		r.pass(time.Second)
		var once atomic.Bool
		r.via.breaks(func(verb string, kind *api.Kind) error {
			if verb+" "+kind.Resource == "update pods" && once.CompareAndSwap(false, true) {
				cur := r.get("p")
				cur.Status.Conditions = append(cur.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
					Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"})
				if _, err := api.UpdateStatus(r.Context(), r.Client, api.Pods, cur); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		r.engine.End(containerID(p, "c", 0), runtime.Exit{Code: 1})
		r.pass(time.Second)
		cur := r.get("p")
		if !once.Load() || podCondition(cur, corev1.DisruptionTarget) != corev1.ConditionTrue {
			t.Errorf("the other writer's condition is lost: %+v", cur.Status.Conditions)
		}
		if cur.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("the agent's own part is lost: %+v", cur.Status.ContainerStatuses)
		}
	})
}

func podCondition(p *corev1.Pod, t corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}

// TestReplaced: a pod of the same name under another UID is another pod; the old one ends, the new one runs.
func TestReplaced(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		old := r.pod("p")
		r.pass(time.Second)
		r.delete("p", new(int64))
		again := r.pod("p")
		r.pass(5 * time.Second)
		st, _ := r.engine.List(r.Context())
		if len(st.Pods) != 1 || st.Pods[0].Pod.UID != string(again.UID) || old.UID == again.UID {
			t.Errorf("pods %v", st.Pods)
		}
		if r.get("p").Status.Phase != corev1.PodRunning {
			t.Errorf("%+v", r.get("p").Status)
		}
	})
}

// TestClosed: a node that shuts down takes no new pods (N-5.30), says so (N-1.48, N-5.17), and may open again.
func TestClosed(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("before")
		r.pass(time.Second)
		r.agent.Close("node is shutting down")
		r.pod("refused")
		r.pass(time.Second)
		if s := r.get("refused").Status; s.Phase != corev1.PodFailed || s.Reason != "NodeShutdown" ||
			s.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
			t.Errorf("%+v", s)
		}
		r.want("events", r.events.of("NodeShutdown"), "Warning NodeShutdown refused: Pod was rejected as the node is shutting down.")
		c := nodeCondition(r.node(), corev1.NodeReady)
		if c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != "node is shutting down" {
			t.Errorf("%+v", c)
		}
		if got := r.agent.Pods(); len(got) != 1 || got[0].UID != p.UID {
			t.Errorf("pods on the board: %v", got)
		}
		// One whose turn to stop has not come is not restarted, unless the board stays on (N-5.41).
		r.engine.End(containerID(p, "c", 0), runtime.Exit{Code: 1})
		r.pass(30 * time.Second)
		r.want("while the board goes down", r.running())
		r.agent.Close("")
		r.pass(time.Second)
		r.want("when it stays on", r.running(), "c.1")
		r.agent.Close("node is shutting down")
		err := r.agent.StopPod(r.Context(), p.UID, podstate.Stop{Reason: "Terminated", Message: "why"})
		if err != nil {
			t.Error(err)
		}
		if s := r.get("before").Status; s.Phase != corev1.PodFailed || s.Reason != "Terminated" || s.Message != "why" {
			t.Errorf("%+v", s)
		}
		if err := r.agent.StopPod(r.Context(), "nobody", podstate.Stop{}); !errors.Is(err, ErrUnknownPod) {
			t.Errorf("stop of a pod that is not here: %v", err)
		}
		r.agent.Close("")
		r.pod("after")
		r.pass(time.Second)
		if !isReady(r.node()) || r.get("after").Status.Phase != corev1.PodRunning {
			t.Error("not open again")
		}
	})
}

// TestCrashLoop, with its events (N-7.14): at once, then after 10, 20, 40 ... seconds.
func TestCrashLoop(t *testing.T) {
	with(t, behaviours{"c": enginefake.For(time.Second, 1)}, func(r *rig) {
		r.begin()
		p := r.pod("p")
		at := func(d time.Duration, restarts int32) {
			t.Helper()
			r.pass(d)
			if got := r.get("p").Status.ContainerStatuses[0].RestartCount; got != restarts {
				t.Errorf("%d restarts, want %d", got, restarts)
			}
		}
		at(500*time.Millisecond, 0)
		at(time.Second, 1)
		at(9*time.Second, 1)
		at(2*time.Second, 2)
		at(20*time.Second, 2)
		at(2*time.Second, 3)
		w := r.get("p").Status.ContainerStatuses[0]
		r.pass(2 * time.Second)
		w = r.get("p").Status.ContainerStatuses[0]
		if w.State.Waiting == nil || w.State.Waiting.Reason != "CrashLoopBackOff" || w.LastTerminationState.Terminated == nil ||
			w.State.Waiting.Message != "back-off 40s restarting failed container=c pod=p_default("+string(p.UID)+")" {
			t.Errorf("%+v", w.State)
		}
		want := "Warning BackOff p: Back-off restarting failed container c in pod p_default(" + string(p.UID) + ")"
		r.want("events", r.events.of("BackOff"), want, want, want)
		if n := len(r.images.Mounts()); n > 2 {
			t.Errorf("%d root file systems are kept", n)
		}
	})
}

// TestImageRemovedAndBadNames: what keeps a container from starting is said in Kubernetes' words (N-7.13).
func TestBadImages(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.images.Fail = func(op, key string) error {
			if op == "mount" && strings.HasSuffix(key, ".broken.0") {
				return errors.New("no room")
			}
			return nil
		}
		r.begin()
		r.pod("name", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "Not a Name" })
		r.pod("broken", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "broken" })
		r.pod("command", func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil })
		r.pass(time.Second)
		for name, reason := range map[string]string{"name": "InvalidImageName", "broken": "CreateContainerError",
			"command": "CreateContainerConfigError"} {
			if w := r.get(name).Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != reason {
				t.Errorf("%s: %+v, want %s", name, w, reason)
			}
		}
		if len(r.images.Mounts()) > 0 {
			t.Errorf("root file systems of containers that never ran: %v", r.images.Mounts())
		}
		if _, err := r.images.Get(r.Context(), image); err != nil {
			t.Error(err)
		}
	})
}

// TestTerminationMessage: what a container leaves in its file, or at the end of its log, is in the status.
func TestTerminationMessage(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, aPod("x").Spec.Containers[0])
			p.Spec.Containers[1].Name = "d"
			p.Spec.Containers[1].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		})
		r.pass(time.Second)
		if err := os.WriteFile(r.agent.hands.messageFile(string(p.UID), containerID(p, "c", 0)), []byte("good bye \xff"), 0o600); err != nil {
			t.Fatal(err)
		}
		writeLog(t, r.agent.logs.Path(p, "d", 0), "2026-01-01T00:00:00Z stdout F last words")
		r.engine.End(containerID(p, "c", 0), runtime.Exit{Code: 0})
		r.engine.End(containerID(p, "d", 0), runtime.Exit{Code: 1})
		r.pass(time.Second)
		st := r.get("p").Status.ContainerStatuses
		if m := st[0].State.Terminated.Message; m != "good bye �" {
			t.Errorf("message %q", m)
		}
		if m := st[1].State.Terminated.Message; m != "last words\n" {
			t.Errorf("message from the log %q", m)
		}
	})
}

func writeLog(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, l := range lines {
		if _, err := f.WriteString(l + "\n"); err != nil {
			t.Fatal(err)
		}
	}
}

var _ images.Store = rootMaker{}
