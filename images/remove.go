package images

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Remove implements Store. By ID or digest it is the image with all its names; a name alone goes while another
// is left, even when a container stands on the image.
func (d *Disk) Remove(_ context.Context, ref string) error {
	d.write.Lock()
	defer d.write.Unlock()
	if err := d.broken(); err != nil {
		return err
	}
	d.mu.Lock()
	row, err := d.find(ref)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if row.Source != nil {
		return fmt.Errorf("remove %s: %w", ref, ErrBuiltIn)
	}
	// An ID is no valid reference, or one with a tag that no image has.
	if r, err := ParseReference(ref); err == nil && len(row.Names) > 1 && slices.Contains(row.Names, r.Tagged()) {
		if err := d.save(withoutName(row, r)); err != nil {
			return fmt.Errorf("remove %s: %w", ref, err)
		}
		return nil
	}
	if d.inUse(row.ID) {
		return fmt.Errorf("remove %s: %w", ref, ErrInUse)
	}
	if err := d.forget(row); err != nil {
		return fmt.Errorf("remove %s: %w", ref, err)
	}
	return nil
}

// withoutName drops a name, and the names by digest of its repository when no other tag of it is left.
func withoutName(row *imageRow, ref Reference) *imageRow {
	row = without(row, []string{ref.Tagged()})
	if !slices.ContainsFunc(row.Names, func(n string) bool { return strings.HasPrefix(n, ref.Name()+":") }) {
		row.Digests = slices.DeleteFunc(row.Digests, func(n string) bool { return strings.HasPrefix(n, ref.Name()+"@") })
	}
	return row
}

func (d *Disk) inUse(id string) bool {
	return d.anyMount(func(m mount) bool { return m.Image == id })
}

// forget drops an image and what only it needed. write is held.
func (d *Disk) forget(row *imageRow) error {
	if err := d.dropRow(row); err != nil {
		return err
	}
	return d.sweepUnused()
}

// dropRow drops an image: the copy of its row first, so that a cut in between leaves it whole, then the row.
func (d *Disk) dropRow(row *imageRow) error {
	if err := d.durable.Remove(d.copyPath(row.ID)); err != nil {
		return d.note(err)
	}
	if err := d.cfg.Index.Delete(imageKey + row.ID); err != nil {
		return fmt.Errorf("drop row of image %s: %w", row.ID, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.images, row.ID)
	delete(d.uses, row.ID)
	return nil
}
