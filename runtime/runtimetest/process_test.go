package runtimetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/keeper"
	"ledge/runtime/runtimetest"
)

// keeperProc is a keeper in a process of its own.
type keeperProc struct {
	dir    string
	root   string
	cmd    *exec.Cmd
	client *keeper.Client

	extraEnv   []string
	extraFiles []*os.File
}

// newKeeper starts a keeper that is reset at the end of the test.
func newKeeper(t *testing.T) *keeperProc {
	t.Helper()
	return newKeeperFrom(t, &keeperProc{})
}

func newKeeperFrom(t *testing.T, k *keeperProc) *keeperProc {
	t.Helper()
	needRoot(t)
	k.dir, k.root = t.TempDir(), cgroupRoot()+"k"
	k.client = keeper.New(keeper.ClientConfig{RunDir: k.dir, Log: testLog(t)})
	k.start(t)
	t.Cleanup(func() {
		if k.cmd == nil {
			k.start(t)
		}
		ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(30*time.Second))
		defer cancel()
		if err := k.client.Reset(ctx); err != nil {
			t.Errorf("Reset: %v", err)
		}
		k.wait(t)
		if m := mountsBelow(t, k.dir); len(m) > 0 {
			t.Errorf("left behind: %v", m)
		}
		if dirs := cgroupDirs(t, k.root); len(dirs) > 0 {
			t.Errorf("left behind: cgroups %v", dirs)
		}
		entries, err := os.ReadDir(k.dir)
		if err != nil || len(entries) > 0 {
			t.Errorf("left behind in the run directory: %v %v", entries, err)
		}
	})
	return k
}

func (k *keeperProc) start(t *testing.T) {
	t.Helper()
	k.cmd = exec.Command("/proc/self/exe")
	k.cmd.Env = append(k.env(), k.extraEnv...)
	k.cmd.ExtraFiles = k.extraFiles
	k.cmd.Stdout, k.cmd.Stderr = os.Stdout, os.Stderr
	// What Client.Run does too: the test's terminal is not the keeper's.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitReady(t, k.client)
}

func (k *keeperProc) env() []string {
	return append(os.Environ(), "LEDGE_TEST_ROLE=keeper", "LEDGE_TEST_RUNDIR="+k.dir, "LEDGE_TEST_CGROUP="+k.root)
}

func (k *keeperProc) wait(t *testing.T) {
	t.Helper()
	_ = k.cmd.Wait()
	k.cmd = nil
}

// kill ends the keeper the hard way.
func (k *keeperProc) kill(t *testing.T) {
	t.Helper()
	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	k.wait(t)
}

func (k *keeperProc) setup() runtimetest.Setup {
	return runtimetest.Setup{Engine: k.client, Rootfs: rootfs, Left: func(t *testing.T) { left(t, k.client, k.root, k.dir) }}
}

