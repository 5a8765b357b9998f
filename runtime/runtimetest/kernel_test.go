package runtimetest_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/runtimetest"
)

// output runs a container to its end and gives its log's text, both streams, without times and tags.
func output(t *testing.T, s runtimetest.Setup, c runtime.Container) string {
	t.Helper()
	c.LogPath = filepath.Join(t.TempDir(), "log")
	s.Start(t, c)
	s.Exit(t, c.ID)
	return logText(t, c.LogPath)
}

func logText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		f := strings.SplitN(line, " ", 4)
		if len(f) != 4 || f[1] != "stdout" && f[1] != "stderr" || f[2] != "F" && f[2] != "P" {
			t.Fatalf("not a line of a CRI log: %q", line)
		}
		if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil {
			t.Fatalf("not a line of a CRI log: %q: %v", line, err)
		}
		if f[2] == "P" {
			f[3] = strings.TrimSuffix(f[3], "\n")
		}
		out.WriteString(f[3])
	}
	return out.String()
}

// awaitLog waits for text in a log.
func awaitLog(t *testing.T, path, text string) {
	t.Helper()
	testrun.Succeeds(t, 30*time.Second, fmt.Sprintf("%q appears in the log", text), func() error {
		if log := logText(t, path); !strings.Contains(log, text) {
			return fmt.Errorf("there is:\n%s", log)
		}
		return nil
	})
}

func has(t *testing.T, out string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+out, "\n"+l+"\n") {
			t.Errorf("missing %q in:\n%s", l, out)
		}
	}
}

