package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

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
		ledgeBin(t), "--run-dir", b.runDir, "serve", "--data-dir", b.data, "--config", b.config, "--bridge", b.name,
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
