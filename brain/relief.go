package brain

import (
	"context"

	"ledge/node"
)

// relief joins the agent with what the machine can do about want of memory and room, and with what it tells of it.
func (b *Brain) relief(cfg *node.Config) {
	cfg.OOMs = b.rims.Machine.OOMs
	cfg.Shrink = func(context.Context) (bool, error) {
		freed, err := b.store.Compact()
		return freed > 0, err
	}
	if b.File.Reclaims() {
		cfg.Reclaim = b.rims.Machine.Reclaim
	}
}