// TestRefused: what cannot be done is refused with nothing left, never ignored.
func TestRefused(t *testing.T) {
	s, run := inProcessDir(t)
	p := s.Pod(t)
	for name, change := range map[string]func(*runtime.Container){
		"unknown capability": func(c *runtime.Container) { c.Capabilities = []string{"CAP_NO_SUCH"} },
		"unknown rlimit":     func(c *runtime.Container) { c.Rlimits = []runtime.Rlimit{{Type: "RLIMIT_X"}} },
		"soft above hard":    func(c *runtime.Container) { c.Rlimits = []runtime.Rlimit{{Type: "RLIMIT_CORE", Soft: 2, Hard: 1}} },
		"unknown proc mount": func(c *runtime.Container) { c.ProcMount = "Other" },
		"no rootfs":          func(c *runtime.Container) { c.Rootfs = filepath.Join(c.Rootfs, "missing") },
		"the host's root":    func(c *runtime.Container) { c.Rootfs = "/" },
		"no command":         func(c *runtime.Container) { c.Args = nil },
		"not executable":     func(c *runtime.Container) { c.Args = []string{"/dev/null"} },
		"mount over /":       func(c *runtime.Container) { c.Mounts = []runtime.Mount{{Source: "/etc", Target: "/"}} },
		"mount over / by ..": func(c *runtime.Container) { c.Mounts = []runtime.Mount{{Source: "/etc", Target: "/a/.."}} },
		"mount over /proc":   func(c *runtime.Container) { c.Mounts = []runtime.Mount{{Source: "/etc", Target: "/proc"}} },
		"mount inside /proc": func(c *runtime.Container) { c.Mounts = []runtime.Mount{{Source: "/etc", Target: "/proc/sys"}} },
		"relative target":    func(c *runtime.Container) { c.Mounts = []runtime.Mount{{Source: "/etc", Target: "etc"}} },
		"missing source":     func(c *runtime.Container) { c.Mounts = []runtime.Mount{{Source: "/no/such", Target: "/x"}} },
		"unknown mount type": func(c *runtime.Container) { c.Mounts = []runtime.Mount{{Type: "nfs", Target: "/x"}} },
		"unknown propagation": func(c *runtime.Container) {
			c.Mounts = []runtime.Mount{{Source: "/etc", Target: "/x", Propagation: "y"}}
		},
		"option for no bind": func(c *runtime.Container) {
			c.Mounts = []runtime.Mount{{Source: "/etc", Target: "/x", Options: []string{"size=1"}}}
		},
		"nonsense tmpfs": func(c *runtime.Container) {
			c.Mounts = []runtime.Mount{{Type: "tmpfs", Target: "/x", Options: []string{"nonsense"}}}
		},
		"nonsense cpus":        func(c *runtime.Container) { c.Resources.CPUSet = "100-200" },
		"working dir a file":   func(c *runtime.Container) { c.Cwd = runtimetest.Program },
		"unknown unified file": func(c *runtime.Container) { c.Resources.Unified = map[string]string{"no.such": "1"} },
	} {
		c := s.NewContainer(t, p, "exit", "0")
		change(&c)
		if _, err := s.Engine.Start(t.Context(), c); err == nil {
			t.Errorf("%s: started", name)
		}
		if _, err := os.Stat(filepath.Join(run, "containers", c.ID)); !os.IsNotExist(err) {
			t.Errorf("%s: left behind: %v", name, err)
		}
		for _, dir := range podCgroups(t, cgroupRoot()) {
			if _, err := os.Stat(filepath.Join(dir, c.ID)); !os.IsNotExist(err) {
				t.Errorf("%s: left behind: cgroup %s: %v", name, dir, err)
			}
		}
	}
	for name, change := range map[string]func(*runtime.Pod){
		"cgroup outside":       func(p *runtime.Pod) { p.Cgroup = "../x" },
		"absolute cgroup":      func(p *runtime.Pod) { p.Cgroup = "/x" },
		"no cgroup":            func(p *runtime.Pod) { p.Cgroup = "" },
		"the board's sysctl":   func(p *runtime.Pod) { p.Sysctls = map[string]string{"vm.swappiness": "1"} },
		"a path as a sysctl":   func(p *runtime.Pod) { p.Sysctls = map[string]string{"net/../vm/swappiness": "1"} },
		"the host's network":   func(p *runtime.Pod) { p.HostNetwork = true; p.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"} },
		"the host's IPC":       func(p *runtime.Pod) { p.HostIPC = true; p.Sysctls = map[string]string{"kernel.shmmax": "1"} },
		"no such sysctl":       func(p *runtime.Pod) { p.Sysctls = map[string]string{"net.no_such": "1"} },
		"a host name too long": func(p *runtime.Pod) { p.Hostname = strings.Repeat("x", 70) },
	} {
		bad := runtimetest.NewPod()
		change(&bad)
		if _, err := s.Engine.EnsurePod(t.Context(), bad); err == nil {
			t.Errorf("%s: made", name)
			_ = s.Engine.RemovePod(t.Context(), bad.UID)
		}
		if _, err := os.Stat(filepath.Join(run, "pods", bad.UID)); !os.IsNotExist(err) {
			t.Errorf("%s: left behind: %v", name, err)
		}
	}
	s.Left(t)
}

// TestPodShares: the containers of a pod share network, IPC, host name and /dev/shm, and nothing else.
func TestPodShares(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "80", "kernel.shmmax": "4096"}
	st := s.Ensure(t, p)
	a, b := s.NewContainer(t, p, "ignore"), s.NewContainer(t, p, "ignore")
	a.Mounts = nil
	sa, sb := s.Start(t, a), s.Start(t, b)
	ns := func(pid int, kind string) string {
		l, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for kind, shared := range map[string]bool{"net": true, "ipc": true, "uts": true, "pid": false, "mnt": false, "cgroup": false} {
		if same := ns(sa.Pid, kind) == ns(sb.Pid, kind); same != shared {
			t.Errorf("%s: shared %v, want %v", kind, same, shared)
		}
		if ns(sa.Pid, kind) == ns(os.Getpid(), kind) {
			t.Errorf("%s is the host's", kind)
		}
	}
	var pinned, in unix.Stat_t
	if err := unix.Stat(st.NetNS, &pinned); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", sa.Pid), &in); err != nil || in.Ino != pinned.Ino {
		t.Errorf("NetNS is not the containers': %v", err)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/dev/shm/x", sa.Pid), []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/shm/x", sb.Pid)); err != nil {
		t.Errorf("/dev/shm is not shared: %v", err)
	}
	c := s.NewContainer(t, p, "read", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/kernel/shmmax")
	has(t, output(t, s, c), "/proc/sys/net/ipv4/ip_unprivileged_port_start 3 ok", "/proc/sys/kernel/shmmax 5 ok")
	if b, err := os.ReadFile("/proc/sys/kernel/shmmax"); err != nil || string(b) == "4096\n" {
		t.Errorf("the board's shmmax was changed: %s %v", b, err)
	}
}

