package runtimetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/runtimetest"
)

// TestExecFacts: a command in a container is and may what the container is and may, whoever it runs as
// (reliability B2: CVE-2022-29162).
func TestExecFacts(t *testing.T) {
	s := inProcess(t)
	p := runtimetest.NewPod()
	p.Hostname = "web-0"
	s.Ensure(t, p)
	c := s.NewContainer(t, p, "facts")
	c.Capabilities, c.NoNewPrivs, c.Cwd = usualCaps, true, "/work"
	c.Args = append(c.Args, "stay")
	c.LogPath = filepath.Join(t.TempDir(), "log")
	s.Start(t, c)
	awaitLog(t, c.LogPath, "done")
	var out runtimetest.Sink
	x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "facts"}, Stdout: &out})
	if err != nil || x.Code != 0 {
		t.Fatalf("%+v, %v", x, err)
	}
	drop := func(text string) string { // what must differ
		var kept []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "pid ") && !strings.HasPrefix(line, "fd ") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	if own := logText(t, c.LogPath); drop(own) != drop(out.String()) {
		t.Errorf("the container:\n%s\nthe command in it:\n%s", own, out.String())
	}
	if !strings.Contains(out.String(), "uid 0 gid 0 host web-0 cwd /work") {
		t.Errorf("who and where:\n%s", out.String())
	}
	var other runtimetest.Sink
	x, err = s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "facts"}, Stdout: &other,
		Cwd: "/dev", User: &runtime.User{UID: 1000, GID: 2000, Groups: []uint32{3000}}})
	if err != nil || x.Code != 0 || !strings.Contains(other.String(), "uid 1000 gid 2000 host web-0 cwd /dev") {
		t.Errorf("%+v, %v:\n%s", x, err, other.String())
	}
	has(t, other.String(), "Groups 3000", "CapInh 0000000000000000", "CapEff 0000000000000000", "CapAmb 0000000000000000", "NoNewPrivs 1",
		"Seccomp 2")
}

// TestExecOpenFiles: a command has its three standard files and none of the keeper's (CVE-2024-21626), and cannot begin
// in one of them.
func TestExecOpenFiles(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	var out runtimetest.Sink
	x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "links", "/proc/self/fd"},
		Stdout: &out})
	if err != nil || x.Code != 0 {
		t.Fatalf("%+v, %v", x, err)
	}
	for line := range strings.Lines(out.String()) {
		fd, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		ok := fd == "0" && to == "/dev/null" || fd == "1" && strings.HasPrefix(to, "pipe:") || fd == "2" && to == "/dev/null"
		// Go itself, in the test program; and what it reads here, which is closed by the time it is asked about.
		if !ok && to != "" && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/sys/fs/cgroup/") &&
			!strings.HasPrefix(to, "/proc/") {
			t.Errorf("open file: %s", line)
		}
	}
	for fd := range 64 {
		_, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "exit", "0"},
			Cwd: fmt.Sprintf("/proc/self/fd/%d", fd)})
		if err == nil {
			t.Errorf("a command began in descriptor %d", fd)
		}
	}
}

// TestExecKillsAll: when its time is over, everything a command started is gone, also what has a session of its own,
// and the container is not touched.
func TestExecKillsAll(t *testing.T) {
	for name, factory := range map[string]func(*testing.T) runtimetest.Setup{"in process": inProcess,
		"keeper": func(t *testing.T) runtimetest.Setup { return newKeeper(t).setup() }} {
		t.Run(name, func(t *testing.T) {
			s := factory(t)
			c := s.NewContainer(t, s.Pod(t), "ignore")
			st := s.Start(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			var out runtimetest.Sink
			done := make(chan error, 1)
			go func() {
				_, err := s.Engine.Exec(ctx, runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "daemons", "/beat"}, Stdout: &out})
				done <- err
			}()
			for _, f := range []string{"/beat0", "/beat1"} {
				awaitBeat(t, c.Rootfs+f)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
			noExecGroups(t)
			for _, f := range []string{"/beat0", "/beat1"} {
				if beats(t, c.Rootfs+f) {
					t.Errorf("the process that touches %s lives on", f)
				}
			}
			if again, ok := s.Find(t, c.ID); !ok || again.Phase != runtime.Running || again.Pid != st.Pid {
				t.Errorf("the container afterwards: %+v", again)
			}
		})
	}
}

