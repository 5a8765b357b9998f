package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/host"
	"ledge/shutdown"
	"ledge/storage"
)

// TestResumeOncePerBoot: N-5.32, and architecture: Bare pods come back. With resumePods: false pods stay as the shutdown left them.
func TestResumeOncePerBoot(t *testing.T) {
	for _, off := range []bool{false, true} {
		s, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
		must(t, err)
		defer s.Close()
		client, err := local.New(local.Config{Store: s})
		must(t, err)
		r := resumer{client: client, node: "n", off: off}
		anew := false
		boot := func(id string) (bool, error) { return booted(s.Table("settings"), id, anew, r.resume) }
		if again, err := boot("boot 1"); err != nil || again {
			t.Fatalf("the first boot of all: %v %v", again, err)
		}
		stop := func(name string) {
			t.Helper()
			p, err := api.Get[*corev1.Pod](t.Context(), client, api.Pods, "default", name)
			must(t, err)
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, shutdown.StopReason, shutdown.StopMessage
			_, err = api.UpdateStatus(t.Context(), client, api.Pods, p)
			must(t, err)
		}
		phase := func() corev1.PodPhase {
			t.Helper()
			p, err := api.Get[*corev1.Pod](t.Context(), client, api.Pods, "default", "p")
			must(t, err)
			return p.Status.Phase
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}}
		p.Spec.NodeName, p.Spec.Containers = "n", []corev1.Container{{Name: "c", Image: "i"}}
		_, err = api.Create(t.Context(), client, api.Pods, p)
		must(t, err)
		stop("p")
		back := map[bool]corev1.PodPhase{false: corev1.PodPending, true: corev1.PodFailed}[off]
		for i, step := range []struct {
			boot  string
			again bool
			want  corev1.PodPhase
		}{{"boot 1", false, corev1.PodFailed}, {"boot 2", true, back}, {"boot 2", false, back}} {
			if again, err := boot(step.boot); err != nil || again != step.again || phase() != step.want {
				t.Errorf("resumePods %v, step %d: %v %v, the pod is %s, want %s", !off, i, again, err, phase(), step.want)
			}
		}
		stop("p")
		if _, err := boot("boot 2"); err != nil || phase() != corev1.PodFailed {
			t.Errorf("another start of the same boot: %v, %s", err, phase())
		}
		anew = true
		if again, err := boot("boot 2"); err != nil || again || phase() != back {
			t.Errorf("resumePods %v, after a reset in the same boot: %v %v, the pod is %s, want %s", !off, again, err, phase(), back)
		}
	}
}

// TestBoardsTurnReady: pods of another board come back once each time it turns Ready, and a look that changes nothing else is
// none; whether they do at all is the configuration's to say.
func TestBoardsTurnReady(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	boards := readiness{}
	for i, look := range []struct {
		a, b corev1.ConditionStatus
		want []string
	}{{yes, no, []string{"a"}}, {yes, yes, []string{"b"}}, {yes, yes, nil}, {unknown, no, nil}, {yes, yes, []string{"a", "b"}}} {
		if got := boards.turned([]*corev1.Node{node("a", look.a), node("b", look.b)}); !slices.Equal(got, look.want) {
			t.Errorf("look %d: %v, want %v", i, got, look.want)
		}
	}
	off := false
	for _, set := range []*bool{nil, &off} {
		b := &brain{plane: &plane{}}
		b.File.ResumePods = set
		if r := b.resumer("far"); r.node != "far" || r.off != (set == &off) {
			t.Errorf("%+v", r)
		}
	}
}