// hold runs the brain's side for the rest of the test, or until the result is called.
func hold(t *testing.T, c *keeper.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Client.Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestKeeper: the suite over the socket, all of it against one keeper.
func TestKeeper(t *testing.T) {
	k := newKeeper(t)
	runtimetest.Run(t, func(t *testing.T) runtimetest.Setup { return k.setup() })
}

func TestKeeperAway(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	watch := make(chan error, 1)
	go func() { watch <- k.client.Watch(context.Background(), func(runtime.Status) {}) }()
	time.Sleep(100 * time.Millisecond)
	k.kill(t)
	select {
	case err := <-watch:
		if !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Watch: %v", err)
		}
	case <-time.After(testrun.Patience(10 * time.Second)):
		t.Error("Watch goes on without a keeper")
	}
	if _, err := k.client.List(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	k.start(t)
	if _, err := s.Engine.List(t.Context()); err != nil {
		t.Errorf("List after the keeper came back: %v", err)
	}
}

// sequence reads the numbers of "line N" from a log.
func sequence(t *testing.T, path string) []int {
	t.Helper()
	var got []int
	for line := range strings.Lines(logText(t, path)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "line" {
			continue
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatalf("%q", line)
		}
		got = append(got, n)
	}
	return got
}

func awaitSequence(t *testing.T, path string, beyond int) []int {
	t.Helper()
	var got []int
	testrun.Until(t, 30*time.Second, fmt.Sprintf("the log grows beyond line %d", beyond), func() bool {
		got = sequence(t, path)
		return len(got) > 0 && got[len(got)-1] > beyond
	})
	return got
}

// TestKillKeeperWhileLogging: kill -9 of the keeper loses no container; its log goes on when there is a keeper
// again, and of what was written at most what the keeper had read and not yet written is lost.
func TestKillKeeperWhileLogging(t *testing.T) {
	for name, run := range map[string]string{"slow": "lines", "flood": "flood"} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t)
			s := k.setup()
			hold(t, k.client)
			c := s.NewContainer(t, s.Pod(t), run, "100000", "2ms")
			c.LogPath = filepath.Join(t.TempDir(), "log")
			c.LogBytes, c.LogFiles = 1<<30, 1
			st := s.Start(t, c)
			last := -1
			for range 3 {
				got := awaitSequence(t, c.LogPath, last)
				last = got[len(got)-1]
				k.kill(t)
				time.Sleep(50 * time.Millisecond)
				k.start(t)
			}
			got := awaitSequence(t, c.LogPath, last)
			lost := 0
			for i := 1; i < len(got); i++ {
				if got[i] <= got[i-1] {
					t.Fatalf("line %d after line %d", got[i], got[i-1])
				}
				lost += got[i] - got[i-1] - 1
			}
			// One read of 16 KiB a kill, and the line it cuts.
			if most := 3 * (16<<10/7 + 2); lost > most {
				t.Errorf("%d lines lost, at most %d could be", lost, most)
			}
			if again, ok := s.Find(t, c.ID); !ok || again.Phase != runtime.Running || again.Pid != st.Pid || !again.StartedAt.Equal(st.StartedAt) {
				t.Errorf("after three kills: %+v, was %+v", again, st)
			}
			if err := s.Engine.Signal(t.Context(), c.ID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if x := s.Exit(t, c.ID); x.Code != 137 || x.Signal != 9 && !x.Unknown {
				t.Errorf("exit of an adopted container: %+v", x)
			}
		})
	}
}

// TestKillKeeperAndBrainWhileLogging: with nobody left to hold the log, and no FD store, the container is its own
// reader: it blocks when the pipe is full, and goes on with the next keeper.
func TestKillKeeperAndBrainWhileLogging(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	stop := hold(t, k.client)
	c := s.NewContainer(t, s.Pod(t), "flood")
	c.LogPath = filepath.Join(t.TempDir(), "log")
	c.LogBytes, c.LogFiles = 1<<30, 1
	st := s.Start(t, c)
	last := awaitSequence(t, c.LogPath, 100)
	k.kill(t)
	stop() // the brain's descriptors go as with kill -9
	// A slow machine takes its time to fill 64 KiB; with a reader it would write for ever.
	testrun.Until(t, 10*time.Second, "the container stands still without a reader", func() bool {
		before := readIO(t, st.Pid)
		time.Sleep(100 * time.Millisecond)
		return readIO(t, st.Pid) == before
	})
	if err := syscall.Kill(st.Pid, 0); err != nil {
		t.Fatalf("the container died: %v", err)
	}
	k.start(t)
	awaitSequence(t, c.LogPath, last[len(last)-1]+1000)
	if again, ok := s.Find(t, c.ID); !ok || again.Phase != runtime.Running || again.Pid != st.Pid {
		t.Errorf("after both were killed: %+v", again)
	}
}

func readIO(t *testing.T, pid int) (wchar int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "wchar: %d", &wchar)
	}
	return wchar
}