func TestHostNamespaces(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.HostNetwork, p.HostPID, p.HostIPC, p.Hostname = true, true, true, "ignored"
	s.Ensure(t, p)
	out := output(t, s, s.NewContainer(t, p, "facts"))
	for kind, host := range map[string]bool{"net": true, "ipc": true, "uts": true, "pid": true, "mnt": false} {
		l, _ := os.Readlink("/proc/self/ns/" + kind)
		if got := strings.Contains(out, l); got != host {
			t.Errorf("%s namespace: the host's %v, want %v", kind, got, host)
		}
	}
	if name, _ := os.Hostname(); !strings.Contains(out, "host "+name+" ") {
		t.Errorf("the host's name was not kept: %s", out)
	}
}

// TestOrphans: with the host's PID namespace the end of the first process is still the end of all (and SIGKILL
// reaches all).
func TestOrphans(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.HostPID = true
	s.Ensure(t, p)
	dir := t.TempDir()
	c := s.NewContainer(t, p, "orphan", "/data/alive")
	c.Mounts = []runtime.Mount{{Source: dir, Target: "/data"}}
	out := output(t, s, c)
	var pid int
	if _, err := fmt.Sscanf(out, "left %d", &pid); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	testrun.Until(t, 10*time.Second, "the process ends with its container", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

// TestOOM (N-7.44): the kernel's own count decides.
func TestOOM(t *testing.T) {
	s := inProcess(t)
	needController(t, s, "memory")
	p := s.Pod(t)
	none := int64(0)
	limit := runtime.Resources{MemoryBytes: 48 << 20, SwapBytes: &none, KillAllOnOOM: true}
	c := s.NewContainer(t, p, "eat", "200")
	c.Resources = limit
	s.Start(t, c)
	x := s.Exit(t, c.ID)
	if !x.OOMKilled || x.Code != 137 || x.Signal != 9 {
		t.Errorf("eating more than there is: %+v", x)
	}
	// a kernel before 5.19 does not tell; the last page may count beyond the limit
	if x.MemoryLimit != 48<<20 || x.MemoryPeak > 49<<20 || x.MemoryPeak < 40<<20 && x.MemoryPeak != 0 {
		t.Errorf("it had %d of %d", x.MemoryPeak, x.MemoryLimit)
	}
	killed := s.NewContainer(t, p, "ignore")
	killed.Resources = limit
	s.Start(t, killed)
	if err := s.Engine.Signal(t.Context(), killed.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if x := s.Exit(t, killed.ID); x.OOMKilled || x.Code != 137 || x.MemoryLimit != 0 {
		t.Errorf("SIGKILL without want of memory: %+v", x)
	}
}

// TestPodMemory: the limit of the pod holds for all its containers together (N-7.42).
func TestPodMemory(t *testing.T) {
	s := inProcess(t)
	needController(t, s, "memory")
	p := runtimetest.NewPod()
	none := int64(0)
	p.Resources = runtime.Resources{MemoryBytes: 48 << 20, SwapBytes: &none}
	s.Ensure(t, p)
	c := s.NewContainer(t, p, "eat", "200")
	s.Start(t, c)
	if x := s.Exit(t, c.ID); !x.OOMKilled || x.Code != 137 || x.MemoryLimit != 48<<20 {
		t.Errorf("eating more than the pod has: %+v", x)
	}
}

func TestPidsLimit(t *testing.T) {
	s := inProcess(t)
	needController(t, s, "pids")
	c := s.NewContainer(t, s.Pod(t), "forkbomb")
	c.Resources.PidsLimit = 40
	if out := output(t, s, c); !strings.Contains(out, "stopped after") {
		t.Errorf("a fork bomb: %s", out)
	}
}

// TestCgroupFiles: what is asked for is what the kernel has (N-7.40, N-7.41, N-7.44, N-8.9).
func TestCgroupFiles(t *testing.T) {
	s := inProcess(t)
	needController(t, s, "memory")
	needController(t, s, "cpu")
	p := runtimetest.NewPod()
	p.Cgroup = "kubepods/burstable/pod" + p.UID
	none := int64(0)
	p.Resources = runtime.Resources{CPUShares: 1024, PidsLimit: 200}
	s.Ensure(t, p)
	c := s.NewContainer(t, p, "ignore")
	c.Resources = runtime.Resources{CPUShares: 512, CPUQuotaUS: 20000, CPUPeriodUS: 100000, MemoryBytes: 64 << 20, SwapBytes: &none,
		PidsLimit: 100, KillAllOnOOM: true, IOWeight: 55}
	s.Start(t, c)
	info, err := s.Engine.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"cpu//cpu.shares": "1024", "pids//pids.max": "200",
		"cpu/c/cpu.shares": "512", "cpu/c/cpu.cfs_quota_us": "20000", "cpu/c/cpu.cfs_period_us": "100000",
		"memory/c/memory.limit_in_bytes": "67108864", "memory/c/memory.memsw.limit_in_bytes": "67108864", "pids/c/pids.max": "100",
	}
	if info.CgroupVersion == 2 {
		want = map[string]string{
			"//cpu.weight": "39", "//pids.max": "200",
			"/c/cpu.weight": "20", "/c/cpu.max": "20000 100000", "/c/memory.max": "67108864", "/c/memory.swap.max": "0",
			"/c/memory.oom.group": "1", "/c/pids.max": "100", "/c/io.weight": "default 55",
		}
	}
	for file, val := range want {
		part := strings.Split(file, "/")
		dir := filepath.Join("/sys/fs/cgroup", part[0], cgroupRoot(), p.Cgroup)
		if part[1] == "c" {
			dir = filepath.Join(dir, c.ID)
		}
		b, err := os.ReadFile(filepath.Join(dir, part[2]))
		if os.IsNotExist(err) && strings.Contains(file, "sw") {
			continue // no swap accounting in this kernel (N-8.8)
		}
		if os.IsNotExist(err) && part[2] == "io.weight" {
			continue // nothing in this kernel shares out I/O by weight
		}
		if err != nil || strings.TrimSpace(string(b)) != val {
			t.Errorf("%s: %q %v, want %s", file, b, err, val)
		}
	}
}

// TestLimitFiles: a limit that is changed is changed in the kernel, for one container, its pod and what pods stand in,
// and a restart of the keeper is told (N-7.42 to N-7.44).
func TestLimitFiles(t *testing.T) {
	s := inProcess(t)
	needController(t, s, "memory")
	needController(t, s, "cpu")
	p := runtimetest.NewPod()
	p.Cgroup = "kubepods/burstable/pod" + p.UID
	p.Resources = runtime.Resources{CPUShares: 512, MemoryBytes: 128 << 20}
	s.Ensure(t, p)
	none := int64(0)
	c := s.NewContainer(t, p, "ignore")
	c.Resources = runtime.Resources{CPUShares: 512, MemoryBytes: 64 << 20, SwapBytes: &none}
	s.Start(t, c)
	l := s.Engine.(runtime.Limiter)
	for _, step := range []struct {
		at runtime.Place
		r  runtime.Resources
	}{
		{runtime.Place{Group: "kubepods"}, runtime.Resources{MemoryBytes: 1 << 30}},
		{runtime.Place{Group: "kubepods/burstable"}, runtime.Resources{CPUShares: 2048}},
		{runtime.Place{Pod: p.UID}, runtime.Resources{CPUShares: 2048, MemoryBytes: 256 << 20}},
		{runtime.Place{Container: c.ID}, runtime.Resources{CPUShares: 1024, MemoryBytes: 200 << 20, SwapBytes: &none}},
		{runtime.Place{Container: c.ID}, runtime.Resources{MemoryBytes: 96 << 20, SwapBytes: &none}},
	} {
		if err := l.Limit(t.Context(), step.at, step.r); err != nil {
			t.Fatalf("%+v: %v", step.at, err)
		}
	}
	if err := l.Limit(t.Context(), runtime.Place{Container: c.ID}, runtime.Resources{MemoryBytes: 64 << 10}); err == nil {
		t.Error("a limit below what is in use was set; the OOM killer would have enforced it")
	}
	v2 := waitReady(t, s.Engine).CgroupVersion == 2
	for _, f := range []struct{ v1, v2, dir, want1, want2 string }{
		{"memory/memory.limit_in_bytes", "memory.max", "kubepods", "1073741824", "1073741824"},
		{"cpu/cpu.shares", "cpu.weight", "kubepods/burstable", "2048", "79"},
		{"cpu/cpu.shares", "cpu.weight", p.Cgroup, "2048", "79"},
		{"memory/memory.limit_in_bytes", "memory.max", p.Cgroup, "268435456", "268435456"},
		{"cpu/cpu.shares", "cpu.weight", filepath.Join(p.Cgroup, c.ID), "1024", "39"},
		{"memory/memory.limit_in_bytes", "memory.max", filepath.Join(p.Cgroup, c.ID), "100663296", "100663296"},
	} {
		controller, file := filepath.Split(f.v1)
		want := f.want1
		if v2 {
			controller, file, want = "", f.v2, f.want2
		}
		b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, cgroupRoot(), f.dir, file))
		if err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("%s of %s: %q %v, want %s", file, f.dir, b, err, want)
		}
	}
}

