package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// Exec runs Program with args in a container, as far as it can be; the caller looks at how it ends.
func (s Setup) Exec(ctx context.Context, id string, args ...string) (runtime.Exit, error) {
	return s.Engine.Exec(ctx, runtime.Exec{Container: id, Args: append([]string{Program}, args...)})
}

func testExec(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	for _, code := range []string{"0", "3", "255"} {
		x, err := s.Exec(t.Context(), c.ID, "exit", code)
		if err != nil || code != strconv.Itoa(x.Code) || x.Signal != 0 {
			t.Errorf("exit %s: %+v, %v", code, x, err)
		}
	}
	_, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{"/no/such/program"}})
	if err == nil || errors.Is(err, runtime.ErrNotFound) || errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("a program that is not there: %v", err)
	}
	if st, ok := s.Find(t, c.ID); !ok || st.Phase != runtime.Running {
		t.Errorf("the container afterwards: %+v", st)
	}
}

func testExecStreams(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "run")
	s.Start(t, c)
	const much = 300_000 // more than any pipe holds
	var out, errOut bytes.Buffer
	x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{Program, "cat", "7"},
		Stdin: strings.NewReader(strings.Repeat("x", much)), Stdout: &out, Stderr: &errOut})
	if err != nil || x.Code != 7 {
		t.Errorf("cat: %+v, %v", x, err)
	}
	if out.Len() != much || errOut.String() != "end\n" {
		t.Errorf("%d bytes went through, %d wanted; standard error %q", out.Len(), much, errOut.String())
	}
	// Without a standard input there is none to wait for, and nobody need want the output.
	if x, err := s.Exec(t.Context(), c.ID, "cat", "0"); err != nil || x.Code != 0 {
		t.Errorf("cat of nothing to nowhere: %+v, %v", x, err)
	}
}

func testExecWhere(t *testing.T, s Setup) {
	if _, err := s.Exec(t.Context(), Unique("unknown"), "exit", "0"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("in an unknown container: %v", err)
	}
	c := s.NewContainer(t, s.Pod(t), "exit", "0")
	s.Start(t, c)
	s.Exit(t, c.ID)
	if _, err := s.Exec(t.Context(), c.ID, "exit", "0"); !errors.Is(err, runtime.ErrNotRunning) {
		t.Errorf("in an ended container: %v", err)
	}
}

func testExecCancelled(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "run")
	s.Start(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if x, err := s.Exec(ctx, c.ID, "ignore"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its time: %+v, %v", x, err)
	}
	// A reader that never gives anything is not waited for.
	never, stop := io.Pipe()
	defer stop.Close()
	x, err := s.Engine.Exec(t.Context(), runtime.Exec{Container: c.ID, Args: []string{Program, "exit", "5"}, Stdin: never})
	if err != nil || x.Code != 5 {
		t.Errorf("with a standard input that stays open: %+v, %v", x, err)
	}
	if st, ok := s.Find(t, c.ID); !ok || st.Phase != runtime.Running {
		t.Errorf("the container afterwards: %+v", st)
	}
}

func testExecEndsWithContainer(t *testing.T, s Setup) {
	c := s.NewContainer(t, s.Pod(t), "ignore")
	s.Start(t, c)
	type result struct {
		exit runtime.Exit
		err  error
	}
	ended := make(chan result, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		x, err := s.Exec(ctx, c.ID, "ignore")
		ended <- result{x, err}
	}()
	time.Sleep(300 * time.Millisecond)
	if err := s.Engine.Signal(t.Context(), c.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-ended:
		// It may not have begun on a busy machine.
		if r.err == nil && r.exit.Code != 137 || r.err != nil && !errors.Is(r.err, runtime.ErrNotRunning) {
			t.Errorf("a command in a container that was killed: %+v", r)
		}
	case <-time.After(testrun.Patience(within)):
		t.Error("a command outlives its container")
	}
}

// testProcessesOf: a container that shares the processes of another ends with it.
func testProcessesOf(t *testing.T, s Setup) {
	p := s.Pod(t)
	target := s.NewContainer(t, p, "ignore")
	guest := s.NewContainer(t, p, "ignore")
	guest.ProcessesOf = target.ID
	if _, err := s.Engine.Start(t.Context(), guest); err == nil {
		t.Fatal("started beside a container that is not there")
	}
	s.Start(t, target)
	s.Start(t, guest)
	if err := s.Engine.Signal(t.Context(), target.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.Exit(t, target.ID)
	if x := s.Exit(t, guest.ID); x.Code != 137 {
		t.Errorf("the guest: %+v", x)
	}
	late := s.NewContainer(t, p, "ignore")
	late.ProcessesOf = target.ID
	if _, err := s.Engine.Start(t.Context(), late); err == nil {
		t.Error("started beside a container that has ended")
	}
}
