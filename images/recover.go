package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	before, err := os.ReadFile(d.home.run(bootFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	newBoot := string(before) != string(boot)
	_, cleanErr := os.Lstat(d.home.root(cleanFile))
	suspect := newBoot && cleanErr != nil
	// From here on a cut is an unclean end again.
	if err := d.home.durable.Remove(d.home.root(cleanFile)); err != nil {
		return err
	}
	if err := d.mounter.load(ctx, newBoot); err != nil {
		return err
	}
	if err := d.clearTemporary(newBoot); err != nil {
		return err
	}
	if err := d.parts.keep(suspect); err != nil {
		return err
	}
	rows, err := d.loadRows()
	if err != nil {
		return err
	}
	if err := d.shelf.load(rows.layers, suspect); err != nil {
		return err
	}
	if err := d.catalog.load(rows.images, d.stock.whole); err != nil {
		return err
	}
	if err := d.parts.dropDone(d.catalog.rows()); err != nil {
		return err
	}
	if err := d.uses.load(); err != nil {
		return err
	}
	if err := d.stock.sweep(); err != nil {
		return err
	}
	if !newBoot {
		return nil
	}
	// Last: should this process die before, or the file find no room, the next one looks at everything again.
	if err := os.WriteFile(d.home.run(bootFile), boot, 0o600); err != nil {
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
		list, err := os.ReadDir(d.home.root(dir))
		if err != nil {
			return err
		}
		for _, e := range list {
			if doomed(e.Name()) {
				if err := d.cfg.Layers.Remove(d.home.root(dir, e.Name())); err != nil {
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
