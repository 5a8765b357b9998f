package systemd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"ledge/internal/testrun"
)

// TestUnitsUnderSystemd installs the package and proves that a pod outlives every restart of either unit and an upgrade,
// with the same process, and what a removal and a purge leave. It takes the machine over (paths, port 6443), so it runs
// only where that is thrown away: in the guest, and in what TestPackageInContainer makes.
func TestUnitsUnderSystemd(t *testing.T) {
	contained := os.Getenv(inContainer) != ""
	if os.Getenv("LEDGE_VM") == "" && !contained {
		t.Skip("takes a whole machine with systemd: make test-vm runs it")
	}
	m := machine{t: t, bus: bus(t)}
	// A brain that hangs is to be ended sooner than after the unit's minute and a half.
	const quick = "/run/systemd/system/ledge.service.d"
	if err := errors.Join(os.MkdirAll(quick, 0o755),
		os.WriteFile(quick+"/quick.conf", []byte("[Service]\nWatchdogSec=30\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	m.install()
	eventually(t, "the node is Ready", nodeReady)
	if err := contains(run(t, "ledge", "get", "nodes"), " Ready "); err != nil {
		t.Error(err)
	}

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
	m.steadyPod("start", pid)

	for _, c := range []struct {
		name string
		do   func()
	}{
		{"restart of the keeper", func() { run(t, "systemctl", "restart", "ledge-keeper.service") }},
		{"kill -9 of the brain", func() { m.kill("ledge.service") }},
		{"kill -9 of the keeper", func() { m.kill("ledge-keeper.service") }},
		{"kill -9 of both", func() { m.kill("ledge-keeper.service"); m.kill("ledge.service") }},
		// It also ends the row of deaths: the third would bring safe mode, in which the node is not Ready.
		{"restart of the brain", func() { run(t, "systemctl", "restart", "ledge.service") }},
		{hangOf + "brain", func() { m.hang("ledge.service") }},
		{hangOf + "keeper", func() { m.hang("ledge-keeper.service") }},
		{"stop of both, reload, start", func() {
			run(t, "systemctl", "stop", "ledge.service", "ledge-keeper.service")
			if got, err := podProcess(); err != nil || got != pid {
				t.Errorf("with both stopped: process %d, %v; want %d", got, err, pid)
			}
			run(t, "systemctl", "daemon-reload")
			run(t, "systemctl", "start", "ledge.service")
		}},
	} {
		if contained && strings.HasPrefix(c.name, hangOf) { // half a minute each: the guest has them
			continue
		}
		c.do()
		m.steadyPod(c.name, pid)
	}
	if err := os.RemoveAll(quick); err != nil {
		t.Error(err)
	}
	log := run(t, "journalctl", "--no-pager", "-q", "-o", "cat", "-u", "ledge.service", "-u", "ledge-keeper.service")
	if strings.Contains(log, "219/CGROUP") {
		t.Error("systemd could not put a unit's process into its cgroup")
	}
	for _, unit := range units { // that hung: it was their silence that ended them
		if err := contains(log, unit+": Watchdog timeout"); err != nil && !contained {
			t.Error(err)
		}
	}
	for _, bad := range []string{"could not be parked", "could not be taken back"} {
		if strings.Contains(log, bad) {
			t.Errorf("systemd's file descriptor store was not used: a file %s", bad)
		}
	}

	m.upgrade(pid)
	run(t, "ledge", "delete", "pod", "later")
	if os.Getenv("LEDGE_LONG") != "" {
		m.joinAndLeave()
		if now, err := podProcess(); err == nil { // it ended while the board was another's
			pid = now
		}
	}
	removeAndInstall(t, pid)
	purge(t)
}

const hangOf = "hang of the " // before the name of a step

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

// machine is systemd, asked over its bus: a process for each question would cost the emulated guest most of the test.
type machine struct {
	t   *testing.T
	bus *dbus.Conn
}

func bus(t *testing.T) *dbus.Conn {
	t.Helper()
	c, err := dbus.NewSystemConnectionContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (m machine) active(unit string) error {
	p, err := m.bus.GetUnitPropertyContext(m.t.Context(), unit, "ActiveState")
	if err != nil {
		return err
	}
	if state := p.Value.Value(); state != "active" {
		return fmt.Errorf("it is %q", state)
	}
	return nil
}

// mainPID is 0 where there is none.
func (m machine) mainPID(unit string) (int, error) {
	p, err := m.bus.GetUnitTypePropertyContext(m.t.Context(), unit, "Service", "MainPID")
	if err != nil {
		return 0, err
	}
	pid, _ := p.Value.Value().(uint32)
	return int(pid), nil
}

// steadyPod holds what no restart may change: the process, and in the end a Ready node that reports the pod Running
// with no restart counted.
func (m machine) steadyPod(after string, pid int) {
	m.t.Helper()
	for _, unit := range units {
		eventually(m.t, unit+" is active after "+after, func() error { return m.active(unit) })
	}
	eventually(m.t, "after "+after+" the API answers, the node is Ready and the pod Running", func() error {
		if err := nodeReady(); err != nil {
			return err
		}
		return running()
	})
	got, err := podProcess()
	if err != nil || got != pid {
		m.t.Fatalf("after %s: the pod's process is %d (%v), was %d", after, got, err, pid)
	}
	m.t.Logf("%s: after %s: process %d goes on", time.Now().Format(time.TimeOnly), after, pid)
}

// object is what is looked at of a Node and a Pod.
type object struct {
	Status struct {
		Phase             string
		Conditions        []struct{ Type, Status string }
		ContainerStatuses []struct{ RestartCount int }
	}
}

var client = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", "/run/ledge/ledge.sock")
	}}}

func ask(path string, to any) error {
	resp, err := client.Get("http://ledge" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(to)
}

func nodeReady() error {
	var list struct{ Items []object }
	if err := ask("/api/v1/nodes", &list); err != nil {
		return err
	}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
	}
	return fmt.Errorf("no Ready node in %+v", list)
}

// running fails for a pod that does not run, or that was started more than once.
func running() error {
	var o object
	if err := ask("/api/v1/namespaces/default/pods/units", &o); err != nil {
		return err
	}
	if s := o.Status; s.Phase != "Running" || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].RestartCount != 0 {
		return fmt.Errorf("the pod is %+v", s)
	}
	return nil
}

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

func (m machine) kill(unit string) {
	m.t.Helper()
	m.replaced(unit, syscall.SIGKILL)
}

// hang stops a unit's process, which then does not say that it is alive; systemd has to end it and start another.
func (m machine) hang(unit string) {
	m.t.Helper()
	m.replaced(unit, syscall.SIGSTOP)
}

// replaced sends a signal to the main process of a unit and waits until there is another.
func (m machine) replaced(unit string, sig syscall.Signal) {
	m.t.Helper()
	pid, err := m.mainPID(unit)
	if err != nil || pid < 2 {
		m.t.Fatalf("main process of %s: %d, %v", unit, pid, err)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		m.t.Fatal(err)
	}
	// Do not take the dead one's state for the new one's.
	eventually(m.t, unit+" has a new process", func() error {
		if now, err := m.mainPID(unit); err != nil || now == pid || now == 0 {
			return fmt.Errorf("main process %d, %w", now, err)
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
	testrun.Succeeds(t, 30*time.Second, what, f)
}
