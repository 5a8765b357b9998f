package systemd_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// TestUnitsUnderSystemd installs both units and proves that a pod outlives every restart of either, with the same
// process. It takes the machine over (paths, port 6443), so it runs only in the guest, which is thrown away.
func TestUnitsUnderSystemd(t *testing.T) {
	if os.Getenv("LEDGE_VM") == "" {
		t.Skip("takes a whole machine with systemd: make test-vm runs it")
	}
	install(t)
	run(t, "systemctl", "start", "ledge.service")
	for _, unit := range []string{"ledge-keeper.service", "ledge.service"} {
		if state := strings.TrimSpace(run(t, "systemctl", "is-active", unit)); state != "active" {
			t.Fatalf("%s is %s", unit, state)
		}
	}
	eventually(t, "the node is Ready", func() error {
		return contains(output("ledge", "get", "nodes"), " Ready ")
	})

	if err := os.WriteFile("/tmp/units.yaml", []byte(pod), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "ledge", "apply", "-f", "/tmp/units.yaml")
	var pid int
	eventually(t, "the pod's process runs", func() (err error) {
		pid, err = podProcess()
		return err
	})
	eventually(t, "the pod is reported Running", running)
	steadyPod(t, "start", pid)

	for _, c := range []struct {
		name string
		do   func()
	}{
		{"restart of the brain", func() { run(t, "systemctl", "restart", "ledge.service") }},
		{"restart of the keeper", func() { run(t, "systemctl", "restart", "ledge-keeper.service") }},
		{"kill -9 of the brain", func() { kill(t, "ledge.service") }},
		{"kill -9 of the keeper", func() { kill(t, "ledge-keeper.service") }},
		{"kill -9 of both", func() { kill(t, "ledge-keeper.service"); kill(t, "ledge.service") }},
		{"hang of the brain", func() { hang(t, "ledge.service") }},
		{"hang of the keeper", func() { hang(t, "ledge-keeper.service") }},
		{"stop of both, reload, start", func() {
			run(t, "systemctl", "stop", "ledge.service", "ledge-keeper.service")
			if got, err := podProcess(); err != nil || got != pid {
				t.Errorf("with both stopped: process %d, %v; want %d", got, err, pid)
			}
			run(t, "systemctl", "daemon-reload")
			run(t, "systemctl", "start", "ledge.service")
		}},
	} {
		c.do()
		steadyPod(t, c.name, pid)
	}
	log := run(t, "journalctl", "--no-pager", "-q", "-o", "cat", "-u", "ledge.service", "-u", "ledge-keeper.service")
	if strings.Contains(log, "219/CGROUP") {
		t.Error("systemd could not put a unit's process into its cgroup")
	}
	for _, bad := range []string{"could not be parked", "could not be taken back"} {
		if strings.Contains(log, bad) {
			t.Errorf("systemd's file descriptor store was not used: a file %s", bad)
		}
	}

	run(t, "ledge", "delete", "pod", "units")
	eventually(t, "the pod's process is gone", func() error {
		if got, err := podProcess(); err == nil {
			return fmt.Errorf("process %d is still there", got)
		}
		return nil
	})
}

const marker = "86399" // seconds of sleep: how the pod's process is found from outside

const pod = `apiVersion: v1
kind: Pod
metadata:
  name: units
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ledge.local/self
    args: ["sleep", "` + marker + `"]
`