// TestKillBrain: the death of the brain alone changes nothing for a container.
func TestKillBrain(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	brain := exec.Command("/proc/self/exe")
	brain.Env = append(os.Environ(), "LEDGE_TEST_ROLE=brain", "LEDGE_TEST_RUNDIR="+k.dir)
	brain.Stderr = os.Stderr
	out, err := brain.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := brain.Start(); err != nil {
		t.Fatal(err)
	}
	c := s.NewContainer(t, s.Pod(t), "lines", "100000", "1ms")
	c.LogPath = filepath.Join(t.TempDir(), "log")
	st := s.Start(t, c)
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it holds something
		t.Fatal(err)
	}
	got := awaitSequence(t, c.LogPath, 10)
	if err := brain.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = brain.Wait()
	got = awaitSequence(t, c.LogPath, got[len(got)-1]+20)
	for i := range got {
		if got[i] != i {
			t.Fatalf("line %d is %d", i, got[i])
		}
	}
	if again, ok := s.Find(t, c.ID); !ok || again.Pid != st.Pid {
		t.Errorf("after the brain's death: %+v", again)
	}
}

// brainMain holds what a keeper has it hold, and says on standard output when it holds something.
func brainMain() int {
	c := keeper.New(keeper.ClientConfig{RunDir: os.Getenv("LEDGE_TEST_RUNDIR")})
	go func() {
		for said := false; !said; time.Sleep(10 * time.Millisecond) {
			fds, _ := os.ReadDir("/proc/self/fd")
			for _, fd := range fds {
				if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasSuffix(to, "/stdout") && !said {
					fmt.Print("!")
					said = true
				}
			}
		}
	}()
	if err := c.Run(context.Background()); err != nil {
		return 1
	}
	return 0
}

// remembers asks whether this kernel remembers the exit status of a process that is gone (PIDFD_GET_INFO, 6.15).
func remembers(t *testing.T) bool {
	t.Helper()
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_ = cmd.Wait()
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

// TestAdoptedExit: the exit code of a container that ends after a restart of the keeper is exact where the kernel
// remembers it, and else said to be unknown.
func TestAdoptedExit(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	p := s.Pod(t)
	byCode, bySignal := s.NewContainer(t, p, "run", "42"), s.NewContainer(t, p, "ignore")
	gone := s.NewContainer(t, p, "run")
	for _, c := range []*runtime.Container{&byCode, &bySignal, &gone} {
		c.LogPath = filepath.Join(t.TempDir(), "log")
		s.Start(t, *c)
		awaitLog(t, c.LogPath, "ready")
	}
	dead, _ := s.Find(t, gone.ID)
	k.kill(t)
	if err := syscall.Kill(dead.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testrun.Patience(10 * time.Second)); syscall.Kill(dead.Pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Skip("nobody reaps the orphans of this machine")
		}
	}
	k.start(t)
	if x := s.Exit(t, gone.ID); !x.Unknown || x.Code != 137 {
		t.Errorf("a container that ended while there was no keeper: %+v", x)
	}
	if err := s.Engine.Signal(t.Context(), byCode.ID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Engine.Signal(t.Context(), bySignal.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	x, y := s.Exit(t, byCode.ID), s.Exit(t, bySignal.ID)
	if remembers(t) {
		if x.Code != 42 || x.Unknown || y.Code != 137 || y.Signal != 9 || y.Unknown {
			t.Errorf("exits of adopted containers: %+v %+v", x, y)
		}
	} else if !x.Unknown || x.Code != 137 || !y.Unknown {
		t.Errorf("exits that this kernel does not remember: %+v %+v", x, y)
	}
	// What was recorded is still known to the next keeper.
	k.kill(t)
	k.start(t)
	if again := s.Exit(t, byCode.ID); again.Code != x.Code || again.Unknown != x.Unknown || !again.FinishedAt.Equal(x.FinishedAt) {
		t.Errorf("a recorded exit: %+v, was %+v", again, x)
	}
}

// TestShutdownKeepsContainers: a clean end of the keeper leaves what runs alone, and its log whole.
func TestShutdownKeepsContainers(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	hold(t, k.client)
	c := s.NewContainer(t, s.Pod(t), "lines", "100000", "1ms")
	c.LogPath = filepath.Join(t.TempDir(), "log")
	st := s.Start(t, c)
	awaitSequence(t, c.LogPath, 10)
	if err := k.client.Shutdown(t.Context()); err != nil {
		t.Fatalf("Shutdown: %v", err)
	}
	k.wait(t)
	if err := syscall.Kill(st.Pid, 0); err != nil {
		t.Fatalf("the container: %v", err)
	}
	k.start(t)
	got := sequence(t, c.LogPath)
	got = awaitSequence(t, c.LogPath, got[len(got)-1]+50)
	for i := range got {
		if got[i] != i {
			t.Fatalf("line %d is %d", i, got[i])
		}
	}
}

// awaitTerminalHeld waits until the brain, which is this process, holds the terminal of that container: each container
// has a devpts of its own, so its device number tells the terminal from those of tests before. A keeper that is killed
// before it has passed the terminal on takes it along, and the container with it.
func awaitTerminalHeld(t *testing.T, pid int) {
	t.Helper()
	var want, have unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/root/dev/pts", pid), &want); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, 10*time.Second, fmt.Sprintf("the brain holds the terminal of process %d", pid), func() bool {
		fds, _ := filepath.Glob("/proc/self/fd/*")
		return slices.ContainsFunc(fds, func(fd string) bool { return unix.Stat(fd, &have) == nil && have.Dev == want.Dev })
	})
}