// TestClockFloor: no clock is believed before this program was built, or before the moment that was saved while it was right.
func TestClockFloor(t *testing.T) {
	was := buildTime
	t.Cleanup(func() { buildTime = was })
	buildTime = "2026-06-01T12:00:00Z" // a build by go test is not stamped
	built := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	for i, step := range []struct{ saved, want time.Time }{
		{want: built},
		{saved: built.Add(100 * 24 * time.Hour), want: built.Add(100 * 24 * time.Hour)},
		{saved: built.Add(-time.Hour), want: built},                // of an older program
		{saved: built.Add(31 * 365 * 24 * time.Hour), want: built}, // a clock that was wrong
	} {
		if !step.saved.IsZero() {
			must(t, host.SaveClock(clockFile(dir), step.saved))
		}
		if got := clockFloor(dir); !got.Equal(step.want) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	must(t, os.WriteFile(clockFile(dir), []byte("rubbish"), 0o600))
	if got := clockFloor(dir); !got.Equal(built) {
		t.Errorf("with a damaged file: %s", got)
	}
	buildTime = was
	if got := buildFloor(); !got.IsZero() {
		t.Errorf("a build by hand: %s", got)
	}
}

// TestSpared: the kernel kills pods before the brain and the keeper (N-7.38).
func TestSpared(t *testing.T) {
	b := newBoard(t)
	var have uint64
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	if _, line, ok := strings.Cut(string(status), "CapEff:"); ok {
		_, err := fmt.Sscanf(line, "%x", &have)
		must(t, err)
	}
	const capSysResource = 24
	if have>>capSysResource&1 == 0 {
		t.Skip("this machine's root may not lower oom_score_adj; TestNotSpared shows what is said then")
	}
	b.serve()
	b.importRough()
	b.apply(roughPod("free", `"run"`, "") + "\n---\n" + roughPod("sure", `"run"`, "    resources: {limits: {cpu: 100m, memory: 64Mi}}\n"))
	b.eventually("both run", func() error {
		return errors.Join(contains(b.ledge("get", "pod", "free"), "Running"), contains(b.ledge("get", "pod", "sure"), "Running"))
	})
	score := func(pid int) string {
		t.Helper()
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
		must(t, err)
		return strings.TrimSpace(string(data))
	}
	for what, pid := range map[string]int{"brain": b.cmd.Process.Pid, "keeper": b.keeperPID()} {
		if got := score(pid); got != "-999" {
			t.Errorf("the %s has %s", what, got)
		}
	}
	scores := map[string]int{}
	for _, pid := range b.processes("/kubepods/") {
		scores[score(pid)]++
	}
	if scores["1000"] != 1 || scores["-997"] != 1 || len(scores) != 2 {
		t.Errorf("pods have %v", scores)
	}
}

// TestNotSpared: where that cannot be, one line says so and the node works all the same.
func TestNotSpared(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	cmd := exec.Command("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource",
		ledgeBin, "--run-dir", b.runDir, "serve", "--data-dir", b.data, "--config", b.config, "--bridge", b.name,
		"--cgroup-root", "/"+b.name, "--hostname-override", b.name, "--listen", "")
	cmd.Stdout, cmd.Stderr = b.log, b.log
	must(t, cmd.Start())
	done := make(chan error, 1)
	b.cmd, b.done = cmd, done
	go func() { done <- cmd.Wait() }()
	b.eventually("the node is Ready all the same", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
	data, err := os.ReadFile(b.log.Name())
	must(t, err)
	if n := strings.Count(string(data), "not spared when memory runs out"); n != 1 {
		t.Errorf("said %d times:\n%s", n, data)
	}
}

// TestCancelledAndNotResumed: with resumePods: false a shutdown that was taken back leaves the pods as it stopped them.
func TestCancelledAndNotResumed(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.configure("resumePods: false\n")
	b.serve("--power-backend", "none")
	b.apply(webPod)
	b.running("web")
	b.must("shutdown", "--now")
	b.eventually("the pod is stopped", func() error { return contains(b.ledge("get", "pod", "web"), "Terminated") })
	b.must("shutdown", "--cancel")
	b.eventually("the node is Ready again", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
	time.Sleep(2 * time.Second)
	if out := b.must("get", "pod", "web"); !strings.Contains(out, "Terminated") {
		t.Error(out)
	}
}
