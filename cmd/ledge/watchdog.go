package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"ledge/host"
	"ledge/runtime/keeper"
	"ledge/storage"
)

// sign is something that goes on in a process that is alive. Its look comes back once that has moved; what has come to
// a stop may keep it for ever.
type sign struct {
	name string
	look func(context.Context) error
}

// watchdog tells whoever would end this process that it is alive, and only while every sign of life is seen. A round
// may take most of the watcher's patience: a busy board is slow, and still alive.
type watchdog struct {
	patience time.Duration // how long the watcher waits for a word
	signs    []sign
	alive    func() error // says the word
}

// Run goes round until ctx ends.
func (w *watchdog) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.patience / 4):
		}
		if !w.round(ctx) {
			continue
		}
		if err := w.alive(); err != nil {
			slog.Error("cannot tell the watchdog that this process is alive", "err", err)
		}
	}
}

// round looks for every sign, and says whether all were seen. One that is awaited for long is named in the log, since
// the next thing that happens may be the end of the process.
func (w *watchdog) round(ctx context.Context) bool {
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(w.signs))
	var waiting []string
	for _, s := range w.signs {
		waiting = append(waiting, s.name)
		go func() { answers <- answer{s.name, s.look(ctx)} }()
	}
	late := time.NewTimer(w.patience / 2)
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

// commits looks whether the store does: one that changes nothing waits its turn like any other, behind what may hang.
func commits(s *storage.Store) sign {
	return sign{"the store", func(context.Context) error { return s.Update(func(*storage.Tx) error { return nil }) }}
}

// answers looks whether a keeper does.
func answers(c *keeper.Client) sign {
	return sign{"the keeper", func(ctx context.Context) error {
		_, err := c.Info(ctx)
		return err
	}}
}

// bySystemd is the watchdog that the unit's WatchdogSec asks for; nil when it does not.
func bySystemd(signs ...sign) *watchdog {
	patience, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		slog.Warn("systemd's watchdog asks for nothing that makes sense", "err", err)
	}
	if patience <= 0 {
		return nil
	}
	return &watchdog{patience: patience, signs: signs, alive: func() error {
		_, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		return err
	}}
}

// watchdogs are those that watch this board: systemd's, and the machine's own if it was given.
func (b *brain) watchdogs() []*watchdog {
	signs := []sign{commits(b.store), {"the pods' loop", b.agent.Turn}, answers(b.keeper)}
	var out []*watchdog
	if w := bySystemd(signs...); w != nil {
		out = append(out, w)
	}
	if b.dog != nil {
		out = append(out, &watchdog{patience: b.dog.Timeout(), signs: signs, alive: b.dog.Alive})
	}
	return out
}

// hardwareTimeout is what a hardware watchdog is asked for; some boards' can do 15 seconds at most.
const hardwareTimeout = time.Minute

// openWatchdog takes the machine's own watchdog, which resets it when this process hangs or dies.
func (b *brain) openWatchdog() (err error) {
	if b.watchdogDevice != "" {
		b.dog, err = host.OpenWatchdog(b.watchdogDevice, hardwareTimeout)
	}
	return err
}

// closeWatchdog lets go of it, unless the machine is to go down or to start anew: then it sees to it that the machine does.
func (b *brain) closeWatchdog() error {
	if b.dog == nil || b.off == poweroff || b.off == rebooting || b.underInit {
		return nil
	}
	return b.dog.Disarm()
}

// tellManager gives systemd a word of this process's state.
func tellManager(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		slog.Warn("cannot tell systemd how this process stands", "state", state, "pid", os.Getpid(), "err", err)
	}
}
