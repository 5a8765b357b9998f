package shutdown

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// TestSignals: SIGTERM detaches unless told otherwise or the machine goes down; SIGPWR never does; asking twice hurries.
func TestSignals(t *testing.T) {
	for _, tt := range []struct {
		name      string
		drain     bool
		goingDown bool
		signals   []os.Signal
		detached  int
		budgets   []time.Duration
	}{
		{name: "detach", signals: []os.Signal{syscall.SIGTERM, syscall.SIGINT}, detached: 2},
		{name: "drain", drain: true, signals: []os.Signal{syscall.SIGTERM}, budgets: []time.Duration{0}},
		{name: "the machine goes down", goingDown: true, signals: []os.Signal{syscall.SIGTERM}, budgets: []time.Duration{0}},
		{name: "power", signals: []os.Signal{syscall.SIGPWR}, budgets: []time.Duration{0}},
		{name: "twice", drain: true, signals: []os.Signal{syscall.SIGINT, syscall.SIGINT}, budgets: []time.Duration{0, 3 * sec}},
	} {
		synctest.Test(t, func(t *testing.T) {
			detached := 0
			var budgets []time.Duration
			s := &Signals{Drain: tt.drain, GoingDown: func(context.Context) bool { return tt.goingDown }, Detach: func() { detached++ },
				Incoming: make(chan os.Signal, 2)}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- s.Run(ctx, func(e Event) {
					if e.Kind != Down {
						t.Errorf("event %+v", e)
					}
					budgets = append(budgets, e.Budget)
				})
			}()
			for _, sig := range tt.signals {
				s.Incoming <- sig
			}
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil || detached != tt.detached || !slices.Equal(budgets, tt.budgets) {
				t.Errorf("%s: detached %d, told %v, %v", tt.name, detached, budgets, err)
			}
		})
	}
}

// TestSignalsReal: the real signal arrives.
func TestSignalsReal(t *testing.T) {
	told := make(chan Event, 1)
	s := &Signals{Drain: true}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- s.Run(ctx, func(e Event) {
			select {
			case told <- e:
			default:
			}
		})
	}()
	// Nobody knows when Run has begun to listen; until then the signal must not end the test.
	guard := make(chan os.Signal, 1)
	signal.Notify(guard, syscall.SIGPWR)
	defer signal.Stop(guard)
	for range 100 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGPWR); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if len(told) > 0 {
			break
		}
	}
	select {
	case e := <-told:
		if e.Kind != Down || e.Source != "signal" {
			t.Errorf("event %+v", e)
		}
	default:
		t.Error("not heard")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestGoingDown: what systemd says when the machine ends, and when it does not.
func TestGoingDown(t *testing.T) {
	job := func(unit, kind string) []dbus.JobStatus { return []dbus.JobStatus{{Unit: unit, JobType: kind}} }
	for _, tt := range []struct {
		state string
		jobs  []dbus.JobStatus
		want  bool
	}{
		{"running", nil, false},
		{"degraded", job("ledge.service", "stop"), false},
		{"stopping", nil, true},
		{"running", job("shutdown.target", "start"), true},
		{"degraded", job("reboot.target", "start"), true},
		{"running", job("shutdown.target", "stop"), false},
		{"starting", job("multi-user.target", "start"), false},
	} {
		if got := goingDown(tt.state, tt.jobs); got != tt.want {
			t.Errorf("%s %v: %v", tt.state, tt.jobs, got)
		}
	}
}