func install(t *testing.T) {
	t.Helper()
	binary, err := os.ReadFile(os.Getenv("LEDGE_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/usr/local/bin/ledge", binary, 0o755); err != nil {
		t.Fatal(err)
	}
	units := []string{"ledge-keeper.service", "ledge.service"}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`(?m)^WatchdogSec=.*`).ReplaceAll(text, []byte("WatchdogSec=10")) // not to wait for longer
		if err := os.WriteFile(filepath.Join("/etc/systemd/system", unit), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	newer := regexp.MustCompile(`(?m)^.*Unknown key (name )?'(RestartSteps|RestartMaxDelaySec)' in section ['\[]Service['\]], ignoring\.\n`)
	if out := newer.ReplaceAllString(run(t, "systemd-analyze", "verify", "/etc/systemd/system/ledge-keeper.service", "/etc/systemd/system/ledge.service"), ""); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	run(t, "systemctl", "daemon-reload")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(output("journalctl", "--no-pager", "-q", "-n", "80", "-u", "ledge.service", "-u", "ledge-keeper.service"))
			t.Log(output("systemctl", "status", "--no-pager", "ledge.service", "ledge-keeper.service"))
		}
		output("systemctl", "stop", "ledge.service", "ledge-keeper.service")
		t.Log(output("ledge", "reset", "--data"))
		for _, unit := range units {
			if err := os.Remove(filepath.Join("/etc/systemd/system", unit)); err != nil {
				t.Error(err)
			}
		}
	})
}

// steadyPod holds what no restart may change: the process, and in the end a Ready node that reports the pod Running
// with no restart counted.
func steadyPod(t *testing.T, after string, pid int) {
	t.Helper()
	for _, unit := range []string{"ledge-keeper.service", "ledge.service"} {
		eventually(t, unit+" is active after "+after, func() error {
			if state := output("systemctl", "is-active", unit); state != "active\n" {
				return fmt.Errorf("it is %q", state)
			}
			return nil
		})
	}
	eventually(t, "after "+after+" the API answers and the pod is Running", running)
	got, err := podProcess()
	if err != nil || got != pid {
		t.Fatalf("after %s: the pod's process is %d (%v), was %d", after, got, err, pid)
	}
	if err := contains(output("ledge", "get", "pod", "units", "-o", "yaml"), "restartCount: 0"); err != nil {
		t.Errorf("after %s: %v", after, err)
	}
	t.Logf("after %s: process %d goes on", after, pid)
}

func running() error { return contains(output("ledge", "get", "pod", "units"), "Running") }

// podProcess finds the one process with the pod's command line, below kubepods.
func podProcess() (int, error) {
	found := 0
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.HasSuffix(line, []byte("sleep\x00"+marker+"\x00")) {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err != nil || !bytes.Contains(cgroup, []byte("kubepods")) {
			continue
		}
		if found != 0 {
			return 0, fmt.Errorf("two processes: %d and %d", found, pid)
		}
		found = pid
	}
	if found == 0 {
		return 0, fmt.Errorf("no process of the pod")
	}
	return found, nil
}

func kill(t *testing.T, unit string) {
	t.Helper()
	replaced(t, unit, syscall.SIGKILL)
}

// hang stops a unit's process, which then does not say that it is alive; systemd has to end it and start another.
func hang(t *testing.T, unit string) {
	t.Helper()
	replaced(t, unit, syscall.SIGSTOP)
	if err := contains(run(t, "journalctl", "--no-pager", "-q", "-o", "cat", "-u", unit), "Watchdog timeout"); err != nil {
		t.Error(err)
	}
}

// replaced sends a signal to the main process of a unit and waits until there is another.
func replaced(t *testing.T, unit string, sig syscall.Signal) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(run(t, "systemctl", "show", "-p", "MainPID", "--value", unit)))
	if err != nil || pid < 2 {
		t.Fatalf("main process of %s: %d, %v", unit, pid, err)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
	// Do not take the dead one's state for the new one's.
	eventually(t, unit+" has a new process", func() error {
		now := strings.TrimSpace(output("systemctl", "show", "-p", "MainPID", "--value", unit))
		if now == strconv.Itoa(pid) || now == "0" {
			return fmt.Errorf("main process %s", now)
		}
		return nil
	})
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// output is what a command prints; that it fails shows in what it does not print.
func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

func contains(have, want string) error {
	if !strings.Contains(have, want) {
		return fmt.Errorf("no %q in %q", want, have)
	}
	return nil
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	within := testrun.Patience(30 * time.Second)
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("not after %s: %s: %v", within, what, err)
}
