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

	"ledge/api"
	"ledge/boot/ending"
	"ledge/host/alive"
	"ledge/host/heap"
	"ledge/node"
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
		case n.b.power.cancelled <- struct{}{}:
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

func awaitCleared(ctx context.Context, agent *node.Agent) {
	ctx, cancel := context.WithTimeout(ctx, clearsWithin)
	defer cancel()
	if err := agent.Cleared(ctx); err != nil {
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

// power is what ends a board, and knows of the ends of others: signals, requests, the supply, and under systemd logind, whose
// shutdown is held up while pods stop.
type power struct {
	cfg    Config
	rim    Power
	events *api.Recorder

	manager  *shutdown.Manager
	requests *shutdown.Requests
	logind   *shutdown.Logind // nil without systemd
	voltage  shutdown.Voltage

	end       chan ending.Why // capacity 1: what ends the brain
	cancelled chan struct{}   // capacity 1: a shutdown was
}

// openPower prepares that for a board.
func openPower(cfg Config, rims Rims, node shutdown.Node, events *api.Recorder) (p *power, err error) {
	p = &power{cfg: cfg, rim: rims.Power, events: events, end: make(chan ending.Why, 1), cancelled: make(chan struct{}, 1)}
	times := cfg.File.Shutdown()
	p.requests = shutdown.NewRequests(p.requested)
	sources := []shutdown.Source{&shutdown.Signals{Incoming: p.rim.Signals, GoingDown: p.rim.GoingDown, Drain: cfg.OnTerm == "drain",
		Detach: func() { p.tell(ending.Detached) }, Exit: func() { p.tell(ending.Drained) }}, p.requests}
	off := func() { p.requested(false) }
	p.voltage.Root, p.voltage.Changed = cfg.File.Power.Sensors, p.voltageChanged
	sources = append(sources, &p.voltage)
	sources = append(sources, p.supplies(times.Total(), off)...)
	if underSystemd() {
		p.logind = &shutdown.Logind{Want: times.Total(), Strict: cfg.Shortfall == "fail"}
		sources = append(sources, p.logind, &shutdown.PowerKey{Dir: p.rim.Keys, Off: off,
			Elsewhere: func() bool { return p.logind.Live() != "" }})
	} else {
		sources = append(sources, &shutdown.PowerKey{Dir: p.rim.Keys, Off: off, From: p.rim.Presses})
	}
	p.manager, err = shutdown.NewManager(shutdown.ManagerConfig{Node: node, NodeName: cfg.Name, Shutdown: times, Sources: sources,
		Events: events, FinishFirst: !cfg.CancelStopsKill, Record: filepath.Join(cfg.DataDir, shutdown.RecordName),
		BootID: rims.Host.BootID(), Off: p.requested})
	return p, err
}

// tell has the brain end so, unless it ends already.
func (p *power) tell(why ending.Why) {
	select {
	case p.end <- why:
	default:
	}
}

// supplies are the batteries of the machine and the UPS of the configuration.
func (p *power) supplies(total time.Duration, off func()) []shutdown.Source {
	c := p.cfg.File.Power
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
func (p *power) requested(reboot bool) {
	p.cfg.beginAnew()
	if p.cfg.PowerBackend == shutdown.None {
		slog.Info("the pods are stopped; the machine stays on (--power-backend=none)")
		return
	}
	if p.cfg.PowerBackend != shutdown.Direct {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := p.rim.Off(ctx, shutdown.ByLogind, reboot)
		if err == nil {
			return
		}
		if p.cfg.PowerBackend == shutdown.ByLogind {
			slog.Error("the pods are stopped, but the machine stays on; switch it off by hand", "err", err)
			return
		}
	}
	if reboot {
		p.tell(ending.Reboot)
		return
	}
	p.tell(ending.PowerOff)
}
