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
	return d.stock.change(func() error {
		row, err := d.catalog.find(ref)
		if err != nil {
			return err
		}
		if err := d.remove(row, ref); err != nil {
			return fmt.Errorf("remove %s: %w", ref, err)
		}
		return nil
	})
}

func (d *Disk) remove(row *imageRow, ref string) error {
	if row.Source != nil {
		return ErrBuiltIn
	}
	// An ID is no valid reference, or one with a tag that no image has.
	if r, err := ParseReference(ref); err == nil && len(row.Names) > 1 && slices.Contains(row.Names, r.Tagged()) {
		return d.catalog.save(withoutName(row, r))
	}
	if d.roots.use(row.ID) {
		return ErrInUse
	}
	return d.stock.forget(row)
}

// withoutName drops a name, and the names by digest of its repository when no other tag of it is left.
func withoutName(row *imageRow, ref Reference) *imageRow {
	row = without(row, []string{ref.Tagged()})
	if !slices.ContainsFunc(row.Names, func(n string) bool { return strings.HasPrefix(n, ref.Name()+":") }) {
		row.Digests = slices.DeleteFunc(row.Digests, func(n string) bool { return strings.HasPrefix(n, ref.Name()+"@") })
	}
	return row
}
