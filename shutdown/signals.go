package shutdown

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// hurry is the time left for everything when somebody asks a second time.
const hurry = 3 * time.Second

// Signals is the power source of last resort: signals to this process. SIGTERM and SIGINT mean "this process ends";
// the pods are stopped first if Drain says so or if the whole machine is going down. SIGPWR always means power.
type Signals struct {
	Drain bool
	// GoingDown says whether the machine is going down; nil is MachineGoingDown.
	GoingDown func(context.Context) bool
	// Detach is called for a signal that leaves the pods running.
	Detach func()
	// Exit is called once the pods have been stopped.
	Exit func()

	// Incoming brings the signals; nil: Run asks for them. A program that is told to end while it still starts has
	// asked before.
	Incoming chan os.Signal
}

// Live implements Liver.
func (s *Signals) Live() string { return "signals" }

// Incoming asks for the signals that Signals listens to; from then on they do not end the process.
func Incoming() chan os.Signal {
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGPWR)
	return ch
}

// Run listens until ctx ends. A further signal during the shutdown asks for speed.
func (s *Signals) Run(ctx context.Context, tell func(Event)) error {
	ch := s.Incoming
	if ch == nil {
		ch = Incoming()
		defer signal.Stop(ch)
	}
	draining := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case sig := <-ch:
			if !draining && sig != syscall.SIGPWR && !s.Drain && !s.goingDown(ctx) {
				slog.Info("ending, pods run on", "signal", sig.String())
				s.Detach()
				continue
			}
			e := Event{Kind: Down, Source: "signal", Done: s.Exit}
			if draining {
				e.Budget = hurry
			}
			draining = true
			tell(e)
		}
	}
}

func (s *Signals) goingDown(ctx context.Context) bool {
	if s.GoingDown != nil {
		return s.GoingDown(ctx)
	}
	return MachineGoingDown(ctx)
}
