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

// dogs are the watchdogs of this board: systemd's, and the machine's own if it was given.
type dogs struct{ machine *host.Watchdog }

// hardwareTimeout is what a hardware watchdog is asked for; some boards' can do 15 seconds at most.
const hardwareTimeout = time.Minute

// open takes the machine's own watchdog, which resets it when this process hangs or dies.
func (d *dogs) open(device string) (err error) {
	if device != "" {
		d.machine, err = host.OpenWatchdog(device, hardwareTimeout)
	}
	return err
}

// watch has them look for the signs.
func (d *dogs) watch(signs ...alive.Sign) []*alive.Watch {
	var out []*alive.Watch
	if w := alive.BySystemd(signs...); w != nil {
		out = append(out, w)
	}
	if d.machine != nil {
		out = append(out, &alive.Watch{Patience: d.machine.Timeout(), Signs: signs, Alive: d.machine.Alive})
	}
	return out
}

// close lets go of the machine's, unless the machine is to go down or to start anew: then it sees to it that the machine does.
func (d *dogs) close(machineGoes bool) error {
	if d.machine == nil || machineGoes {
		return nil
	}
	return d.machine.Disarm()
}