func needController(t *testing.T, s runtimetest.Setup, name string) {
	t.Helper()
	info := waitReady(t, s.Engine)
	dir := "/sys/fs/cgroup/" + name
	if info.CgroupVersion == 2 {
		dir = "/sys/fs/cgroup/cgroup.controllers"
		if b, err := os.ReadFile(dir); err != nil || !slices.Contains(strings.Fields(string(b)), name) {
			t.Skipf("no %s controller on this machine", name)
		}
	} else if _, err := os.Stat(dir); err != nil {
		t.Skipf("no %s controller on this machine", name)
	}
}

func TestStdin(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	closed, open := s.NewContainer(t, p, "stdin"), s.NewContainer(t, p, "stdin")
	open.Stdin = true
	closed.LogPath, open.LogPath = filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	s.Start(t, closed)
	s.Start(t, open)
	awaitLog(t, closed.LogPath, "stdin 0 EOF")
	if text := logText(t, open.LogPath); text != "" {
		t.Errorf("an open standard input ended: %s", text)
	}
}

func TestTTY(t *testing.T) {
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "facts")
	c.TTY = true
	out := strings.ReplaceAll(output(t, s, c), "\r", "")
	has(t, out, "fd 0 nonblock false mode 2 tty true true", "fd 1 nonblock false mode 2 tty true true",
		"fd 2 nonblock false mode 2 tty true true", "done")
}

