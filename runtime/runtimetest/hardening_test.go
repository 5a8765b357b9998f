package runtimetest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/runtime"
	"ledge/runtime/runtimetest"
)

// usualCaps is the set a container gets on Kubernetes by default.
var usualCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"}

const usualCapBits = "00000000a80425fb"

// TestFacts: what a container is and may do (reliability B2: CVE-2022-29162, CVE-2024-21626).
func TestFacts(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.Hostname, p.Domainname = "web-0", "example"
	s.Ensure(t, p)
	c := s.NewContainer(t, p, "facts")
	c.Capabilities, c.NoNewPrivs, c.Cwd = usualCaps, true, "/work"
	c.Rlimits = []runtime.Rlimit{{Type: "RLIMIT_CORE", Soft: 0, Hard: 0}}
	adj := 900
	c.Resources.OOMScoreAdj = &adj
	out := output(t, s, c)
	has(t, out, "CapInh 0000000000000000", "CapAmb 0000000000000000", "CapPrm "+usualCapBits, "CapEff "+usualCapBits,
		"CapBnd "+usualCapBits, "NoNewPrivs 1", "Seccomp 2", "pid 1 uid 0 gid 0 host web-0 cwd /work", "oom_score_adj 900",
		"rlimit_core 0 0", "fd 0 nonblock false mode 2 tty false true", "if lo true", "done")
	for _, mount := range []string{" /proc proc rw,nosuid,nodev,noexec", " /sys sysfs ro,nosuid,nodev,noexec",
		" /dev tmpfs rw,nosuid", " /dev/shm tmpfs rw,nosuid,nodev,noexec", " /dev/pts devpts rw,nosuid,noexec",
		" /proc/sys proc ro", " /sys/firmware tmpfs ro"} {
		if !strings.Contains(out, mount) {
			t.Errorf("no mount like %q in:\n%s", mount, out)
		}
	}
	for _, fd := range []string{"fd 1 nonblock false", "fd 2 nonblock false"} {
		if !strings.Contains(out, fd) {
			t.Errorf("%s: not so in:\n%s", fd, out)
		}
	}
	for _, dev := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdout"} {
		i := strings.Index(out, "dev ")
		if i < 0 || !slices.Contains(strings.Fields(out[i:]), dev) {
			t.Errorf("no /dev/%s in:\n%s", dev, out)
		}
	}
	for _, ns := range []string{"net", "ipc", "uts", "pid", "mnt", "cgroup"} {
		host, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil || strings.Contains(out, host) {
			t.Errorf("the %s namespace is the host's: %s %v", ns, host, err)
		}
	}
}

// TestOpenFiles: PID 1 has its three standard files and nothing else (CVE-2024-21626).
func TestOpenFiles(t *testing.T) {
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "ignore")
	c.LogPath = filepath.Join(t.TempDir(), "log")
	st := s.Start(t, c)
	awaitLog(t, c.LogPath, "ready")
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", st.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var fds []string
	for _, e := range entries {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", st.Pid, e.Name()))
		// Go itself, in the test program: its poller, and what it reads to know how many CPUs it may use.
		if !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/sys/fs/cgroup/") {
			fds = append(fds, e.Name()+" "+to)
		}
	}
	if len(fds) != 3 || !strings.HasPrefix(fds[0], "0 /dev/null") || !strings.HasPrefix(fds[1], "1 ") || !strings.HasPrefix(fds[2], "2 ") {
		t.Errorf("open files: %v", fds)
	}
}

// TestNoCaps: dropping everything leaves nothing, which libcontainer takes a non-nil set for (CVE-2019-12618).
func TestNoCaps(t *testing.T) {
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "facts")
	c.User = runtime.User{UID: 1000, GID: 2000, Groups: []uint32{3000, 4000}}
	zero := "0000000000000000"
	has(t, output(t, s, c), "CapInh "+zero, "CapPrm "+zero, "CapEff "+zero, "CapBnd "+zero, "NoNewPrivs 0", "Seccomp 2",
		"Groups 3000 4000", "done")
}

