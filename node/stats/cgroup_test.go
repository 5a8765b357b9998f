package stats

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// realPods makes cgroups of the kernel's for n pods of one container each, below a name of this test's own.
func realPods(t testing.TB, n int) (version int, root string, pods []Pod) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	version = 1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		version = 2
		_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0) // as systemd has it
	}
	root = "/ledge-stats-" + strconv.Itoa(os.Getpid())
	trees := []string{"/sys/fs/cgroup" + root}
	if version == 1 {
		trees = nil
		for _, c := range []string{"cpuacct", "memory", "pids"} {
			trees = append(trees, filepath.Join("/sys/fs/cgroup", c, root))
		}
	}
	var made []string
	t.Cleanup(func() {
		for i := len(made) - 1; i >= 0; i-- {
			if err := os.Remove(made[i]); err != nil {
				t.Error(err)
			}
		}
	})
	mkdir := func(dir string) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		made = append(made, dir)
		if version == 2 && filepath.Base(dir) != "c" {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0)
		}
	}
	for _, tree := range trees {
		mkdir(tree)
		for i := range n {
			mkdir(filepath.Join(tree, fmt.Sprint("pod", i)))
			mkdir(filepath.Join(tree, fmt.Sprint("pod", i), "c"))
		}
	}
	for i := range n {
		pods = append(pods, Pod{UID: fmt.Sprint(i), Name: fmt.Sprint("p", i), Cgroup: fmt.Sprint("pod", i),
			Containers: []Container{{ID: "c", Name: "c", Pid: os.Getpid()}}})
	}
	return version, root, pods
}

