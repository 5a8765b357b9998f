package node

import (
	"context"
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
