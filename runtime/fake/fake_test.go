package fake

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ledge/runtime"
)

// bubble runs a test by simulated time with an engine whose containers do as their names say.
func bubble(t *testing.T, does map[string]Behaviour, run func(t *testing.T, e *Engine)) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Script: func(c runtime.Container) Behaviour { return does[c.Name] }})
		if _, err := e.EnsurePod(t.Context(), runtime.Pod{UID: "u"}); err != nil {
			t.Fatal(err)
		}
		run(t, e)
	})
}

func start(t *testing.T, e *Engine, name string) runtime.Status {
	t.Helper()
	st, err := e.Start(t.Context(), runtime.Container{ID: name, PodUID: "u", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func status(t *testing.T, e *Engine, id string) runtime.Status {
	t.Helper()
	s, err := e.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Containers {
		if c.ID == id {
			return c
		}
	}
	return runtime.Status{}
}

func TestScriptedTimes(t *testing.T) {
	day := 24 * time.Hour
	bubble(t, map[string]Behaviour{
		"job":  For(day, 3),
		"oom":  {ExitAfter: &day, Exit: runtime.Exit{Code: 137, Signal: 9, OOMKilled: true}},
		"slow": {StartTakes: time.Minute, TermTakes: 10 * time.Second, TermCode: 5},
		"deaf": {IgnoreTERM: true},
	}, func(t *testing.T, e *Engine) {
		began := time.Now()
		start(t, e, "job")
		start(t, e, "oom")
		start(t, e, "deaf")
		start(t, e, "slow")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a slow start took %s", took)
		}
		for _, id := range []string{"slow", "deaf"} {
			if err := e.Signal(t.Context(), id, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10*time.Second - time.Nanosecond)
		if st := status(t, e, "slow"); st.Phase != runtime.Running {
			t.Errorf("ended too early: %+v", st.Exit)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if st := status(t, e, "slow"); st.Phase != runtime.Exited || st.Exit.Code != 5 || st.Exit.Signal != 0 {
			t.Errorf("after SIGTERM: %+v", st)
		}
		time.Sleep(day)
		synctest.Wait()
		job, oom := status(t, e, "job"), status(t, e, "oom")
		if job.Exit == nil || job.Exit.Code != 3 || !job.Exit.FinishedAt.Equal(began.Add(day)) {
			t.Errorf("job: %+v", job.Exit)
		}
		if oom.Exit == nil || !oom.Exit.OOMKilled {
			t.Errorf("oom: %+v", oom.Exit)
		}
		if st := status(t, e, "deaf"); st.Phase != runtime.Running {
			t.Errorf("SIGTERM ended a container that ignores it: %+v", st)
		}
	})
}

func TestFailedStart(t *testing.T) {
	broken := errors.New("broken")
	bubble(t, map[string]Behaviour{"x": {StartErr: broken, StartTakes: time.Second}}, func(t *testing.T, e *Engine) {
		_, err := e.Start(t.Context(), runtime.Container{ID: "x", PodUID: "u", Name: "x"})
		if !errors.Is(err, broken) {
			t.Errorf("Start: %v", err)
		}
		if st := status(t, e, "x"); st.ID != "" {
			t.Errorf("left behind: %+v", st)
		}
	})
}

func TestAwayAndReboot(t *testing.T) {
	bubble(t, map[string]Behaviour{"x": {IgnoreTERM: true}, "y": {IgnoreTERM: true}}, func(t *testing.T, e *Engine) {
		start(t, e, "x")
		watch := func() chan error {
			done := make(chan error, 1)
			go func() { done <- e.Watch(t.Context(), func(runtime.Status) {}) }()
			synctest.Wait()
			return done
		}
		w := watch()
		e.SetAway(true)
		if err := <-w; !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Watch while away: %v", err)
		}
		if _, err := e.List(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("List while away: %v", err)
		}
		e.SetAway(false)
		if st := status(t, e, "x"); st.Phase != runtime.Running {
			t.Errorf("after being away: %+v", st)
		}
		if !e.End("x", runtime.Exit{Code: 1}) || e.End("x", runtime.Exit{Code: 2}) {
			t.Error("End ends once")
		}
		start(t, e, "y")
		w = watch()
		e.Reboot()
		if err := <-w; !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Watch over a reboot: %v", err)
		}
		if s, err := e.List(t.Context()); err != nil || len(s.Pods)+len(s.Containers) > 0 {
			t.Errorf("after a reboot: %+v %v", s, err)
		}
	})
}

// TestNothingLeaks: the bubble fails if a goroutine is left; timers of removed containers must not fire.
func TestNothingLeaks(t *testing.T) {
	bubble(t, map[string]Behaviour{"x": For(time.Hour, 0)}, func(t *testing.T, e *Engine) {
		start(t, e, "x")
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		done := make(chan error, 1)
		go func() { done <- e.Watch(ctx, func(runtime.Status) { seen++ }) }()
		synctest.Wait()
		if err := e.RemovePod(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		cancel()
		<-done
		if seen != 1 {
			t.Errorf("told of a container %d times, want once: running", seen)
		}
	})
}