func TestUserIsNumericAndBounded(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	c := s.NewContainer(t, p, "facts")
	c.User = runtime.User{UID: 1000, GID: 2000}
	if out := output(t, s, c); !strings.Contains(out, "uid 1000 gid 2000") {
		t.Errorf("user: %s", out)
	}
	for _, uid := range []uint32{1 << 31, 1<<32 - 1} { // CVE-2024-40635
		c := s.NewContainer(t, p, "facts")
		c.User.UID = uid
		if _, err := s.Engine.Start(t.Context(), c); err == nil {
			t.Errorf("user %d was let through", uid)
		}
	}
}

// TestSeccompDefault: the default profile, with the usual capabilities and with CAP_SYS_ADMIN.
func TestSeccompDefault(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	refused := []string{"mount", "umount2", "pivot_root", "open_tree", "fsopen", "keyctl", "add_key", "request_key", "bpf",
		"perf_event_open", "kexec_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "unshare",
		"setns", "open_by_handle_at", "userfaultfd", "io_uring_setup", "quotactl", "acct", "clone", "socket", "socket-wide", "syslog"}
	c := s.NewContainer(t, p, "calls")
	c.Capabilities = usualCaps
	out := output(t, s, c)
	for _, name := range refused {
		has(t, out, "call "+name+" EPERM")
	}
	for _, name := range []string{"setproject", "setproject-wide", "setflags", "setflags-32"} {
		has(t, out, "call "+name+" inappropriate_ioctl_for_device")
	}
	has(t, out, "call getflags EBADF", "call clone3 ENOSYS", "call future ENOSYS", "call getpid ok", "call personality ok", "done")
	if strings.Contains(out, "call ptrace EPERM") {
		t.Error("ptrace is refused; kernels since 4.8 check after the tracer")
	}

	admin := s.NewContainer(t, p, "calls")
	admin.Capabilities = append([]string{"CAP_SYS_ADMIN"}, usualCaps...)
	out = output(t, s, admin)
	has(t, out, "call keyctl EPERM", "call reboot EPERM", "call finit_module EPERM", "call open_by_handle_at EPERM", "done")
	for _, name := range []string{"mount", "unshare", "setns", "bpf", "clone"} {
		if strings.Contains(out, "call "+name+" EPERM\n") {
			t.Errorf("%s is refused to CAP_SYS_ADMIN", name)
		}
	}
}

// TestSeccomp32: the calls of 32-bit x86 programs, which a 64-bit program may make too, are filtered by their own numbers. socketcall
// would open what socket is refused.
func TestSeccomp32(t *testing.T) {
	if goruntime.GOARCH != "amd64" {
		t.Skip("only amd64 has 32-bit calls in a 64-bit program")
	}
	s := inProcess(t)
	p := s.Pod(t)
	free := s.NewContainer(t, p, "calls32")
	free.Capabilities, free.Seccomp.Unconfined = usualCaps, true
	out := output(t, s, free)
	if !strings.Contains(out, "call32 getpid ok") {
		t.Skipf("this kernel has no 32-bit calls: %s", out)
	}
	has(t, out, "call32 socketcall EFAULT", "done") // it is the filter that says otherwise
	c := s.NewContainer(t, p, "calls32")
	c.Capabilities = usualCaps
	has(t, output(t, s, c), "call32 getpid ok", "call32 socket-unix ok", "call32 socketcall ENOSYS",
		"call32 socketcall-bind ENOSYS", "call32 socket EPERM", "call32 mount EPERM", "call32 vm86 EPERM", "call32 future ENOSYS", "done")
}

