package brain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/boot/ending"
	"ledge/host/alive"
	"ledge/host/heap"
	"ledge/node/podstate"
	"ledge/shutdown"
)

// powerNode is the board as a shutdown sees it.
type powerNode struct{ b *Brain }

var _ shutdown.Node = powerNode{}

// startsWithin bounds how long a shutdown waits for a node that has just begun to find its pods.
const startsWithin = 10 * time.Second

// stopReserve is what a brain needs beside the pods' time to end in order.
const stopReserve = 15 * time.Second

func (n powerNode) Close(message string) {
	n.b.agent.Close(message)
	if message == "" {
		select {
		case n.b.cancelled <- struct{}{}:
		default: // told already
		}
		return
	}
	heap.Hurry()
	// The unit's TimeoutStopSec may be less than the configuration wants; it counts from systemd's SIGTERM.
	alive.TellManager(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (n.b.File.Shutdown().Total() + stopReserve).Microseconds()))
	n.b.guard.resume() // a shutdown stops what runs, held or not
	select {
	case <-n.b.agent.Handed():
	case <-time.After(startsWithin):
		slog.Warn("the node has not found its pods; what runs is not stopped in order")
	}
}

func (n powerNode) Pods() []*corev1.Pod { return n.b.agent.Pods() }

func (n powerNode) StopPod(ctx context.Context, uid types.UID, grace time.Duration) error {
	stop := podstate.Stop{Reason: shutdown.StopReason, Message: shutdown.StopMessage, Disruption: shutdown.StopDisruption, Grace: &grace}
	if n.b.PodReason == shutdown.StopReasonOld {
		stop.Reason, stop.Message = shutdown.StopReasonOld, shutdown.StopMessageOld
	}
	return n.b.agent.StopPod(ctx, uid, stop)
}

func (n powerNode) Clear() { n.b.agent.Clear() }

// clearsWithin bounds how long this process waits, before it ends or starts pods again, until nothing is left of those that it
// has stopped. At a power-off their mounts would each be undone by a process of systemd's.
const clearsWithin = 5 * time.Second

func (b *Brain) awaitCleared(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clearsWithin)
	defer cancel()
	if err := b.agent.Cleared(ctx); err != nil {
		slog.Warn("something is left of stopped pods", "err", err)
	}
}

func (n powerNode) Flush(context.Context) error {
	return errors.Join(n.b.store.Flush(), syncFS(n.b.DataDir))
}

// syncFS puts all that was written to the file system of dir on disk: pods' volumes, what they left in their root file
// systems, logs.
func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", dir, err)
	}
	return nil
}

// openPower prepares what ends a board: signals, requests, and under systemd logind, whose shutdown is held up while
// pods stop.
func (b *Brain) openPower() error {
	b.end = make(chan ending.Why, 1)
	tell := func(why ending.Why) func() {
		return func() {
			select {
			case b.end <- why:
			default: // told already
			}
		}
	}
	cfg := b.File.Shutdown()
	b.requests = shutdown.NewRequests(func(reboot bool) { b.requested(reboot, tell) })
	sources := []shutdown.Source{&shutdown.Signals{Incoming: b.rims.Power.Signals, GoingDown: b.rims.Power.GoingDown,
		Drain: b.OnTerm == "drain", Detach: tell(ending.Detached), Exit: tell(ending.Drained)}, b.requests}
	off := func() { b.requested(false, tell) }
	b.voltage.Root, b.voltage.Changed = b.File.Power.Sensors, b.voltageChanged
	sources = append(sources, &b.voltage)
	sources = append(sources, b.supplies(cfg.Total(), off)...)
	if underSystemd() {
		b.logind = &shutdown.Logind{Want: cfg.Total(), Strict: b.Shortfall == "fail"}
		sources = append(sources, b.logind, &shutdown.PowerKey{Dir: b.rims.Power.Keys, Off: off,
			Elsewhere: func() bool { return b.logind.Live() != "" }})
	} else {
		sources = append(sources, &shutdown.PowerKey{Dir: b.rims.Power.Keys, Off: off, From: b.rims.Power.Presses})
	}
	var err error
	b.power, err = shutdown.NewManager(shutdown.ManagerConfig{Node: powerNode{b}, NodeName: b.Name, Shutdown: cfg, Sources: sources,
		Events: b.events, FinishFirst: !b.CancelStopsKill, Record: filepath.Join(b.DataDir, shutdown.RecordName),
		BootID: b.rims.Host.BootID(), Off: func(reboot bool) { b.requested(reboot, tell) }})
	return err
}

// supplies are the batteries of the machine and the UPS of the configuration.
func (b *Brain) supplies(total time.Duration, off func()) []shutdown.Source {
	c := b.File.Power
	limits := shutdown.Limits{Charge: c.BatteryLow, Reserve: c.Reserve.Duration}
	out := []shutdown.Source{&shutdown.Watch{Name: "battery", Supply: &shutdown.Batteries{Root: c.Supplies}, Limits: limits, Total: total,
		Off: off}}
	if c.UPS == "" {
		return out
	}
	ups, _ := shutdown.ParseUPS(c.UPS) // checked when the configuration was read
	ups.User, ups.Password = c.UPSUser, c.UPSPassword
	return append(out, &shutdown.Watch{Name: "ups", Supply: &ups, Limits: limits, Total: total, Off: off})
}

// requested is what follows a shutdown that somebody asked for. logind ends this process in its own time; the direct way
// has to wait until the store is closed; with none the board stays as it is until the request is taken back.
func (b *Brain) requested(reboot bool, tell func(ending.Why) func()) {
	b.beginAnew()
	if b.PowerBackend == shutdown.None {
		slog.Info("the pods are stopped; the machine stays on (--power-backend=none)")
		return
	}
	if b.PowerBackend != shutdown.Direct {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := b.rims.Power.Off(ctx, shutdown.ByLogind, reboot)
		if err == nil {
			return
		}
		if b.PowerBackend == shutdown.ByLogind {
			slog.Error("the pods are stopped, but the machine stays on; switch it off by hand", "err", err)
			return
		}
	}
	if reboot {
		tell(ending.Reboot)()
		return
	}
	tell(ending.PowerOff)()
}