// TestNothingGrows: what a container costs is given back: descriptors, goroutines, zombies; and the main thread is
// where it was, since everything that asks /proc/self gets its answer from there.
func TestNothingGrows(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	where := func() string {
		var out []string
		for _, ns := range []string{"net", "ipc", "uts", "mnt", "cgroup"} {
			l, err := os.Readlink("/proc/self/ns/" + ns)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, l)
		}
		return strings.Join(out, " ")
	}
	before := where()
	round := func(n int) {
		for range n {
			p := runtimetest.NewPod()
			if _, err := s.Engine.EnsurePod(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			ok, bad := s.NewContainer(t, p, "exit", "0"), s.NewContainer(t, p, "exit", "0")
			bad.Args = []string{"/no/such"}
			s.Start(t, ok)
			if _, err := s.Engine.Start(t.Context(), bad); err == nil {
				t.Fatal("started")
			}
			s.Exit(t, ok.ID)
			if err := s.Engine.RemovePod(t.Context(), p.UID); err != nil {
				t.Fatal(err)
			}
		}
	}
	round(3)
	had := held()
	round(10)
	had.stays(t)
	if after := where(); after != before {
		t.Errorf("the main thread moved from %s to %s", before, after)
	}
}

// holdings are what this process has.
type holdings struct {
	files      []string
	goroutines int
	zombies    int
}

