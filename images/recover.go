package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// recover makes order at Open. It reads and deletes a little after a clean stop, and hashes nothing ever: what
// a power cut may have damaged is marked, and looked at before it is used.
func (d *Disk) recover(ctx context.Context) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	before, err := os.ReadFile(d.run(bootFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	newBoot := string(before) != string(boot)
	_, cleanErr := os.Lstat(d.root(cleanFile))
	suspect := newBoot && cleanErr != nil
	// From here on a cut is an unclean end again.
	if err := d.durable.Remove(d.root(cleanFile)); err != nil {
		return err
	}
	if err := d.loadMounts(ctx, newBoot); err != nil {
		return err
	}
	if err := d.clearTemporary(newBoot); err != nil {
		return err
	}
	if err := d.keepParts(suspect); err != nil {
		return err
	}
	rows, err := d.loadRows()
	if err != nil {
		return err
	}
	if err := d.loadLayers(rows, suspect); err != nil {
		return err
	}
	if err := d.loadImages(rows); err != nil {
		return err
	}
	if err := d.dropDone(); err != nil {
		return err
	}
	if err := d.loadUses(); err != nil {
		return err
	}
	if err := d.sweepUnused(); err != nil {
		return err
	}
	if !newBoot {
		return nil
	}
	// Last: should this process die before, or the file find no room, the next one looks at everything again.
	if err := os.WriteFile(d.run(bootFile), boot, 0o600); err != nil {
		d.cfg.Log.Warn("which boot this is cannot be noted beside the images", "err", err)
	}
	return nil
}

// clearTemporary deletes what was on its way when the last process ended.
func (d *Disk) clearTemporary(newBoot bool) error {
	for dir, doomed := range map[string]func(name string) bool{
		imagesDir: halfMade,
		layersDir: func(name string) bool {
			// A replaced layer may be in use until the machine is booted again.
			return halfMade(name) || newBoot && strings.HasPrefix(name, oldPrefix)
		},
		".": halfMade,
	} {
		list, err := os.ReadDir(d.root(dir))
		if err != nil {
			return err
		}
		for _, e := range list {
			if doomed(e.Name()) {
				if err := d.cfg.Layers.Remove(d.root(dir, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// rowSet is what the index holds.
type rowSet struct {
	images map[string]*imageRow // by ID
	layers map[string]layerRow  // by chain ID
}

func (d *Disk) loadRows() (rowSet, error) {
	set := rowSet{map[string]*imageRow{}, map[string]layerRow{}}
	all, damaged, err := d.cfg.Index.All()
	if err != nil {
		return set, fmt.Errorf("read rows: %w", err)
	}
	for key, value := range all {
		var err error
		switch {
		case strings.HasPrefix(key, imageKey):
			row := &imageRow{}
			if err = decode(key, value, row); err == nil {
				set.images[row.ID] = row
			}
		case strings.HasPrefix(key, layerKey):
			var row layerRow
			if err = decode(key, value, &row); err == nil {
				set.layers[row.Chain] = row
			}
		}
		var newer newerError
		if errors.As(err, &newer) {
			return set, err
		}
		if err != nil {
			damaged = append(damaged, key)
		}
	}
	slices.Sort(damaged)
	for _, key := range damaged {
		d.cfg.Log.Warn("image row damaged", "row", key)
		if err := d.cfg.Index.Delete(key); err != nil {
			return set, fmt.Errorf("drop damaged row %s: %w", key, err)
		}
	}
	return set, nil
}

// loadLayers joins rows and directories. A directory with its own copy of the row was complete and synced when
// it got its name, so a missing row is written again; one without is the rest of something and goes.
func (d *Disk) loadLayers(rows rowSet, suspect bool) error {
	list, err := os.ReadDir(d.root(layersDir))
	if err != nil {
		return err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), oldPrefix) {
			continue
		}
		chain := "sha256:" + e.Name()
		row, known := rows.layers[chain]
		delete(rows.layers, chain)
		var own layerRow
		data, err := os.ReadFile(d.root(layersDir, e.Name(), rowFile))
		if err == nil {
			err = decode(layerKey+chain, data, &own)
		}
		switch {
		case err == nil && (!known || own != row):
			if err := d.putLayer(own); err != nil {
				return err
			}
		case err == nil || known:
			d.layers[chain] = &layer{row: row}
		default:
			if err := d.discardLayer(d.root(layersDir, e.Name())); err != nil {
				return err
			}
			continue
		}
		d.layers[chain].suspect = suspect || err != nil
	}
	for chain := range rows.layers {
		d.cfg.Log.Warn("image layer lost", "layer", chain)
		if err := d.cfg.Index.Delete(layerKey + chain); err != nil {
			return fmt.Errorf("drop row of layer %s: %w", chain, err)
		}
	}
	return nil
}

// loadImages joins rows and their copies on disk, and drops images that have lost a layer for good.
func (d *Disk) loadImages(rows rowSet) error {
	copies, err := d.readCopies()
	if err != nil {
		return err
	}
	for id, c := range copies {
		if row, ok := rows.images[id]; ok && row.Seq >= c.Seq {
			continue
		}
		if d.whole(c) {
			if err := d.putImage(c); err != nil {
				return err
			}
			rows.images[id] = c
		}
	}
	for id, row := range rows.images {
		if !d.whole(row) {
			d.cfg.Log.Warn("image lost", "image", id, "names", row.Names)
			if err := d.dropRow(row); err != nil {
				return err
			}
			continue
		}
		d.images[id] = row
		d.seq = max(d.seq, row.Seq)
		if c, ok := copies[id]; !ok || c.Seq < row.Seq {
			if err := d.writeJSON(d.copyPath(id), row); err != nil {
				return err
			}
		}
	}
	for id := range copies {
		if _, ok := d.images[id]; !ok {
			if err := d.durable.Remove(d.copyPath(id)); err != nil {
				return err
			}
		}
	}
	return d.settleNames()
}

func (d *Disk) readCopies() (map[string]*imageRow, error) {
	list, err := os.ReadDir(d.root(imagesDir))
	if err != nil {
		return nil, err
	}
	copies := map[string]*imageRow{}
	for _, e := range list {
		path := d.root(imagesDir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		row := &imageRow{}
		key := imageKey + "sha256:" + strings.TrimSuffix(filepath.Base(path), ".json")
		if err := json.Unmarshal(data, row); err != nil || row.check(key) != nil {
			d.cfg.Log.Warn("copy of an image row damaged", "file", path)
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		copies[row.ID] = row
	}
	return copies, nil
}

// whole says whether every layer of an image is there, or can be made again from its blob.
func (d *Disk) whole(row *imageRow) bool {
	for _, l := range row.Layers {
		if _, ok := d.layers[l.Chain]; ok {
			continue
		}
		if l.Blob == "" {
			return false
		}
		if fi, err := os.Lstat(d.blobPath(l.Blob)); err != nil || fi.Size() == 0 {
			return false
		}
	}
	return true
}

// settleNames ends a move of names that a cut interrupted: the later claim holds.
func (d *Disk) settleNames() error {
	list := d.rows()
	slices.SortStableFunc(list, func(a, b *imageRow) int { return cmp.Compare(b.Seq, a.Seq) })
	taken := map[string]bool{}
	for _, row := range list {
		var lost []string
		for _, n := range row.Names {
			if taken[n] {
				lost = append(lost, n)
			}
			taken[n] = true
		}
		if lost != nil {
			if err := d.save(without(row, lost)); err != nil {
				return err
			}
		}
	}
	return nil
}
