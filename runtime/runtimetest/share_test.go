package runtimetest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/runtimetest"
)

// podInit is the first process of a pod that shares its processes, by its parent and its name.
func podInit(t *testing.T, member int) int {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", member))
	if err != nil {
		t.Fatal(err)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		l, _ := os.Readlink(p + "/ns/pid")
		b, _ := os.ReadFile(p + "/status")
		if i := strings.Index(string(b), "NSpid:"); l == ns && i >= 0 {
			line, _, _ := strings.Cut(string(b)[i:], "\n")
			if f := strings.Fields(line); f[len(f)-1] == "1" {
				var pid int
				_, _ = fmt.Sscan(f[1], &pid)
				return pid
			}
		}
	}
	t.Fatal("nobody is the first process")
	return 0
}

// TestSharedProcesses (architecture: The keeper): one PID namespace, a first process that belongs to no container, costs next to
// nothing, shows nothing of the host, and takes away what is left to it.
func TestSharedProcesses(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.ShareProcess = true
	s.Ensure(t, p)
	a := s.Start(t, s.NewContainer(t, p, "ignore"))
	b := s.Start(t, s.NewContainer(t, p, "ignore"))
	ns := func(pid int, kind string) string {
		l, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := podInit(t, a.Pid)
	if first == a.Pid || first == b.Pid || ns(a.Pid, "pid") != ns(b.Pid, "pid") || ns(a.Pid, "pid") == ns(os.Getpid(), "pid") {
		t.Errorf("first process %d, containers %d and %d in %s and %s", first, a.Pid, b.Pid, ns(a.Pid, "pid"), ns(b.Pid, "pid"))
	}
	for _, kind := range []string{"mnt", "net", "ipc", "uts"} {
		if ns(first, kind) == ns(os.Getpid(), kind) {
			t.Errorf("the first process is in the host's %s namespace", kind)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", first))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
		"Uid:\t65535\t65535"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the first process: no %q in\n%s", want, status)
		}
	}
	own, _ := os.ReadFile("/proc/self/oom_score_adj") // where it may not be lowered
	if adj, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", first)); strings.TrimSpace(string(adj)) != "-998" &&
		string(adj) != string(own) {
		t.Errorf("the first process: oom_score_adj %s", adj)
	}
	c := s.NewContainer(t, p, "read", "/proc/1/root/etc", "/proc/1/root/proc/kcore")
	c.Privileged = true // whoever may look
	for line := range strings.Lines(output(t, s, c)) {
		if f := strings.Fields(line); f[1] != "0" {
			t.Errorf("through the first process: %s", line)
		}
	}
	if kb := pssOf(t, first); kb > 200 {
		t.Errorf("the first process costs %d KB, 200 is the budget", kb)
	} else {
		t.Logf("the first process costs %d KB", kb)
	}
}

// pssOf is what a process has of the memory it uses, in KB.
func pssOf(t *testing.T, pid int) (kb int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Skip(err)
	}
	if _, after, ok := strings.Cut(string(b), "\nPss:"); ok {
		_, _ = fmt.Sscan(after, &kb)
	}
	return kb
}

// TestSharedEnds: the end of a container is the end of all it started, and nobody stays a zombie; the others go on.
func TestSharedEnds(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.ShareProcess = true
	s.Ensure(t, p)
	stays := s.Start(t, s.NewContainer(t, p, "ignore"))
	dir := t.TempDir()
	c := s.NewContainer(t, p, "orphan", "/data/alive")
	c.Mounts = []runtime.Mount{{Source: dir, Target: "/data"}}
	out := output(t, s, c)
	var left int
	if _, err := fmt.Sscanf(out, "left %d", &left); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	first := podInit(t, stays.Pid)
	testrun.Succeeds(t, 10*time.Second, "what a container left behind goes", func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", first, first))
		if err != nil {
			t.Fatal(err)
		}
		if len(strings.TrimSpace(string(b))) > 0 {
			return fmt.Errorf("it has the children %s", b)
		}
		return nil
	})
	if st, _ := s.Find(t, stays.ID); st.Phase != runtime.Running {
		t.Errorf("the other container: %+v", st)
	}
	if err := s.Engine.Signal(t.Context(), stays.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if x := s.Exit(t, stays.ID); x.Code != 137 {
		t.Errorf("%+v", x)
	}
}

// TestSharedInitDies: should the first process be killed, the containers die with it and can be started again.
func TestSharedInitDies(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.ShareProcess = true
	s.Ensure(t, p)
	a := s.Start(t, s.NewContainer(t, p, "ignore"))
	if err := syscall.Kill(podInit(t, a.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if x := s.Exit(t, a.ID); x.Code != 137 {
		t.Errorf("%+v", x)
	}
	var again runtime.Status
	var err error
	c := s.NewContainer(t, p, "ignore")
	testrun.Succeeds(t, 10*time.Second, "a container starts again", func() error {
		var err error
		again, err = s.Engine.Start(t.Context(), c)
		return err
	})
	if err != nil || podInit(t, again.Pid) == again.Pid {
		t.Errorf("%+v %v", again, err)
	}
	bad := runtimetest.NewPod()
	bad.ShareProcess, bad.HostPID = true, true
	if _, err := s.Engine.EnsurePod(t.Context(), bad); err == nil {
		t.Error("both the host's processes and its own")
	}
}
