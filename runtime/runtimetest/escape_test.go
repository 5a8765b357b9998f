package runtimetest_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/libct"
	"ledge/runtime/runtimetest"
)

// The known ways out of containers (reliability B2), each with its test:
//
//	CVE-2019-5736    TestHostProgram
//	CVE-2021-30465   TestSwappedTarget
//	CVE-2022-29162   TestFacts, TestExecFacts
//	CVE-2023-27561, 2023-28642, 2026-41579  TestHostileImages; CVE-2023-25809  TestMaskedPaths
//	CVE-2024-21626   TestWorkingDirectory, TestExecDirectory, TestOpenFiles
//	CVE-2024-45310   TestSwappedTarget
//	CVE-2025-31133   TestHostileImages
//	CVE-2025-52565   TestHostileTerminal
//	CVE-2025-52881   TestSwappedProc
//	CVE-2026-119101  TestNoRestore
//	eBPF of 6.17     TestDevicesStayClosed
//	CVE-2020-15257   TestNoAbstractSocket, TestSocket

// tries is how often a race is run: enough to be lost often where nothing guards against it.
func tries() int {
	if os.Getenv("LEDGE_LONG") != "" {
		return 1000
	}
	return 24
}

func checksum(t *testing.T, path string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// TestHostProgram (CVE-2019-5736): every start and every exec runs our own program for a moment inside the container,
// where root may look at it. Nobody gets to write to it, by whatever name.
func TestHostProgram(t *testing.T) {
	testrun.OnHost(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	before := checksum(t, self)
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.ShareProcess = true // the attacker sees all processes of the pod
	s.Ensure(t, p)
	attacker := s.NewContainer(t, p, "openexe")
	attacker.Capabilities = append([]string{"CAP_SYS_PTRACE"}, usualCaps...)
	attacker.LogPath = filepath.Join(t.TempDir(), "log")
	s.Start(t, attacker)
	awaitLog(t, attacker.LogPath, "ready")
	victim := s.NewContainer(t, p, "ignore")
	s.Start(t, victim)
	var wg sync.WaitGroup
	wg.Go(func() { // the kernel runs our program again as the interpreter of a script
		for range tries() / 2 {
			c := s.NewContainer(t, p)
			c.Args = []string{"/evil"}
			if err := os.WriteFile(filepath.Join(c.Rootfs, "evil"), []byte("#!/proc/self/exe -test.run=^$\n"), 0o755); err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Engine.Start(t.Context(), c); err == nil {
				_ = s.Engine.Remove(t.Context(), c.ID)
			}
		}
	})
	for range tries() {
		if x, err := s.Engine.Exec(t.Context(),
			runtime.Exec{Container: victim.ID, Args: []string{runtimetest.Program, "exit", "0"}}); err != nil || x.Code != 0 {
			t.Fatalf("%+v %v", x, err)
		}
	}
	wg.Wait()
	if text := logText(t, attacker.LogPath); strings.Contains(text, "opened") {
		t.Errorf("a container opened for writing what is not its own:\n%s", text)
	}
	if checksum(t, self) != before {
		t.Error("the host's program was changed")
	}
}

// race has one container exchange a directory of a shared volume with a symbolic link while others are started that mount
// something below it. to is where the link leads; each is told of every container that came to start.
func race(t *testing.T, s runtimetest.Setup, p runtime.Pod, to string, m runtime.Mount, args []string, each func(c runtime.Container)) {
	t.Helper()
	volume := t.TempDir()
	if err := os.Mkdir(filepath.Join(volume, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, filepath.Join(volume, "b")); err != nil {
		t.Fatal(err)
	}
	shared := runtime.Mount{Source: volume, Target: "/data"}
	attacker := s.NewContainer(t, p, "swap", "/data/a", "/data/b")
	attacker.Mounts, attacker.LogPath = []runtime.Mount{shared}, filepath.Join(t.TempDir(), "log")
	s.Start(t, attacker)
	awaitLog(t, attacker.LogPath, "ready")
	started := 0
	for range tries() {
		c := s.NewContainer(t, p, args...)
		c.Mounts, c.LogPath = []runtime.Mount{shared, m}, filepath.Join(t.TempDir(), "log")
		if _, err := s.Engine.Start(t.Context(), c); err == nil { // to refuse is right as well
			started++
			s.Exit(t, c.ID)
			each(c)
		}
		if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if st, _ := s.Find(t, attacker.ID); st.Phase != runtime.Running {
		t.Fatalf("the attacker gave up: %s", logText(t, attacker.LogPath))
	}
	t.Logf("%d of %d started", started, tries())
}

// TestSwappedTarget (CVE-2021-30465, CVE-2024-45310): wherever the link leads while a mount is made, nothing is mounted
// on the host and nothing is made there.
func TestSwappedTarget(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	p := s.Pod(t)
	victim, source := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(victim, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, m := range []runtime.Mount{{Source: source, Target: "/data/a/made"}, {Type: "tmpfs", Target: "/data/a/made/deep"}} {
		race(t, s, p, victim, m, []string{"read", victim + "/secret", "/data/a/secret", "/data/b/secret"}, func(c runtime.Container) {
			if text := logText(t, c.LogPath); strings.Contains(text, " 6 ok") {
				t.Errorf("a file of the host is in a container:\n%s", text)
			}
		})
		entries, err := os.ReadDir(victim)
		if err != nil || len(entries) != 1 {
			t.Errorf("made on the host: %v %v", entries, err)
		}
		if m := mountsBelow(t, victim); len(m) > 0 {
			t.Errorf("mounted on the host: %v", m)
		}
	}
}

// TestSwappedProc (CVE-2025-52881): a mount that is led into /proc does not lead there what is written to it: what masks
// it, labels, sysctls.
func TestSwappedProc(t *testing.T) {
	testrun.OnHost(t)
	const pattern, panics = "/proc/sys/kernel/core_pattern", "/proc/sys/vm/panic_on_oom"
	before := [][32]byte{checksum(t, pattern), checksum(t, panics)}
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "80"}
	s.Ensure(t, p)
	race(t, s, p, "/proc", runtime.Mount{Type: "tmpfs", Target: "/data/a"}, []string{"write", pattern, "/proc/sysrq-trigger"},
		func(c runtime.Container) {
			if text := logText(t, c.LogPath); strings.Contains(text, " ok") {
				t.Errorf("/proc can be written to:\n%s", text)
			}
		})
	race(t, s, p, "/proc/sys", runtime.Mount{Type: "tmpfs", Target: "/data/a/kernel"}, []string{"write", pattern}, func(c runtime.Container) {
		if text := logText(t, c.LogPath); strings.Contains(text, " ok") {
			t.Errorf("/proc/sys can be written to:\n%s", text)
		}
	})
	if after := [][32]byte{checksum(t, pattern), checksum(t, panics)}; after[0] != before[0] || after[1] != before[1] {
		t.Error("the host's settings were changed")
	}
}

// TestHostileTerminal (CVE-2025-52565): what an image has in place of terminals is not what the console is mounted from.
func TestHostileTerminal(t *testing.T) {
	before := checksum(t, "/proc/sys/kernel/core_pattern")
	s := inProcess(t)
	p := s.Pod(t)
	for _, links := range []map[string]string{
		{"pts": "/proc/sys/kernel"}, {"console": "/proc/sys/kernel/core_pattern"},
		{"ptmx": "/proc/sysrq-trigger", "pts/0": "/proc/sys/kernel/core_pattern"},
	} {
		c := s.NewContainer(t, p, "write", "/proc/sys/kernel/core_pattern", "/dev/pts/core_pattern")
		c.TTY = true
		for name, to := range links {
			at := filepath.Join(c.Rootfs, "dev", name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
		}
		if text := output(t, s, c); strings.Contains(text, " ok") || !strings.Contains(text, "core_pattern") {
			t.Errorf("%v:\n%s", links, text)
		}
	}
	if checksum(t, "/proc/sys/kernel/core_pattern") != before {
		t.Error("the host's core_pattern was changed")
	}
}

// TestExecDirectory (CVE-2024-21626): a command's working directory is no way out either.
func TestExecDirectory(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	for fd := 0; fd <= 64; fd++ {
		if fd > 16 && tries() < 1000 {
			fd += 15 // 32, 48, 64; all of them in the long runs
		}
		dir := fmt.Sprintf("/proc/self/fd/%d", fd)
		bad := s.NewContainer(t, runtime.Pod{UID: c.PodUID}, "exit", "0")
		bad.Cwd = dir
		if fd >= 16 { // TestWorkingDirectory has the others
			if _, err := s.Engine.Start(t.Context(), bad); err == nil {
				t.Errorf("working directory %s: started", dir)
			}
		}
		if x, err := s.Engine.Exec(t.Context(),
			runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "exit", "0"}, Cwd: dir}); err == nil && x.Code == 0 {
			t.Errorf("a command in %s: %+v", dir, x)
		}
	}
}

// TestNoRestore (CVE-2026-119101): what restores containers from checkpoints is not in this program at all.
func TestNoRestore(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte("opencontainers/runc/libcontainer")) {
		t.Fatal("this is not how to find out what is linked")
	}
	name := strings.Join([]string{"checkpoint-restore", "go-criu"}, "/") // which must not itself be what is found
	if bytes.Contains(b, []byte(name)) {
		t.Error("CRIU is linked")
	}
	if libct.Version < "v1.5.2" {
		t.Errorf("libcontainer %s", libct.Version)
	}
}

// TestDevicesStayClosed: kernels from 6.17 on wrote past the end of what libcontainer handed them when it asked for the
// device rules of a cgroup (fixed in 1.5.2). Rules hold, however many containers come and go.
func TestDevicesStayClosed(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	for range max(10, tries()/20) {
		c := s.NewContainer(t, p, "device", "/node")
		c.Capabilities = usualCaps
		has(t, output(t, s, c), "disk mknod ok", "disk open EPERM", "console mknod ok", "console open EPERM")
		if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoAbstractSocket (CVE-2020-15257): a socket without a file is reached from every container on the host's network.
// The keeper has none; that its own asks who calls is TestSocket.
func TestNoAbstractSocket(t *testing.T) {
	k := newKeeper(t)
	waitReady(t, k.client)
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	abstract := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 && strings.HasPrefix(f[7], "@") {
			abstract["socket:["+f[6]+"]"] = f[7]
		}
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", k.cmd.Process.Pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("%v %v", fds, err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		if name, ok := abstract[to]; ok {
			t.Errorf("the keeper has the abstract socket %s", name)
		}
	}
}
