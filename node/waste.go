package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"ledge/images"
)

// waste is what a board has that nobody needs.
type waste struct {
	a    *Agent
	bare map[string]bool // ended containers whose files have been removed
}

// shrink gives back what the agent's own files hold for nothing.
func (w *waste) shrink(ctx context.Context) (freed bool, err error) {
	if w.a.cfg.Shrink == nil {
		return false, nil
	}
	return w.a.cfg.Shrink(ctx)
}

// dropEnded removes what ended containers have written. Their records and logs stay, for those who ask what happened.
func (w *waste) dropEnded(ctx context.Context) (freed bool, err error) {
	ended := w.a.engine.ended()
	maps.DeleteFunc(w.bare, func(id string, _ bool) bool { return !slices.Contains(ended, id) })
	var errs []error
	for _, id := range ended {
		if w.bare[id] {
			continue
		}
		if err := w.a.cfg.Images.Unmount(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		w.bare[id], freed = true, true
	}
	return freed, errors.Join(errs...)
}

// dropImages removes every image that no container stands on, but those that were imported or pinned.
func (w *waste) dropImages(ctx context.Context) (freed bool, err error) {
	c, ok := w.a.cfg.Images.(images.Collector)
	if !ok {
		return false, nil
	}
	out, err := c.Collect(ctx, true)
	if out.Images > 0 || out.Parts > 0 {
		slog.Warn("disk nearly full, unused images removed", "images", out.Images, "bytes", out.Bytes+out.Parts)
	}
	return out.Images > 0 || out.Parts > 0, err
}
