package brain

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"ledge/api/local"
	"ledge/config"
	"ledge/host"
	"ledge/host/ntp"
	"ledge/storage"
)

const bootIDKey = "bootID"

// resumer brings back what an orderly power-off stopped (architecture: Bare pods come back).
type resumer struct {
	client *local.Client
	node   string
	off    bool // resumePods: false
}

func (b *Brain) resumer(node string) resumer {
	return resumer{client: b.plane.client, node: node, off: b.File.ResumePods != nil && !*b.File.ResumePods}
}

// resume brings back what can be.
func (r resumer) resume() error {
	if r.off {
		return nil
	}
	_, err := r.client.Resume(r.node)
	return err
}

// booted calls begin once in each boot, and anew when the run state is. first is true for the first start of a boot that is
// not the board's first.
func booted(settings *storage.Table, bootID string, anew bool, begin func() error) (first bool, err error) {
	rows, _, err := settings.All()
	if err != nil || string(rows[bootIDKey]) == bootID && !anew {
		return false, err
	}
	first = len(rows[bootIDKey]) > 0 && string(rows[bootIDKey]) != bootID
	if err := begin(); err != nil {
		return first, err
	}
	return first, settings.Put(bootIDKey, []byte(bootID))
}

// begunName is a file in the run directory. A reset removes it with all else there. So a node that begins after a reset gets the pods
// back that were stopped for it; such a reset comes from a package that is removed and installed again.
const begunName = "begun"

// beginAnew lets the next start give back what a shutdown has stopped, also in the same boot: in a container, with
// --power-backend=none, or when a process ends that drains its pods, the boot ID stays.
func (c Config) beginAnew() {
	if err := os.Remove(filepath.Join(c.RunDir, begunName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Error("the next start in this boot may leave the pods stopped; delete the file before it", "err", err)
	}
}

// resumePods is done at every start.
func (b *Brain) resumePods(ctx context.Context) error {
	bootID := b.rims.Host.BootID()
	begun := filepath.Join(b.RunDir, begunName)
	_, err := os.Stat(begun)
	anew, first := errors.Is(err, fs.ErrNotExist), false
	err = b.debts.orOwe(ctx, "start again what a power-off stopped", func(context.Context) (err error) {
		first, err = booted(b.store.Table("settings"), bootID, anew, func() error {
			if b.plane == nil {
				return nil // the control plane does it
			}
			return b.resumer(b.Name).resume()
		})
		if err != nil {
			return err
		}
		return os.WriteFile(begun, nil, 0o600)
	})
	b.cut = first && b.store.Health().Unclean
	return err
}

// resumeCancelled brings back what a shutdown had stopped that did not happen. Pods that were told to end while it was
// taken back still do, so it looks until there are none.
func (b *Brain) resumeCancelled(ctx context.Context) error {
	r := b.resumer(b.Name)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.power.cancelled:
		}
		awaitCleared(ctx, b.agent) // the same pods may want the same ports
		for !r.off && ctx.Err() == nil && !b.agent.Closed() {
			stopping := b.agent.Stopping() // before the look: what ends after it is seen next time
			if err := r.resume(); err != nil {
				slog.Error("pods that a cancelled shutdown stopped cannot be started again", "err", err)
				break
			}
			if !stopping {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// Clocks. A board without a battery for its clock boots in the past; the floor keeps its certificates good until the
// network tells the time (architecture: Observer's clock).

const (
	clockLook = time.Minute
	// clockKeep is how old a saved clock may get: each time costs the card a block.
	clockKeep = 24 * time.Hour
)

// timekeeper sets the clock of a board, and saves it.
type timekeeper struct {
	cfg    Config
	synced func() (bool, error) // something that knows the time keeps the clock
}

// keep saves the clock once a day, and at the end, if something that knows the time keeps it.
func (t timekeeper) keep(ctx context.Context) error {
	saved := t.cfg.Build.ClockFloor(t.cfg.DataDir)
	save := func(old time.Duration) {
		now := time.Now()
		if now.Sub(saved) < old {
			return
		}
		if synced, err := t.synced(); err != nil || !synced {
			return
		}
		if err := host.SaveClock(config.ClockFile(t.cfg.DataDir), now); err != nil {
			slog.Warn("the clock cannot be saved; without a network the next boot may take an older time for the right one", "err", err)
		}
		saved = now
	}
	for {
		save(clockKeep)
		select {
		case <-ctx.Done():
			save(time.Hour)
			return nil
		case <-time.After(clockLook):
		}
	}
}

// tell keeps the clock by time servers. It is the brain's: what process 1 would have to read from strangers could end it.
func (t timekeeper) tell(ctx context.Context) error {
	servers := t.cfg.File.TimeServers(t.cfg.UnderInit)
	if servers == nil {
		return nil
	}
	// Not the saved clock: a server that lied once could make that wrong for good.
	return ntp.New(ntp.Config{Servers: servers, Floor: t.cfg.Build.Floor(), Adjust: host.AdjustClock}).Run(ctx)
}
