package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"ledge/images"
)

// reclaim removes unused images while the board is short of disk, before any pod would have to go (N-6.23, pain 12).
type reclaim struct {
	last    time.Time
	grumble grumble
}

// reclaimEach is how long the disk is left alone after it: what was freed shows only then.
const reclaimEach = 30 * time.Second

func (r *reclaim) run(ctx context.Context, store images.Store, now time.Time) {
	c, ok := store.(images.Collector)
	if !ok || !r.last.IsZero() && now.Sub(r.last) < reclaimEach {
		return
	}
	r.last = now
	out, err := c.Collect(ctx, true)
	if ctx.Err() == nil {
		r.grumble.about("cannot remove unused images although the disk is nearly full", err)
	}
	if out.Images > 0 || out.Parts > 0 {
		slog.Warn("disk nearly full, unused images removed", "images", out.Images, "bytes", out.Bytes+out.Parts)
	}
}

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
	var trouble grumble
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		out, err := c.Collect(ctx, false)
		if ctx.Err() == nil {
			trouble.about("cannot remove unused images", err)
		}
		if out.Short > 0 {
			a.nodeWarning("FreeDiskSpaceFailed", fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes, "+
				"but only found %d bytes eligible to free.", out.Bytes+out.Short, out.Bytes))
		}
	}
}
