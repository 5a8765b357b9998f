package brain

import (
	"context"
	"time"

	"ledge/host"
	"ledge/host/alive"
	"ledge/runtime"
	"ledge/storage"
)

// commits looks whether the store does: one that changes nothing waits its turn like any other, behind what may hang.
func commits(s *storage.Store) alive.Sign {
	return alive.Sign{Name: "the store", Look: func(context.Context) error { return s.Update(func(*storage.Tx) error { return nil }) }}
}

// Answers looks whether a keeper does.
func Answers(c interface {
	Info(context.Context) (runtime.Info, error)
}) alive.Sign {
	return alive.Sign{Name: "the keeper", Look: func(ctx context.Context) error {
		_, err := c.Info(ctx)
		return err
	}}
}

// watchdogs are those that watch this board: systemd's, and the machine's own if it was given.
func (b *Brain) watchdogs() []*alive.Watch {
	signs := []alive.Sign{commits(b.store), {Name: "the pods' loop", Look: b.agent.Turn}, Answers(b.keeper)}
	var out []*alive.Watch
	if w := alive.BySystemd(signs...); w != nil {
		out = append(out, w)
	}
	if b.dog != nil {
		out = append(out, &alive.Watch{Patience: b.dog.Timeout(), Signs: signs, Alive: b.dog.Alive})
	}
	return out
}

// hardwareTimeout is what a hardware watchdog is asked for; some boards' can do 15 seconds at most.
const hardwareTimeout = time.Minute

// openWatchdog takes the machine's own watchdog, which resets it when this process hangs or dies.
func (b *Brain) openWatchdog() (err error) {
	if b.WatchdogDevice != "" {
		b.dog, err = host.OpenWatchdog(b.WatchdogDevice, hardwareTimeout)
	}
	return err
}

// closeWatchdog lets go of it, unless the machine is to go down or to start anew: then it sees to it that the machine does.
func (b *Brain) closeWatchdog() error {
	if b.dog == nil || b.off.KeepsWatchdog(b.UnderInit) {
		return nil
	}
	return b.dog.Disarm()
}