// TestExecLeavesDaemons: what a command leaves in the background when it ends by itself belongs to the container: it
// goes on, does not hold up the answer though it has the output open, and ends with the container.
func TestExecLeavesDaemons(t *testing.T) {
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	var out runtimetest.Sink
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(30*time.Second))
	defer cancel()
	x, err := s.Engine.Exec(ctx, runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "daemon", "/beat", "4"}, Stdout: &out})
	if err != nil || x.Code != 4 || out.String() != "left\n" {
		t.Fatalf("%+v, %v: %q", x, err, out.String())
	}
	noExecGroups(t)
	for _, f := range []string{"/beat0", "/beat1"} {
		awaitBeat(t, c.Rootfs+f)
		if !beats(t, c.Rootfs+f) {
			t.Errorf("the process that touches %s did not stay", f)
		}
	}
	if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if beats(t, c.Rootfs+"/beat1") {
		t.Error("a command's child outlives the container")
	}
}

func awaitBeat(t *testing.T, file string) {
	t.Helper()
	testrun.Succeeds(t, 30*time.Second, file+" is written", func() error {
		_, err := os.Stat(file)
		return err
	})
}

// beats asks whether a file is still being touched.
func beats(t *testing.T, file string) bool {
	t.Helper()
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	// A process that lives writes it every 10 ms.
	for end := time.Now().Add(testrun.Patience(400 * time.Millisecond)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}

// noExecGroups: no cgroup of a command is left.
func noExecGroups(t *testing.T) {
	t.Helper()
	for _, dir := range podCgroups(t, cgroupRoot()) {
		if left, _ := filepath.Glob(dir + "/*/exec-*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// TestExecTTY: a terminal is one, has a size that can be changed, and carries both ways.
func TestExecTTY(t *testing.T) {
	for name, factory := range map[string]func(*testing.T) runtimetest.Setup{"in process": inProcess,
		"keeper": func(t *testing.T) runtimetest.Setup { return newKeeper(t).setup() }} {
		t.Run(name, func(t *testing.T) {
			s := factory(t)
			c := s.NewContainer(t, s.Pod(t), "ignore")
			s.Start(t, c)
			var out runtimetest.Sink
			resize := make(chan runtime.Size)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			in, type_, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer type_.Close()
			go func() {
				_, err := s.Engine.Exec(ctx, runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "size"}, TTY: true,
					Size: runtime.Size{Width: 81, Height: 25}, Resize: resize, Stdin: in, Stdout: &out})
				done <- err
			}()
			out.Await(t, "size 81 25 true")
			resize <- runtime.Size{Width: 120, Height: 40}
			out.Await(t, "size 120 40 true")
			fmt.Fprint(type_, "typed\n")
			out.Await(t, "typed\r\n") // the terminal echoes
			fmt.Fprint(type_, "\x03") // and Ctrl-C is a signal
			if err := <-done; err != nil {
				t.Errorf("after Ctrl-C: %v", err)
			}
			var facts runtimetest.Sink
			x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "facts"}, TTY: true,
				Stdout: &facts})
			if err != nil || x.Code != 0 {
				t.Errorf("%+v, %v", x, err)
			}
			has(t, strings.ReplaceAll(facts.String(), "\r", ""), "fd 0 nonblock false mode 2 tty true true",
				"fd 2 nonblock false mode 2 tty true true", "done")
		})
	}
}

// TestKillKeeperDuringExec: the caller is told at once, and the next keeper ends what the last one was asked to run.
func TestKillKeeperDuringExec(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	hold(t, k.client)
	c := s.NewContainer(t, s.Pod(t), "ignore")
	st := s.Start(t, c)
	done := make(chan error, 1)
	go func() {
		_, err := s.Exec(context.Background(), c.ID, "daemons", "/beat")
		done <- err
	}()
	awaitBeat(t, c.Rootfs+"/beat1")
	k.kill(t)
	if err := <-done; !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("the keeper was killed: %v", err)
	}
	k.start(t)
	noExecGroups(t)
	if beats(t, c.Rootfs+"/beat0") || beats(t, c.Rootfs+"/beat1") {
		t.Error("a command outlives the keeper that was to end it")
	}
	if again, ok := s.Find(t, c.ID); !ok || again.Phase != runtime.Running || again.Pid != st.Pid {
		t.Errorf("the container afterwards: %+v", again)
	}
	if x, err := s.Exec(t.Context(), c.ID, "exit", "6"); err != nil || x.Code != 6 {
		t.Errorf("in an adopted container: %+v, %v", x, err)
	}
}

