package node

import (
	"context"
	"fmt"
	"time"

	"ledge/images"
	"ledge/internal/grumble"
)

// collectEach is how often unused images are looked for without any need (N-6.24).
const collectEach = 5 * time.Minute

// collectImages removes from time to time images that nobody has used for long, and others while the disk is too full.
func (a *Agent) collectImages(ctx context.Context) error {
	c, ok := a.cfg.Images.(images.Collector)
	if !ok {
		return nil
	}
	tick := time.NewTicker(collectEach)
	defer tick.Stop()
	var trouble grumble.Once
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		out, err := c.Collect(ctx, false)
		if ctx.Err() == nil {
			trouble.About("cannot remove unused images", err)
		}
		if out.Short > 0 {
			a.nodeWarning("FreeDiskSpaceFailed", fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes, "+
				"but only found %d bytes eligible to free.", out.Bytes+out.Short, out.Bytes))
		}
	}
}
