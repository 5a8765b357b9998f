// Package alive tells whoever watches this process, systemd or the machine's watchdog, that it is alive.
package alive

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Sign is something that goes on in a process that is alive. Its look comes back once that has moved; what has come to
// a stop may keep it for ever.
type Sign struct {
	Name string
	Look func(context.Context) error
}

// Watch tells whoever would end this process that it is alive, and only while every sign of life is seen. A round
// may take most of the watcher's patience: a busy board is slow, and still alive.
type Watch struct {
	Patience time.Duration // how long the watcher waits for a word
	Signs    []Sign
	Alive    func() error // says the word
}

// Run goes round until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.Patience / 4):
		}
		if !w.round(ctx) {
			continue
		}
		if err := w.Alive(); err != nil {
			slog.Error("cannot tell the watchdog that this process is alive", "err", err)
		}
	}
}

// round looks for every sign, and says whether all were seen. One that is awaited for long is named in the log, since
// the next thing that happens may be the end of the process.
func (w *Watch) round(ctx context.Context) bool {
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(w.Signs))
	var waiting []string
	for _, s := range w.Signs {
		waiting = append(waiting, s.Name)
		go func() { answers <- answer{s.Name, s.Look(ctx)} }()
	}
	late := time.NewTimer(w.Patience / 2)
	defer late.Stop()
	seen := true
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-late.C:
			slog.Error("this process hangs and leaves the watchdog to end it", "awaited", waiting)
		case a := <-answers:
			waiting = slices.DeleteFunc(waiting, func(name string) bool { return name == a.name })
			if a.err != nil && ctx.Err() == nil {
				slog.Warn("a sign of life is missing", "of", a.name, "err", a.err)
				seen = false
			}
		}
	}
	return seen
}

// BySystemd is the watchdog that the unit's WatchdogSec asks for; nil when it does not.
func BySystemd(signs ...Sign) *Watch {
	patience, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		slog.Warn("systemd's watchdog asks for nothing that makes sense", "err", err)
	}
	if patience <= 0 {
		return nil
	}
	return &Watch{Patience: patience, Signs: signs, Alive: func() error {
		_, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		return err
	}}
}

// TellManager gives systemd a word of this process's state.
func TellManager(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		slog.Warn("cannot tell systemd how this process stands", "state", state, "pid", os.Getpid(), "err", err)
	}
}

// lookLimit bounds the time of a look for one sign.
const lookLimit = 10 * time.Second

// Missing is the first sign that is not seen. One that hangs for ever is left behind: the process ends soon.
func Missing(ctx context.Context, signs []Sign) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	for _, s := range signs {
		seen := make(chan error, 1)
		go func() { seen <- s.Look(ctx) }()
		select {
		case err := <-seen:
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: no answer", s.Name)
		}
	}
	return nil
}