// TestTTYSurvives: a terminal has no name; the brain gives it back.
func TestTTYSurvives(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	hold(t, k.client)
	c := s.NewContainer(t, s.Pod(t), "lines", "100000", "5ms")
	c.TTY, c.LogPath = true, filepath.Join(t.TempDir(), "log")
	st := s.Start(t, c)
	awaitTerminalHeld(t, st.Pid)
	got := awaitSequence(t, c.LogPath, 10)
	k.kill(t)
	k.start(t)
	awaitSequence(t, c.LogPath, got[len(got)-1]+20)
	if again, ok := s.Find(t, c.ID); !ok || again.Phase != runtime.Running || again.Pid != st.Pid {
		t.Errorf("after a restart of the keeper: %+v", again)
	}
}

// TestOtherBoot: run state of another boot is dropped, unseen by anybody.
func TestOtherBoot(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	for _, d := range []string{"pods/u/ns", "containers/c"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, content := range map[string]string{"boot_id": "another", "pods/u/pod.json": "{", "containers/c/container.json": "{",
		"pods/u/ns/net": ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newRunner(t)
	e, err := keeper.NewEngine(keeper.Config{RunDir: dir, Runner: r, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	waitReady(t, e)
	left(t, e, cgroupRoot(), dir)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := r.Clear(); err != nil {
		t.Error(err)
	}
}

func TestOneKeeperPerDirectory(t *testing.T) {
	k := newKeeper(t)
	second := exec.Command("/proc/self/exe")
	second.Env = k.env()
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), keeper.ErrRunning.Error()) {
		t.Errorf("a second keeper: %v %s", err, out)
	}
	if _, err := k.client.Info(t.Context()); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

// TestSocket: for root alone, and nobody can be confused by versions (CVE-2020-15257 was an abstract socket).
func TestSocket(t *testing.T) {
	k := newKeeper(t)
	sock := filepath.Join(k.dir, "keeper.sock")
	st, err := os.Stat(sock)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v", st.Mode(), err)
	}
	ask := func(body string) string {
		c, err := net.Dial("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testrun.Patience(10 * time.Second)))
		frame := append([]byte{0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
		if _, err := c.Write(frame); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err != nil {
			return err.Error()
		}
		answer := make([]byte, int(head[2])<<8|int(head[3]))
		_, _ = io.ReadFull(c, answer)
		return string(answer)
	}
	if got := ask(`{"Proto":1,"Op":"info"}`); !strings.Contains(got, "libcontainer") {
		t.Errorf("info: %s", got)
	}
	for _, bad := range []string{`{"Proto":99,"Op":"info"}`, `{"Proto":0,"Op":"info"}`, `{"Proto":1,"Op":"dance"}`, `{"Proto":1,"Op":"start"}`,
		`{"Proto":1,"Op":"start","Container":{"ID":"x","NewField":1}}`, `nonsense`} {
		var r struct{ Error, Kind string }
		if got := ask(bad); json.Unmarshal([]byte(got), &r) != nil || r.Kind != "protocol" {
			t.Errorf("%s: %s", bad, got)
		}
	}
	// As another user, through a socket that lets everybody in.
	if err := os.Chmod(sock, 0o666); err != nil {
		t.Fatal(err)
	}
	for dir := k.dir; dir != "/"; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm()&1 == 0 {
			if err := os.Chmod(dir, st.Mode().Perm()|0o011); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(dir, st.Mode().Perm())
		}
	}
	nobody := &exec.Cmd{Path: testprog, Args: []string{runtimetest.Program, "asksocket", sock}}
	nobody.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := os.Chmod(filepath.Dir(testprog), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := nobody.CombinedOutput(); err != nil || string(out) != "hung up\n" {
		t.Errorf("another user: %v %s", err, out)
	}
}

// TestClientStartsKeeper: a keeper that is missing is started, one that dies is replaced, and none ends with the
// brain.
func TestClientStartsKeeper(t *testing.T) {
	needRoot(t)
	k := &keeperProc{dir: t.TempDir(), root: cgroupRoot() + "s"}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := keeper.New(keeper.ClientConfig{RunDir: k.dir, Log: testLog(t), Command: []string{exe}, Env: k.env()})
	stop := hold(t, c)
	waitReady(t, c)
	s := runtimetest.Setup{Engine: c, Rootfs: rootfs}
	con := s.NewContainer(t, runtimetest.NewPod(), "ignore")
	if _, err := c.EnsurePod(t.Context(), runtime.Pod{UID: con.PodUID, Cgroup: "kubepods/pod" + con.PodUID}); err != nil {
		t.Fatal(err)
	}
	st := s.Start(t, con)
	first := keeperPid(t, k.dir)
	if sid, _ := unix.Getsid(first); sid != first {
		t.Errorf("the keeper is in session %d, not in its own", sid)
	}
	leaf := k.root + "/keeper"
	for _, line := range cgroupsOf(t, first) { // one for each hierarchy
		if !strings.HasSuffix(line, ":"+leaf) {
			t.Errorf("the keeper is in cgroup %s, not in its own", line)
		}
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, testrun.Patience(20*time.Second), "the dead keeper is replaced", func() bool {
		again, err := c.List(t.Context())
		return err == nil && len(again.Containers) == 1 && again.Containers[0].Pid == st.Pid
	})
	stop()
	if _, err := c.Info(t.Context()); err != nil {
		t.Errorf("the keeper ended with the brain: %v", err)
	}
	if err := c.Reset(t.Context()); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	// Its first keeper is dead: process 1 takes its end, when it comes to that.
	testrun.Until(t, testrun.Patience(10*time.Second), "the process is gone", func() bool { return syscall.Kill(st.Pid, 0) != nil })
	if dirs := cgroupDirs(t, leaf); len(dirs) > 0 {
		t.Errorf("Reset left %v", dirs)
	}
	if err := os.Remove(filepath.Join(k.dir, "keeper.log")); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(k.dir); len(entries) > 0 {
		t.Errorf("Reset left %v", entries)
	}
}

// cgroupsOf is where a process stands, a line for each hierarchy.
func cgroupsOf(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func keeperPid(t *testing.T, dir string) int {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(dir, "keeper.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rc, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var cred *unix.Ucred
	_ = rc.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		t.Fatal(err)
	}
	return int(cred.Pid)
}
