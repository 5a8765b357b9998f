package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// Sink collects output and may be looked at meanwhile.
type Sink struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *Sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *Sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// Await waits for a text to be in it.
func (s *Sink) Await(t *testing.T, text string) {
	t.Helper()
	testrun.Succeeds(t, within, fmt.Sprintf("%q appears", text), func() error {
		if s := s.String(); !strings.Contains(s, text) {
			return fmt.Errorf("there is:\n%s", s)
		}
		return nil
	})
}

// Attached is somebody who is attached to a container.
type Attached struct {
	Out, Err Sink
	Type     io.WriteCloser // what goes to the container's standard input
	Leave    context.CancelFunc
	done     chan error
}

// Attach joins a container; with stdin also its input. It has begun when something has come back, not before.
func (s Setup) Attach(t *testing.T, id string, stdin bool, resize <-chan runtime.Size) *Attached {
	t.Helper()
	a := &Attached{done: make(chan error, 1)}
	x := runtime.Attach{Container: id, Stdout: &a.Out, Stderr: &a.Err, Resize: resize}
	if stdin {
		r, w := io.Pipe()
		x.Stdin, a.Type = r, w
		t.Cleanup(func() { _ = r.Close() })
	}
	var ctx context.Context
	ctx, a.Leave = context.WithCancel(context.Background())
	go func() { a.done <- s.Engine.(runtime.Attacher).Attach(ctx, x) }()
	t.Cleanup(a.Leave)
	return a
}

// End waits for the attachment's end and gives its error.
func (a *Attached) End(t *testing.T) error {
	t.Helper()
	select {
	case err := <-a.done:
		return err
	case <-time.After(testrun.Patience(within)):
		t.Fatal("an attachment does not end")
		return nil
	}
}

func (s Setup) cat(t *testing.T, once bool) runtime.Container {
	c := s.NewContainer(t, s.Pod(t), "cat", "3")
	c.Stdin, c.StdinOnce = true, once
	s.Start(t, c)
	return c
}

// testAttachOnce: with StdinOnce the end of the input is the container's, and all that it then says still comes.
func testAttachOnce(t *testing.T, s Setup) {
	c := s.cat(t, true)
	a := s.Attach(t, c.ID, true, nil)
	const much = 300_000 // more than any pipe holds
	text := strings.Repeat("x", much)
	if _, err := io.WriteString(a.Type, text); err != nil {
		t.Fatal(err)
	}
	_ = a.Type.Close()
	if err := a.End(t); err != nil {
		t.Errorf("attached to a container that ended: %v", err)
	}
	if a.Out.String() != text || a.Err.String() != "end\n" {
		t.Errorf("%d bytes came back of %d; standard error %q", len(a.Out.String()), much, a.Err.String())
	}
	if x := s.Exit(t, c.ID); x.Code != 3 {
		t.Errorf("exit %+v", x)
	}
}

// testAttachFirst: with StdinOnce the first attacher hears the container from its start, and only the first.
func testAttachFirst(t *testing.T, s Setup) {
	for _, once := range []bool{true, false} {
		c := s.NewContainer(t, s.Pod(t), "cat", "3", "good morning")
		c.Stdin, c.StdinOnce = true, once
		s.Start(t, c)
		time.Sleep(100 * time.Millisecond) // it has spoken by now, mostly; with StdinOnce it does not matter
		a := s.Attach(t, c.ID, true, nil)
		if once {
			a.Out.Await(t, "good morning\n")
		}
		typed(t, a, "one\n")
		b := s.Attach(t, c.ID, false, nil)
		typed(t, a, "two\n")
		if got := a.Out.String(); once && got != "good morning\none\ntwo\n" {
			t.Errorf("once: %q", got)
		}
		if got := b.Out.String(); strings.Contains(got, "morning") {
			t.Errorf("the second heard %q", got)
		}
		a.Leave()
		b.Leave()
		_ = a.End(t)
		_ = b.End(t)
	}
}

