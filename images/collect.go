package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// Collector frees disk space that images take and nobody needs.
type Collector interface {
	// Collect removes unused images as PlanGC says: with all set, every one of them, because the disk is nearly full.
	Collect(ctx context.Context, all bool) (Collected, error)
}

// Collected is what was freed, at once or since the store was opened.
type Collected struct {
	Images int   `json:"images"` // removed
	Aged   int   `json:"aged"`   // of Images: they had been idle for too long
	Bytes  int64 `json:"bytes"`  // of layers and blobs
	Parts  int64 `json:"parts"`  // bytes of downloads that had been given up, and of layers made of them
	Short  int64 `json:"short"`  // bytes that should have been freed too, and could not be
}

func (c *Collected) add(o Collected) {
	c.Images, c.Aged, c.Bytes, c.Parts, c.Short = c.Images+o.Images, c.Aged+o.Aged, c.Bytes+o.Bytes, c.Parts+o.Parts, o.Short
}

var _ Collector = (*Disk)(nil)

// collector removes images that no pod needs, and files that pulls left behind.
type collector struct {
	home     *home
	stock    *stock
	uses     *uses
	parts    *parts
	leftover *leftovers
	policy   GCPolicy
	tally    *Tally
	log      *slog.Logger
}

// Collect implements Collector.
func (d *Disk) Collect(ctx context.Context, all bool) (Collected, error) {
	return d.collector.collect(ctx, all)
}

func (c *collector) collect(ctx context.Context, all bool) (out Collected, err error) {
	err = c.stock.change(func() error {
		in, err := c.input(all)
		if err != nil {
			return err
		}
		plan, short := PlanGC(in, c.policy)
		out.Short = short
		err = c.remove(ctx, plan, &out)
		parts, perr := c.parts.dropOld(all || short > 0)
		made, herr := c.leftover.drop(all || short > 0)
		out.Parts = parts + made
		if out.Images > 0 || out.Parts > 0 || short > 0 {
			c.log.Info("unused images removed", "images", out.Images, "bytes", out.Bytes, "givenUpBytes", out.Parts, "short", short, "all", all)
		}
		c.tally.Collected(out)
		return errors.Join(err, perr, herr)
	})
	return out, err
}

// remove does what was planned, and counts it.
func (c *collector) remove(ctx context.Context, plan []GCRemoval, out *Collected) error {
	var errs []error
	for _, r := range plan {
		if ctx.Err() != nil {
			break
		}
		gone, err := c.removeOne(r)
		errs = append(errs, err)
		if gone {
			out.Images, out.Bytes = out.Images+1, out.Bytes+r.Bytes
			if r.Aged {
				out.Aged++
			}
		}
	}
	if len(plan) > 0 {
		errs = append(errs, c.stock.sweep())
	}
	return errors.Join(errs...)
}

// removeOne removes an image unless somebody began to use it. Its layers go with the sweep that follows.
func (c *collector) removeOne(r GCRemoval) (bool, error) {
	row, ok := c.stock.catalog.get(r.ID)
	if !ok || row.Pinned || row.Source != nil || c.stock.roots.use(r.ID) {
		return false, nil
	}
	c.log.Info("image removed, unused", "image", r.ID, "names", row.Names, "bytes", r.Bytes)
	return true, c.stock.catalog.drop(row)
}

func (c *collector) input(all bool) (GCInput, error) {
	capacity, free, err := c.home.space()
	if err != nil {
		return GCInput{}, err
	}
	in := GCInput{All: all, Layers: c.stock.shelf.sizes(), Capacity: capacity, Available: free}
	for _, row := range c.stock.catalog.rows() {
		g := GCImage{ID: row.ID, Needed: row.Pinned || row.Source != nil || c.stock.roots.use(row.ID), Blobs: c.keptBytes(row),
			Layers: row.chains()}
		g.LastUsed, g.Age, g.Idle = c.uses.of(row.ID, c.policy.withDefaults().MinAge)
		in.Images = append(in.Images, g)
	}
	return in, nil
}

// room says whether that many bytes more fit on the disk. If not, what nobody uses has to go.
func (c *collector) room(ctx context.Context, bytes int64) error {
	_, free, err := c.home.space()
	if err != nil || bytes <= free {
		return err
	}
	if _, err := c.collect(ctx, true); err != nil {
		return err
	}
	if _, free, err = c.home.space(); err != nil || bytes <= free {
		return err
	}
	return fmt.Errorf("%d MB are to be downloaded and only %d MB are free on the disk of %s: %w", bytes>>20, free>>20, c.home.root(),
		unix.ENOSPC)
}

// keptBytes is what the compressed layers of an image take that only it keeps, near enough.
func (c *collector) keptBytes(row *imageRow) (sum int64) {
	for _, l := range row.Layers {
		if l.Blob == "" {
			continue
		}
		if fi, err := os.Lstat(c.home.blobPath(l.Blob)); err == nil {
			sum += fi.Size()
		}
	}
	return sum
}