// TestSeccompAgain: what has the rules of an earlier container is filtered as that one was, a command too, and nothing
// else is. Filters are compiled once for all that have the same rules.
func TestSeccompAgain(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	calls := func(caps ...string) string {
		c := s.NewContainer(t, p, "calls")
		c.Capabilities = caps
		return output(t, s, c)
	}
	// The lines of calls that no filter answers are left out: what the kernel says to them differs.
	refusals := func(out string) string {
		lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
			return !strings.HasSuffix(line, " EPERM") && !strings.HasSuffix(line, " ENOSYS")
		})
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	first := refusals(calls(usualCaps...))
	has(t, first, "call mount EPERM", "call clone3 ENOSYS", "call future ENOSYS")
	admin := refusals(calls(append([]string{"CAP_SYS_ADMIN"}, usualCaps...)...))
	if strings.Contains(admin, "call mount EPERM") {
		t.Errorf("CAP_SYS_ADMIN got the filter of those without it:\n%s", admin)
	}
	if again := refusals(calls(usualCaps...)); again != first {
		t.Errorf("the second container is not filtered as the first:\n%s\nfirst:\n%s", again, first)
	}
	c := s.NewContainer(t, p, "ignore")
	c.Capabilities = usualCaps
	s.Start(t, c)
	for range 2 {
		var out runtimetest.Sink
		x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "calls"}, Stdout: &out})
		if err != nil || x.Code != 0 || refusals(out.String()) != first {
			t.Errorf("a command is not filtered as its container: %+v, %v\n%s\nfirst:\n%s", x, err, out.String(), first)
		}
	}
}

func TestSeccompChoice(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	c := s.NewContainer(t, p, "calls")
	c.Seccomp.Unconfined = true
	if out := output(t, s, c); strings.Contains(out, "call keyctl EPERM\n") || !strings.Contains(out, "done") {
		t.Errorf("unconfined and filtered:\n%s", out)
	}
	c = s.NewContainer(t, p, "calls")
	c.Seccomp.Profile = []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[
		{"names":["getpid"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]}`)
	has(t, output(t, s, c), "call getpid ENOSYS", "done")
	for _, bad := range []string{`{`, `{}`, `{"defaultAction":"X"}`,
		`{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/run/x"}`,
		`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}]}`,
		`{"defaultAction":"SCMP_ACT_ERRNO","archMap":[{"architecture":"SCMP_ARCH_X86_64"}]}`} {
		c := s.NewContainer(t, p, "calls")
		c.Seccomp.Profile = []byte(bad)
		if _, err := s.Engine.Start(t.Context(), c); err == nil {
			t.Errorf("profile %s was accepted", bad)
		}
	}
}

// TestMaskedPaths (CVE-2025-31133, GHSA-7ww5-4wqc-m92c): nothing to read, nothing to write.
func TestMaskedPaths(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	c := s.NewContainer(t, p, "read", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/interrupts", "/sys/firmware",
		"/sys/devices/virtual/powercap", "/proc/acpi")
	c.Capabilities = usualCaps
	for line := range strings.Lines(output(t, s, c)) {
		f := strings.Fields(line)
		if f[1] != "0" {
			t.Errorf("readable: %s", line)
		}
	}
	w := s.NewContainer(t, p, "write", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/panic_on_oom",
		"/sys/fs/cgroup/x", "/sys/kernel/uevent_helper", "/proc/irq/default_smp_affinity", "/etc-is-writable")
	w.Capabilities = usualCaps
	out := output(t, s, w)
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if ok := f[1] == "ok"; ok != (f[0] == "/etc-is-writable") {
			t.Errorf("write: %s", line)
		}
	}
	un := s.NewContainer(t, p, "read", "/proc/interrupts")
	un.ProcMount = "Unmasked"
	if out := output(t, s, un); strings.Contains(out, " 0 ") {
		t.Errorf("procMount Unmasked and masked: %s", out)
	}
}

func TestReadonlyRootfs(t *testing.T) {
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "write", "/x", "/data/x", "/tmp/x", "/ro/x", "/deep/down/x", "/top/sub/x", "/tree/sub/x")
	c.ReadonlyRootfs = true
	dir, deep, tree := t.TempDir(), t.TempDir(), t.TempDir()
	sub := filepath.Join(tree, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", sub, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(sub, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c.Mounts = []runtime.Mount{
		{Source: deep, Target: "/deep/down"},
		{Source: dir, Target: "/data"},
		{Source: dir, Target: "/ro", ReadOnly: true, Recursive: true},
		{Type: "tmpfs", Target: "/tmp", Options: []string{"size=1m", "mode=1777"}},
		{Source: dir, Target: "/deep", ReadOnly: true},
		{Source: tree, Target: "/top", ReadOnly: true, Recursive: true},
		{Source: tree, Target: "/tree", ReadOnly: true, Recursive: true, ReadOnlyBelow: true},
	}
	if err := os.Mkdir(filepath.Join(dir, "down"), 0o755); err != nil {
		t.Fatal(err)
	}
	has(t, output(t, s, c), "/x EROFS", "/data/x ok", "/tmp/x ok", "/ro/x EROFS", "/deep/down/x ok", "/top/sub/x ok", "/tree/sub/x EROFS")
	if _, err := os.Stat(filepath.Join(deep, "x")); err != nil {
		t.Errorf("a mount below another one: %v", err)
	}
}

