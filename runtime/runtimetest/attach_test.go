package runtimetest_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
	"ledge/runtime/runtimetest"
)

// TestAttachTTY: a container's terminal has a size that an attacher can change, carries both ways, is in the log too,
// and outlives attachers also when stdin was to end with the first.
func TestAttachTTY(t *testing.T) {
	for name, factory := range map[string]func(*testing.T) runtimetest.Setup{"in process": inProcess,
		"keeper": func(t *testing.T) runtimetest.Setup { return newKeeper(t).setup() }} {
		t.Run(name, func(t *testing.T) {
			s := factory(t)
			c := s.NewContainer(t, s.Pod(t), "size")
			c.TTY, c.Stdin, c.StdinOnce = true, true, true
			c.LogPath = filepath.Join(t.TempDir(), "log")
			s.Start(t, c)
			awaitLog(t, c.LogPath, "size 0 0 true")
			resize := make(chan runtime.Size)
			a := s.Attach(t, c.ID, true, resize)
			resize <- runtime.Size{Width: 120, Height: 40}
			a.Out.Await(t, "size 120 40 true")
			awaitLog(t, c.LogPath, "size 120 40 true")
			fmt.Fprint(a.Type, "typed\n")
			a.Out.Await(t, "typed\r\n") // the terminal echoes
			_ = a.Type.Close()
			if err := a.End(t); err != nil {
				t.Errorf("after the end of the input: %v", err)
			}
			again := s.Attach(t, c.ID, true, resize)
			resize <- runtime.Size{Width: 81, Height: 25}
			again.Out.Await(t, "size 81 25 true")
			fmt.Fprint(again.Type, "\x03") // Ctrl-C is a signal
			if err := again.End(t); err != nil {
				t.Errorf("after Ctrl-C: %v", err)
			}
			if x := s.Exit(t, c.ID); x.Code == 0 {
				t.Errorf("after Ctrl-C: %+v", x)
			}
			if strings.Contains(again.Out.String(), "120") || again.Err.String() != "" {
				t.Errorf("what was written before it came: %q, %q", again.Out.String(), again.Err.String())
			}
		})
	}
}

// stuck takes nothing until it is let go.
type stuck chan struct{}

func (s stuck) Write(b []byte) (int, error) {
	<-s
	return len(b), nil
}

// TestAttachStuck: whoever takes nothing does not hold the container up for long, and the log has every line.
func TestAttachStuck(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "flood")
	c.LogPath = filepath.Join(t.TempDir(), "log")
	c.LogBytes, c.LogFiles = 1<<30, 1
	s.Start(t, c)
	good := s.Attach(t, c.ID, false, nil)
	good.Out.Await(t, "line")
	writer, done := make(stuck), make(chan error, 1)
	go func() {
		done <- s.Engine.(runtime.Attacher).Attach(t.Context(), runtime.Attach{Container: c.ID, Stdout: writer})
	}()
	last := awaitSequence(t, c.LogPath, 100)
	// Many times what the pipe holds.
	got := awaitSequence(t, c.LogPath, last[len(last)-1]+10_000)
	for i := range got {
		if got[i] != i {
			t.Fatalf("line %d of the log is %d", i, got[i])
		}
	}
	good.Out.Await(t, fmt.Sprintf("\nline %d ", got[len(got)-1]))
	close(writer)
	if err := <-done; !errors.Is(err, runtime.ErrTooSlow) {
		t.Errorf("the stuck one: %v", err)
	}
	good.Leave()
	_ = good.End(t)
}

// TestKillKeeperDuringAttach: attachers are told at once; the containers go on and can be attached to again, and an
// input that was to end with its first attacher has ended.
func TestKillKeeperDuringAttach(t *testing.T) {
	k := newKeeper(t)
	s := k.setup()
	hold(t, k.client)
	p := s.Pod(t)
	all := map[string]*runtimetest.Attached{}
	var open, once, tty runtime.Container
	for _, c := range []*runtime.Container{&open, &once, &tty} {
		*c = s.NewContainer(t, p, "cat", "3")
		c.Stdin, c.StdinOnce, c.TTY = true, c == &once, c == &tty
		c.LogPath = filepath.Join(t.TempDir(), "log")
		st := s.Start(t, *c)
		if c.TTY {
			awaitTerminalHeld(t, st.Pid)
		} else {
			awaitStdinHeld(t, c.ID)
		}
		all[c.ID] = s.Attach(t, c.ID, true, nil)
		say(t, all[c.ID], "one\n")
	}
	k.kill(t)
	for _, a := range all {
		if err := a.End(t); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("the keeper was killed: %v", err)
		}
	}
	k.start(t)
	for _, c := range []runtime.Container{open, tty} {
		awaitInput(t, s, c.ID)
		a := s.Attach(t, c.ID, true, nil)
		say(t, a, "two\n")
		awaitLog(t, c.LogPath, "two")
		a.Leave()
		_ = a.End(t)
	}
	if x := s.Exit(t, once.ID); x.Code != 3 && !x.Unknown {
		t.Errorf("after its only attacher: %+v", x)
	}
	if st, ok := s.Find(t, open.ID); !ok || st.Phase != runtime.Running {
		t.Errorf("the container afterwards: %+v", st)
	}
	if err := k.client.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.wait(t)
	k.start(t)
	say(t, s.Attach(t, open.ID, true, nil), "three\n")
}