// TestExecNothingGrows: a hundred commands that end, fail, are killed and flood leave nothing behind.
func TestExecNothingGrows(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	round := func(n int) {
		for i := range n {
			var out runtimetest.Sink
			// Killed when it runs, and not on its way in: who dies there may be a keeper's reaper's (TestExecLateNothingGrows), and there is
			// none here.
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = s.Engine.Exec(ctx, runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "flood"}, Stdout: calls(cancel)})
			cancel()
			_, _ = s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{"/no/such"}, Stdout: &out})
			x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "exit", strconv.Itoa(i)},
				TTY: i%2 == 0, Stdin: strings.NewReader("x"), Stdout: &out})
			if err != nil || x.Code != i {
				t.Errorf("exit %d: %+v, %v", i, x, err)
			}
			// A writer that has enough ends a command that goes on writing.
			x, err = s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{runtimetest.Program, "flood"}, Stdout: full{}})
			if !errors.Is(err, errFull) {
				t.Errorf("a writer that fails: %+v, %v", x, err)
			}
		}
	}
	round(3)
	before := held()
	round(20)
	before.stays(t)
	noExecGroups(t)
}

// calls is told of what is written.
type calls func()

func (c calls) Write(p []byte) (int, error) {
	c()
	return len(p), nil
}

// TestExecLateNothingGrows: commands whose time is over while they are on their way into a container leave nothing, and the container
// can end, although somebody else's command stays on its way into another one all the while.
func TestExecLateNothingGrows(t *testing.T) {
	testrun.OnHost(t)
	k := newKeeper(t)
	s := k.setup()
	hostile, p := s.NewContainer(t, s.Pod(t), "still"), s.Pod(t)
	hostile.LogPath = filepath.Join(t.TempDir(), "log")
	c := s.NewContainer(t, p, "ignore")
	s.Start(t, hostile)
	s.Start(t, c)
	awaitLog(t, hostile.LogPath, "ready")
	begun := time.Now()
	if _, err := s.Exec(t.Context(), c.ID, "exit", "0"); err != nil {
		t.Fatal(err)
	}
	takes := time.Since(begun)
	hangs, leave := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	hanging.Go(func() {
		for hangs.Err() == nil { // it can come through
			_, _ = s.Exec(hangs, hostile.ID, "exit", "0")
		}
	})
	late, zombies := 0, 0
	const tries = 24
	for i := range tries {
		ctx, cancel := context.WithTimeout(t.Context(), takes*time.Duration(i)/tries)
		if _, err := s.Exec(ctx, c.ID, "exit", "0"); err != nil {
			late++
		}
		cancel()
		zombies = max(zombies, zombiesOf(k.cmd.Process.Pid))
	}
	if late < tries/8 {
		t.Error("too few were late")
	}
	testrun.Succeeds(t, 30*time.Second, "the container can be removed", func() error { return s.Engine.Remove(t.Context(), c.ID) })
	testrun.Until(t, 30*time.Second, "no zombie is left", func() bool { return zombiesOf(k.cmd.Process.Pid) == 0 })
	if hangs.Err() != nil {
		t.Error("nothing hung meanwhile")
	}
	leave()
	hanging.Wait()
	t.Logf("a command takes %s; of %d %d were killed on their way, %d zombies at the most", takes, tries, late, zombies)
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestExecWhileEnding: commands that come while their container ends get an answer, and nothing is left. The keeper's
// reaper has a part in it: what dies half way into the container is a child of whoever started it, and until somebody
// waits for that the container's first process cannot end.
func TestExecWhileEnding(t *testing.T) {
	s := newKeeper(t).setup()
	p := s.Pod(t)
	for range 10 {
		c := s.NewContainer(t, p, "exit", "0", "60ms")
		s.Start(t, c)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for range 5 {
					x, err := s.Exec(t.Context(), c.ID, "exit", "0")
					if errors.Is(err, runtime.ErrNotRunning) {
						return
					}
					if err != nil || x.Code != 0 && x.Code != 137 {
						t.Errorf("%+v, %v", x, err)
					}
				}
			})
		}
		wg.Wait()
		s.Exit(t, c.ID)
		if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
	noExecGroups(t)
}

// TestSeesProcesses: with ProcessesOf a container sees the other's first process as number 1, in file systems of its own.
func TestSeesProcesses(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	target := s.NewContainer(t, p, "ignore")
	st := s.Start(t, target)
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", st.Pid))
	if err != nil {
		t.Fatal(err)
	}
	guest := s.NewContainer(t, p, "facts")
	guest.ProcessesOf, guest.Capabilities = target.ID, usualCaps
	out := output(t, s, guest)
	if !strings.Contains(out, "ns pid "+theirs) || strings.Contains(out, "\npid 1 ") {
		t.Errorf("not in %s:\n%s", theirs, out)
	}
	if again, ok := s.Find(t, target.ID); !ok || again.Phase != runtime.Running {
		t.Errorf("the target afterwards: %+v", again)
	}
}
