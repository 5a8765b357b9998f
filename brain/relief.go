package brain

import (
	"context"

	"ledge/host"
	"ledge/node"
)

// relief joins the agent with what the machine can do about want of memory and room, and with what it tells of it.
func (b *Brain) relief(cfg *node.Config, machine *host.Host) {
	cfg.OOMs = func(ctx context.Context, fn func(string, int)) error {
		return machine.WatchOOM(ctx, func(v host.Victim) { fn(v.Name, v.PID) })
	}
	cfg.Shrink = func(context.Context) (bool, error) {
		freed, err := b.store.Compact()
		return freed > 0, err
	}
	if b.File.Reclaims() {
		cfg.Reclaim = machine.Reclaim
	}
}