// awaitStdinHeld waits until the brain, which is this process, holds the input of that container.
func awaitStdinHeld(t *testing.T, id string) {
	t.Helper()
	testrun.Until(t, 30*time.Second, "the brain holds the input of "+id, func() bool {
		fds, _ := filepath.Glob("/proc/self/fd/*")
		return slices.ContainsFunc(fds, func(fd string) bool {
			to, _ := os.Readlink(fd)
			return strings.HasSuffix(to, id+"/stdin")
		})
	})
}

// awaitInput: a terminal that brains held comes back a little after the keeper.
func awaitInput(t *testing.T, s runtimetest.Setup, id string) {
	t.Helper()
	testrun.Succeeds(t, 30*time.Second, "the input is there again", func() error {
		a := s.Attach(t, id, true, nil)
		_ = a.Type.Close()
		err := a.End(t)
		if err != nil && !errors.Is(err, runtime.ErrUnavailable) {
			t.Fatal(err)
		}
		return err
	})
}

// say writes to a container that repeats it; a terminal makes \r\n of the end of a line.
func say(t *testing.T, a *runtimetest.Attached, text string) {
	t.Helper()
	if _, err := io.WriteString(a.Type, text); err != nil {
		t.Fatal(err)
	}
	a.Out.Await(t, strings.TrimSpace(text))
}

// TestFDStoreStdin: an input that has ended does not stay in the FD store, nor open.
func TestFDStoreStdin(t *testing.T) {
	testrun.OnHost(t)
	store := newFDStore(t)
	k := &keeperProc{}
	store.arm(t, k)
	k = newKeeperFrom(t, k)
	s := k.setup()
	p := s.Pod(t)
	start := func() (runtime.Container, *runtimetest.Attached) {
		c := s.NewContainer(t, p, "cat", "3")
		c.Stdin, c.StdinOnce = true, true
		s.Start(t, c)
		a := s.Attach(t, c.ID, true, nil)
		say(t, a, "one\n")
		return c, a
	}
	ended, a := start()
	a.Leave()
	if x := s.Exit(t, ended.ID); x.Code != 3 {
		t.Errorf("exit %+v", x)
	}
	orphan, a := start()
	k.kill(t)
	if err := a.End(t); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("the keeper was killed: %v", err)
	}
	store.arm(t, k)
	k.start(t)
	for _, f := range k.extraFiles {
		_ = f.Close()
	}
	if x := s.Exit(t, orphan.ID); x.Code != 3 && !x.Unknown {
		t.Errorf("after its only attacher: %+v", x)
	}
	if names := store.names(); len(names) > 0 {
		t.Errorf("parked for ended containers: %v", names)
	}
}

// TestAttachNothingGrows: attachers that come and go, by their end, by the input's or at once, leave nothing behind
// (GO-2025-4108).
func TestAttachNothingGrows(t *testing.T) {
	testrun.OnHost(t)
	s := inProcess(t)
	c := s.NewContainer(t, s.Pod(t), "cat", "0")
	c.Stdin = true
	s.Start(t, c)
	round := func(n int) {
		for range n {
			a := s.Attach(t, c.ID, true, nil)
			say(t, a, "x\n")
			a.Leave()
			_ = a.End(t)
			_ = a.Type.Close()
			b := s.Attach(t, c.ID, true, nil)
			_ = b.Type.Close()
			_ = b.End(t)
			d := s.Attach(t, c.ID, false, nil)
			d.Leave()
			_ = d.End(t)
		}
	}
	round(10)
	before := held()
	round(30)
	before.stays(t)
	if err := s.Engine.Signal(t.Context(), c.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