// held looks, after what libcontainer leaves to the garbage collector has gone: the descriptor of each process, and after
// a failed start one of a FIFO.
func held() (h holdings) {
	goruntime.GC()
	time.Sleep(50 * time.Millisecond) // finalizers have a goroutine of their own
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil {
			h.files = append(h.files, to)
		}
	}
	h.zombies = zombiesOf(os.Getpid())
	h.goroutines = goruntime.NumGoroutine()
	return h
}

// zombiesOf counts the children of a process that nobody has waited for.
func zombiesOf(pid int) (n int) {
	procs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), fmt.Sprintf(") Z %d ", pid)) {
			n++
		}
	}
	return n
}

// stays fails if there is more now. A leak shows ten times; one or two more can be the Go runtime's own, opened when
// first needed.
func (h holdings) stays(t *testing.T) {
	t.Helper()
	now := held()
	for end := time.Now().Add(testrun.Patience(5 * time.Second)); time.Now().Before(end); now = held() {
		if len(now.files) <= len(h.files)+3 && now.goroutines <= h.goroutines+3 && now.zombies == 0 {
			return
		}
	}
	t.Errorf("this process had %+v, then %+v", h, now)
}

// TestHugePageFiles: the sizes that are asked for are bounded by that, all others to nothing.
func TestHugePageFiles(t *testing.T) {
	s := inProcess(t)
	needController(t, s, "hugetlb")
	sizes, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil || len(sizes) == 0 {
		t.Skip("this kernel has no huge pages")
	}
	p := s.Pod(t)
	c := s.NewContainer(t, p, "ignore")
	c.Resources.HugePages = map[int64]int64{2 << 20: 4 << 20}
	s.Start(t, c)
	root := "/sys/fs/cgroup/hugetlb"
	file := func(size string) string { return "hugetlb." + size + ".limit_in_bytes" }
	if waitReady(t, s.Engine).CgroupVersion == 2 {
		root, file = "/sys/fs/cgroup", func(size string) string { return "hugetlb." + size + ".max" }
	}
	for size, want := range map[string]string{"2MB": "4194304", "1GB": "0"} {
		b, err := os.ReadFile(filepath.Join(root, cgroupRoot(), p.Cgroup, c.ID, file(size)))
		if os.IsNotExist(err) {
			continue // not of this architecture
		}
		if err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("%s: %q %v, want %s", file(size), b, err, want)
		}
	}
	odd := s.NewContainer(t, p, "exit", "0")
	odd.Resources.HugePages = map[int64]int64{3 << 20: 6 << 20}
	if _, err := s.Engine.Start(t.Context(), odd); err == nil {
		t.Error("huge pages of 3 MiB: started")
	}
}
