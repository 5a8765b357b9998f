package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
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

const (
	usesFile  = "uses.json"
	partsStay = 14 * 24 * time.Hour // a download that nobody has gone on with for so long is given up
)

// use is when an image was last used and since when it is known. Times are of this process only: a board's clock may
// jump by fifty years when it finds the time.
type use struct {
	order uint64
	at    time.Time
	since time.Time // zero: it was here when the store was opened
}

var _ Collector = (*Disk)(nil)

// Collect implements Collector.
func (d *Disk) Collect(ctx context.Context, all bool) (out Collected, err error) {
	d.write.Lock()
	defer d.write.Unlock()
	if err := d.broken(); err != nil {
		return out, err
	}
	in, err := d.gcInput(all)
	if err != nil {
		return out, err
	}
	plan, short := PlanGC(in, d.cfg.GC)
	out.Short = short
	var errs []error
	for _, r := range plan {
		if ctx.Err() != nil {
			break
		}
		gone, err := d.collectOne(r)
		errs = append(errs, err)
		if gone {
			out.Images, out.Bytes = out.Images+1, out.Bytes+r.Bytes
			if r.Aged {
				out.Aged++
			}
		}
	}
	if len(plan) > 0 {
		errs = append(errs, d.sweepUnused())
	}
	parts, err := d.dropParts(all || short > 0)
	made, herr := d.dropHalfway(all || short > 0)
	out.Parts, err = parts+made, errors.Join(err, herr)
	if out.Images > 0 || out.Parts > 0 || short > 0 {
		d.cfg.Log.Info("unused images removed", "images", out.Images, "bytes", out.Bytes, "givenUpBytes", out.Parts, "short", short, "all", all)
	}
	d.tally.Collected(out)
	return out, errors.Join(append(errs, err)...)
}

// collectOne removes an image unless somebody began to use it. Its layers go with the sweep that follows.
func (d *Disk) collectOne(r GCRemoval) (bool, error) {
	d.mu.Lock()
	row, ok := d.images[r.ID]
	d.mu.Unlock()
	if !ok || row.Pinned || row.Source != nil || d.inUse(r.ID) {
		return false, nil
	}
	d.cfg.Log.Info("image removed, unused", "image", r.ID, "names", row.Names, "bytes", r.Bytes)
	return true, d.dropRow(row)
}

func (d *Disk) gcInput(all bool) (GCInput, error) {
	capacity, free, err := d.space()
	if err != nil {
		return GCInput{}, err
	}
	in := GCInput{All: all, Layers: map[string]int64{}, Capacity: capacity, Available: free}
	rows := d.rows()
	d.mu.Lock()
	defer d.mu.Unlock()
	for chain, l := range d.layers {
		in.Layers[chain] = l.row.Bytes
	}
	now := time.Now()
	for _, row := range rows {
		u := d.uses[row.ID]
		g := GCImage{ID: row.ID, Needed: row.Pinned || row.Source != nil || d.mountedImage(row.ID), LastUsed: u.order, Blobs: d.keptBytes(row),
			Age: now.Sub(d.opened) + d.cfg.GC.withDefaults().MinAge, Idle: now.Sub(d.opened)}
		if !u.since.IsZero() {
			g.Age, g.Idle = now.Sub(u.since), now.Sub(u.since)
		}
		if !u.at.IsZero() {
			g.Idle = now.Sub(u.at)
		}
		for _, l := range row.Layers {
			g.Layers = append(g.Layers, l.Chain)
		}
		in.Images = append(in.Images, g)
	}
	return in, nil
}

// mountedImage is inUse with mu held.
func (d *Disk) mountedImage(id string) bool {
	for _, m := range d.mounts {
		if m.Image == id {
			return true
		}
	}
	return false
}

// keptBytes is what the compressed layers of an image take that only it keeps, near enough.
func (d *Disk) keptBytes(row *imageRow) (sum int64) {
	for _, l := range row.Layers {
		if l.Blob == "" {
			continue
		}
		if fi, err := os.Lstat(d.blobPath(l.Blob)); err == nil {
			sum += fi.Size()
		}
	}
	return sum
}

// touch notes that an image is used; mu is held.
func (d *Disk) touch(id string) {
	d.useOrder++
	u := d.uses[id]
	u.order, u.at = d.useOrder, time.Now()
	d.uses[id] = u
}

// arrived notes that an image is new; mu is held.
func (d *Disk) arrived(id string) {
	if u, ok := d.uses[id]; !ok || u.since.IsZero() {
		u.since = time.Now()
		d.uses[id] = u
	}
}

// dropParts gives up downloads: old ones, or all that nobody is at.
func (d *Disk) dropParts(all bool) (bytes int64, err error) {
	list, err := os.ReadDir(d.root(ingestDir))
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range list {
		hex, ok := strings.CutSuffix(e.Name(), partSuffix)
		fi, err := e.Info()
		if !ok || err != nil || !all && time.Since(fi.ModTime()) < partsStay || d.loading("sha256:"+hex) {
			continue
		}
		if err := d.dropPart(nil, "sha256:"+hex); err != nil {
			errs = append(errs, err)
			continue
		}
		bytes += fi.Size()
	}
	return bytes, errors.Join(errs...)
}

// loading says whether a pull downloads a blob. Who holds the lock of a part must not be waited for here.
func (d *Disk) loading(digest string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.pulls {
		for _, f := range p.loads {
			if f.req.Digest == digest {
				return true
			}
		}
	}
	return false
}

// loadUses reads in which order images were used before. Losing that is harmless.
func (d *Disk) loadUses() error {
	data, err := os.ReadFile(d.root(usesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	orders := map[string]uint64{}
	if json.Unmarshal(data, &orders) != nil {
		d.cfg.Log.Warn("the order in which images were used is lost", "file", d.root(usesFile))
		return nil
	}
	for id, order := range orders {
		d.uses[id] = use{order: order}
		d.useOrder = max(d.useOrder, order)
	}
	return nil
}

// saveUses is done at a clean end only: it is not worth a write to the card at every start of a container.
func (d *Disk) saveUses() error {
	d.mu.Lock()
	orders := map[string]uint64{}
	for id, u := range d.uses {
		if _, ok := d.images[id]; ok && u.order > 0 {
			orders[id] = u.order
		}
	}
	d.mu.Unlock()
	if old, err := os.ReadFile(d.root(usesFile)); err == nil {
		if data, err := json.Marshal(orders); err == nil && bytes.Equal(old, data) {
			return nil
		}
	}
	return d.writeJSON(d.root(usesFile), orders)
}