// TestRealCgroup: a process that burns a processor is seen to.
func TestRealCgroup(t *testing.T) {
	version, root, pods := realPods(t, 2)
	cmd := exec.Command("/bin/sh", "-c", "read go; while :; do :; done")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	dirs := []string{"/sys/fs/cgroup" + root}
	if version == 1 {
		dirs = []string{"/sys/fs/cgroup/cpuacct" + root, "/sys/fs/cgroup/memory" + root, "/sys/fs/cgroup/pids" + root}
	}
	for _, d := range dirs {
		if err := os.WriteFile(filepath.Join(d, "pod0/c/cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	c := New(Config{})
	start := time.Now()
	c.Read(start, version, root, pods)
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	var p Pass
	for end := start.Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if p = c.Read(time.Now(), version, root, pods); len(p.Pods) == 2 && p.Pods[0].CPU != nil && p.Pods[0].CPU.Total > 300*time.Millisecond {
			break
		}
	}
	if len(p.Pods) != 2 {
		t.Fatalf("%+v", p)
	}
	busy, idle := p.Pods[0].Containers[0], p.Pods[1].Containers[0]
	if busy.CPU.Total < 300*time.Millisecond || idle.CPU.Total > busy.CPU.Total/3 {
		t.Errorf("CPU of the busy one %s, of the idle one %s", busy.CPU.Total, idle.CPU.Total)
	}
	if busy.Memory == nil || busy.Pids == nil || *busy.Pids != 1 || *idle.Pids != 0 {
		t.Errorf("%+v %+v", busy.Usage, idle.Usage)
	}
	if p.Node.CPU == nil || p.Node.CPU.Total < busy.CPU.Total || p.Node.Memory == nil || p.Node.Memory.WorkingSet <= 0 {
		t.Errorf("node %+v", p.Node)
	}
}

// shell starts a script that is spoken to and listened to; whoever starts it ends it.
func shell(t *testing.T, script string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader) {
	t.Helper()
	cmd = exec.Command("/bin/sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in, out
}

// TestRealResident: a process that eats is seen to where no memory is counted.
func TestRealResident(t *testing.T) {
	version, root, pods := realPods(t, 2)
	if version == 2 {
		t.Skip("on cgroup v2 the kernel counts memory here")
	}
	const size = 24 << 20
	cmd, in, out := shell(t, fmt.Sprintf("x=$(head -c %d /dev/zero | tr '\\0' x); echo ready; read go", size))
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	mount := t.TempDir()
	for _, tree := range []string{"pids", "cpuacct"} {
		if err := os.Symlink("/sys/fs/cgroup/"+tree, filepath.Join(mount, tree)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/sys/fs/cgroup/pids"+root+"/pod0/c/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	p := New(Config{Mount: mount}).Read(time.Now(), version, root, pods)
	if len(p.Pods) != 2 || p.Pods[0].Memory == nil || p.Pods[1].Memory == nil {
		t.Fatalf("%+v", p)
	}
	if eats, idle := p.Pods[0].Containers[0].Memory.WorkingSet, p.Pods[1].Memory.WorkingSet; eats < size || eats > 4*size || idle != 0 {
		t.Errorf("who has %d has %d, who has nothing %d", size, eats, idle)
	}
}

// TestRealOOMKill: a process that the kernel kills in a container is counted while the container goes on.
func TestRealOOMKill(t *testing.T) {
	version, root, pods := realPods(t, 1)
	limit := "/sys/fs/cgroup" + root + "/pod0/c/memory.max"
	procs := []string{"/sys/fs/cgroup" + root}
	if version == 1 {
		limit = "/sys/fs/cgroup/memory" + root + "/pod0/c/memory.limit_in_bytes"
		procs = []string{"/sys/fs/cgroup/cpuacct" + root, "/sys/fs/cgroup/memory" + root, "/sys/fs/cgroup/pids" + root}
	}
	if err := os.WriteFile(limit, []byte("16777216"), 0); err != nil {
		t.Fatal(err)
	}
	// tail keeps a line without an end in memory.
	cmd, in, out := shell(t, "read go; head -c 64000000 /dev/zero | tail >/dev/null; echo on; read end")
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for _, d := range procs {
		if err := os.WriteFile(filepath.Join(d, "pod0/c/cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	c := New(Config{})
	if p := c.Read(time.Now(), version, root, pods); len(p.Pods) != 1 || p.Pods[0].Containers[0].OOMKills != 0 {
		t.Fatalf("before: %+v", p.Pods)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if p := c.Read(time.Now(), version, root, pods); len(p.Pods) != 1 || p.Pods[0].Containers[0].OOMKills != 1 {
		t.Errorf("after: %+v", p.Pods)
	}
}

// cpuOfLoop reports the processor time of a benchmark's loop: on a machine that does other things too, the clock tells little.
func cpuOfLoop(b *testing.B, loop func()) {
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	loop()
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
}

// BenchmarkPass50 is one pass over 50 pods of one container each: what is paid each 15 seconds. A budget of 0.2 % of a
// core (architecture: Budgets) would be 30 ms.
func BenchmarkPass50(b *testing.B) {
	version, root, pods := realPods(b, 50)
	c := New(Config{})
	b.ReportAllocs()
	cpuOfLoop(b, func() {
		for b.Loop() {
			if p := c.Read(time.Now(), version, root, pods); len(p.Pods) != 50 {
				b.Fatalf("%d pods", len(p.Pods))
			}
		}
	})
}

// BenchmarkGroup50 is what a glance reads of 50 pods when it matters how much all of them have left.
func BenchmarkGroup50(b *testing.B) {
	version, root, _ := realPods(b, 50)
	limit := "/sys/fs/cgroup" + root + "/memory.max"
	if version == 1 {
		limit = "/sys/fs/cgroup/memory" + root + "/memory.limit_in_bytes"
	}
	if err := os.WriteFile(limit, []byte("1073741824"), 0); err != nil {
		b.Fatal(err)
	}
	c := New(Config{})
	b.ReportAllocs()
	cpuOfLoop(b, func() {
		for b.Loop() {
			if _, n, ok := c.Group(version, root); !ok || n != 1<<30 {
				b.Fatalf("%d %v", n, ok)
			}
		}
	})
}
