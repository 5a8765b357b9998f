package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// batch is the layers made in one go: they are synced together, once.
type batch struct {
	made []made
	dirs map[string]string // by chain ID: where a layer is, made here or before
}

type made struct {
	tmp     string
	row     layerRow
	swapped bool // tmp is what the layer replaced, if anything
}

func (b *batch) add(m made) {
	if b.dirs == nil {
		b.dirs = map[string]string{}
	}
	b.made = append(b.made, m)
	b.dirs[m.row.Chain] = m.tmp
}

// opener gives the archive of a layer.
type opener func(layerRef) (LayerArchive, io.Closer, error)

// fromBlob unpacks a layer from the blob that was kept.
func (d *Disk) fromBlob(l layerRef) (LayerArchive, io.Closer, error) {
	if l.Blob == "" {
		return LayerArchive{}, nil, errors.New("no archive is kept of it")
	}
	f, err := os.Open(d.blobPath(l.Blob))
	return LayerArchive{Tar: f}, f, err
}

// build makes those layers of an image that are not there or not sound. The caller holds write, and seals or
// drops the batch.
func (d *Disk) build(ctx context.Context, b *batch, refs []layerRef, open opener) error {
	if b.dirs == nil {
		b.dirs = map[string]string{}
	}
	var lower []string
	for _, l := range refs {
		if _, ok := b.dirs[l.Chain]; !ok {
			ok, err := d.sound(ctx, l.Chain)
			if err != nil {
				return err
			}
			if ok {
				b.dirs[l.Chain] = d.layerPath(l.Chain)
			} else if err := d.make(ctx, b, l, lower, open); err != nil {
				return fmt.Errorf("layer %s: %w", l.DiffID, err)
			}
		}
		lower = append(lower, b.dirs[l.Chain])
	}
	return nil
}

func (d *Disk) make(ctx context.Context, b *batch, l layerRef, lower []string, open opener) error {
	archive, closer, err := open(l)
	if err != nil {
		return err
	}
	defer closer.Close()
	archive.Lower = lower
	tmp, err := os.MkdirTemp(d.root(layersDir), tmpPrefix)
	if err != nil {
		return err
	}
	u, err := d.cfg.Layers.Unpack(ctx, tmp, archive)
	if err == nil && u.DiffID != l.DiffID {
		err = fmt.Errorf("unpacks to %s: %w", u.DiffID, ErrDamaged)
	}
	if err != nil {
		return errors.Join(err, d.cfg.Layers.Remove(tmp))
	}
	b.add(made{tmp: tmp, row: layerRow{V: rowVersion, Chain: l.Chain, DiffID: l.DiffID, Manifest: u.Manifest,
		Bytes: u.Bytes, Entries: u.Entries}})
	return nil
}

// seal makes the layers of a batch READY. The order is the point: content first, all of it with one syncfs, then
// the names, then the rows. The caller holds write.
func (d *Disk) seal(ctx context.Context, b *batch) error {
	if err := d.skipReady(ctx, b); err != nil || len(b.made) == 0 {
		return err
	}
	for _, m := range b.made {
		data, err := json.Marshal(m.row)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(m.tmp, rowFile), data, 0o600); err != nil {
			return err
		}
	}
	if err := d.durable.SyncFS(d.root(layersDir)); err != nil {
		return d.note(err)
	}
	for i, m := range b.made {
		if err := d.durable.SyncFile(filepath.Join(m.tmp, ManifestFile)); err != nil {
			return d.note(err)
		}
		if err := d.durable.Exchange(m.tmp, d.layerPath(m.row.Chain)); err != nil {
			return err
		}
		b.made[i].swapped = true
	}
	if err := d.durable.SyncDir(d.root(layersDir)); err != nil {
		return d.note(err)
	}
	for _, m := range b.made {
		if err := d.putLayer(m.row); err != nil {
			return err
		}
	}
	return nil
}

// skipReady drops layers that somebody else made READY meanwhile: containers may stand on those.
func (d *Disk) skipReady(ctx context.Context, b *batch) error {
	var errs []error
	b.made = slices.DeleteFunc(b.made, func(m made) bool {
		ok, err := d.sound(ctx, m.row.Chain)
		errs = append(errs, err)
		if ok {
			errs = append(errs, d.cfg.Layers.Remove(m.tmp))
		}
		return ok
	})
	return errors.Join(errs...)
}

func (d *Disk) putLayer(row layerRow) error {
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if err := d.cfg.Index.Put(layerKey+row.Chain, data); err != nil {
		return fmt.Errorf("keep row of layer %s: %w", row.Chain, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.layers[row.Chain] = &layer{row: row}
	return nil
}

// drop clears away what is left of a batch: after an error everything that has no name yet, else what the new
// layers replaced. A replaced layer that a container stands on, or another pull than this one, stays until the next boot.
func (d *Disk) drop(b *batch, own *pull) error {
	var errs []error
	for _, m := range b.made {
		if m.swapped && (d.mounted(m.row.Chain) || d.pulled(m.row.Chain, own)) {
			err := os.Rename(m.tmp, d.root(layersDir, oldPrefix+filepath.Base(m.tmp)[len(tmpPrefix):]))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, d.cfg.Layers.Remove(m.tmp))
	}
	return errors.Join(errs...)
}

// mounted says whether a container stands on a layer.
func (d *Disk) mounted(chain string) bool {
	return d.anyMount(func(m mount) bool { return m.mounted && slices.Contains(m.Layers, chain) })
}

// needed says whether a container or a pull stands on a layer or is about to.
func (d *Disk) needed(chain string) bool {
	return d.anyMount(func(m mount) bool { return slices.Contains(m.Layers, chain) }) || d.pulled(chain, nil)
}

// pulled says whether a pull that goes on, other than own, needs a layer.
func (d *Disk) pulled(chain string, own *pull) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.pulls {
		if p != own && slices.Contains(p.chains, chain) {
			return true
		}
	}
	return false
}

func (d *Disk) anyMount(is func(mount) bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.mounts {
		if is(m) {
			return true
		}
	}
	return false
}

// sound says whether a layer is READY and, after a power cut, really is what its row says.
func (d *Disk) sound(ctx context.Context, chain string) (bool, error) {
	d.mu.Lock()
	l, ok := d.layers[chain]
	if !ok || l.damaged || !l.suspect {
		ok = ok && !l.damaged
		d.mu.Unlock()
		return ok, nil
	}
	row := l.row
	d.mu.Unlock()
	return d.verifyLayer(ctx, row, false)
}

// chainsSound says whether all layers of an image are READY and what their rows say.
func (d *Disk) chainsSound(ctx context.Context, chains []string) (bool, error) {
	for _, c := range chains {
		if ok, err := d.sound(ctx, c); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// doubt has layers looked at again before they are used: whoever imports an image a second time may do so
// because something is wrong with the first.
func (d *Disk) doubt(rows []*imageRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range rows {
		for _, ref := range row.Layers {
			if l, ok := d.layers[ref.Chain]; ok {
				l.suspect = true
			}
		}
	}
}

// verifyLayer looks at a layer and remembers what it saw.
func (d *Disk) verifyLayer(ctx context.Context, row layerRow, full bool) (bool, error) {
	err := d.cfg.Layers.Verify(ctx, d.layerPath(row.Chain), row.Manifest, full)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.layers[row.Chain]
	if !ok || l.row != row {
		return false, nil // removed or replaced while we looked
	}
	if err != nil {
		l.damaged = true
		d.cfg.Log.Warn("image layer damaged", "layer", row.Chain, "err", err)
		return false, nil
	}
	l.suspect = false
	return true, nil
}