// TestHostileImages: what an image has in place of /proc, /sys and /dev must not decide what is mounted where
// (CVE-2023-27561, CVE-2023-28642, CVE-2026-41579), nor its /dev/null what masks (CVE-2025-31133).
func TestHostileImages(t *testing.T) {
	s, run := inProcessDir(t)
	p := s.Pod(t)
	for _, name := range []string{"proc", "sys", "dev"} {
		for _, kind := range []string{"symlink", "file"} {
			c := s.NewContainer(t, p, "exit", "0")
			at := filepath.Join(c.Rootfs, name)
			var err error
			if kind == "symlink" {
				_ = os.Mkdir(filepath.Join(c.Rootfs, "elsewhere"), 0o755)
				err = os.Symlink("/elsewhere", at)
			} else {
				err = os.WriteFile(at, nil, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Engine.Start(t.Context(), c); err == nil {
				t.Errorf("/%s a %s: started", name, kind)
			}
			if _, err := os.Stat(filepath.Join(run, "containers", c.ID)); !os.IsNotExist(err) {
				t.Errorf("/%s a %s: left behind: %v", name, kind, err)
			}
		}
	}
	c := s.NewContainer(t, p, "read", "/proc/keys")
	if err := os.Mkdir(filepath.Join(c.Rootfs, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/sys/kernel/core_pattern", filepath.Join(c.Rootfs, "dev", "null")); err != nil {
		t.Fatal(err)
	}
	has(t, output(t, s, c), "/proc/keys 0 ok")
}

// TestWorkingDirectory: no way out through the keeper's own descriptors (CVE-2024-21626).
func TestWorkingDirectory(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	for fd := range 16 {
		c := s.NewContainer(t, p, "exit", "0")
		c.Cwd = fmt.Sprintf("/proc/self/fd/%d", fd)
		if _, err := s.Engine.Start(t.Context(), c); err == nil {
			t.Errorf("working directory %s: started", c.Cwd)
		}
	}
	c := s.NewContainer(t, p, "exit", "0")
	c.Cwd = "relative"
	if _, err := s.Engine.Start(t.Context(), c); err == nil {
		t.Error("a relative working directory: started")
	}
}

func TestPrivileged(t *testing.T) {
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "facts")
	c.Privileged = true
	out := output(t, s, c)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "CapBnd:\t")
	all, _, _ := strings.Cut(after, "\n")
	has(t, out, "CapEff "+all, "CapInh 0000000000000000", "Seccomp 0", "done")
	if strings.Contains(out, " /proc/sys proc ro") || strings.Contains(out, " /sys sysfs ro") {
		t.Errorf("a privileged container with read-only /proc/sys or /sys:\n%s", out)
	}
}

// TestEnvironment: exactly what the container asks for, and HOME.
func TestEnvironment(t *testing.T) {
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "env")
	c.Env = []string{"A=1", "B=x y", "A=2"}
	lines := strings.Split(strings.TrimSpace(output(t, s, c)), "\n")
	slices.Sort(lines)
	if got, _ := json.Marshal(lines); string(got) != `["A=2","B=x y","HOME=/"]` {
		t.Errorf("environment: %s", got)
	}
}