// testAttachOnceLeaves: the leaving of the attacher ends the input too.
func testAttachOnceLeaves(t *testing.T, s Setup) {
	c := s.cat(t, true)
	reader := s.Attach(t, c.ID, false, nil) // has no input, so its leaving ends none
	a := s.Attach(t, c.ID, true, nil)
	typed(t, a, "one\n")
	reader.Leave()
	if err := reader.End(t); !errors.Is(err, context.Canceled) {
		t.Errorf("after leaving: %v", err)
	}
	typed(t, a, "two\n")
	a.Leave()
	if err := a.End(t); !errors.Is(err, context.Canceled) {
		t.Errorf("after leaving: %v", err)
	}
	if x := s.Exit(t, c.ID); x.Code != 3 {
		t.Errorf("exit %+v", x)
	}
}

// typed writes to a container that says everything it reads.
func typed(t *testing.T, a *Attached, text string) {
	t.Helper()
	if _, err := io.WriteString(a.Type, text); err != nil {
		t.Fatal(err)
	}
	a.Out.Await(t, text)
}

// testAttachAgain: without StdinOnce attachers come and go and the input stays open.
func testAttachAgain(t *testing.T, s Setup) {
	c := s.cat(t, false)
	for _, text := range []string{"one\n", "two\n"} {
		a := s.Attach(t, c.ID, true, nil)
		typed(t, a, text)
		_ = a.Type.Close()
		if err := a.End(t); err != nil {
			t.Errorf("after the end of the input: %v", err)
		}
	}
	a, b := s.Attach(t, c.ID, true, nil), s.Attach(t, c.ID, true, nil)
	typed(t, a, "three\n")
	typed(t, b, "four\n")
	a.Out.Await(t, "four\n")
	b.Leave()
	_ = b.End(t)
	typed(t, a, "five\n")
	if st, ok := s.Find(t, c.ID); !ok || st.Phase != runtime.Running {
		t.Errorf("the container meanwhile: %+v", st)
	}
	if err := s.Engine.Signal(t.Context(), c.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := a.End(t); err != nil {
		t.Errorf("attached to a container that was killed: %v", err)
	}
}

func testAttachWhere(t *testing.T, s Setup) {
	if err := s.Attach(t, Unique("unknown"), false, nil).End(t); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("to an unknown container: %v", err)
	}
	p := s.Pod(t)
	deaf := s.NewContainer(t, p, "ignore")
	s.Start(t, deaf)
	if err := s.Attach(t, deaf.ID, true, nil).End(t); !errors.Is(err, runtime.ErrNoStdin) {
		t.Errorf("with input, to a container that has none: %v", err)
	}
	ended := s.NewContainer(t, p, "exit", "0")
	s.Start(t, ended)
	s.Exit(t, ended.ID)
	if err := s.Attach(t, ended.ID, false, nil).End(t); !errors.Is(err, runtime.ErrNotRunning) {
		t.Errorf("to an ended container: %v", err)
	}
}

// testAttachBadWriter: an error of the writer is the attachment's, and the container goes on.
func testAttachBadWriter(t *testing.T, s Setup) {
	c := s.cat(t, false)
	broken := errors.New("broken")
	r, w := io.Pipe()
	defer r.Close()
	done := make(chan error, 1)
	go func() {
		done <- s.Engine.(runtime.Attacher).Attach(t.Context(), runtime.Attach{Container: c.ID, Stdin: r, Stdout: fails{broken}})
	}()
	if _, err := io.WriteString(w, "x\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, broken) {
			t.Errorf("with a writer that fails: %v", err)
		}
	case <-time.After(testrun.Patience(within)):
		t.Fatal("an attachment outlives its writer")
	}
	typed(t, s.Attach(t, c.ID, true, nil), "two\n")
}

type fails struct{ err error }

func (f fails) Write([]byte) (int, error) { return 0, f.err }
