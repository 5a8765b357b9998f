package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// builtInDomain is ours; no archive may bring images of it.
const builtInDomain = "ledge.local/"

// Import implements Store.
func (d *Disk) Import(ctx context.Context, r io.Reader) ([]Image, error) {
	list, err := d.importArchive(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	return list, nil
}

func (d *Disk) importArchive(ctx context.Context, r io.Reader) (list []Image, err error) {
	if err := d.broken(); err != nil {
		return nil, err
	}
	s, err := d.spool(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.discard()) }()
	found, err := Resolve(s, d.cfg.Platform)
	if err != nil {
		return nil, err
	}
	rows := make([]*imageRow, 0, len(found))
	for _, f := range found {
		if i := slices.IndexFunc(f.Names, func(n string) bool { return strings.HasPrefix(n, builtInDomain) }); i >= 0 {
			return nil, fmt.Errorf("%w: %s", ErrBuiltIn, f.Names[i])
		}
		row := rowOf(f)
		row.Pinned = true // nobody can bring it again; never collected
		rows = append(rows, row)
	}
	blobs, open := s.byDigest(), d.fromBlob
	if d.cfg.KeepBlobs == KeepNone {
		open = fromSpool(rows, blobs)
	}
	if err := d.commit(ctx, rows, blobs, open); err != nil {
		return nil, err
	}
	for _, row := range rows {
		img, err := d.Get(ctx, row.ID)
		if err != nil {
			return nil, err
		}
		list = append(list, img)
	}
	return list, nil
}

// fromSpool unpacks layers from where they were spooled, and keeps none of them.
func fromSpool(rows []*imageRow, blobs map[string]spooled) opener {
	files := map[string]string{} // by chain
	for _, row := range rows {
		for i := range row.Layers {
			l := &row.Layers[i]
			files[l.Chain], l.Blob = blobs[l.Blob].path, ""
		}
	}
	return func(l layerRef) (LayerArchive, io.Closer, error) {
		f, err := os.Open(files[l.Chain])
		return LayerArchive{Tar: f}, f, err
	}
}

// rowOf makes a row of a resolved image; sizes are not known yet.
func rowOf(f Found) *imageRow {
	row := &imageRow{V: rowVersion, ID: f.ID, Names: f.Names, Documents: f.Documents, CreatedAt: time.Now().UTC(), Config: f.Config}
	var diffs []string
	for _, l := range f.Layers {
		diffs = append(diffs, l.DiffID)
	}
	for i, c := range chains(diffs) {
		row.Layers = append(row.Layers, layerRef{Chain: c, DiffID: diffs[i], Blob: f.Layers[i].Digest, From: f.Layers[i].Digest})
	}
	row.Digests = digestsOf(f)
	return row
}

// digestsOf are the names by digest: of the manifest and of the indexes it was found by.
func digestsOf(f Found) []string {
	var out []string
	for _, n := range f.Names {
		ref, err := ParseReference(n)
		if err != nil {
			continue // it came out of the parser
		}
		for _, dg := range append(slices.Clone(f.Indexes), f.Manifest) {
			if dg != "" {
				out = append(out, ref.Name()+"@"+dg)
			}
		}
	}
	return mergeNames(out, nil)
}

// commit brings images in: blobs, layers, rows, each durable before the next.
func (d *Disk) commit(ctx context.Context, rows []*imageRow, blobs map[string]spooled, open opener) (err error) {
	d.write.Lock()
	defer d.write.Unlock()
	if err := d.broken(); err != nil {
		return err
	}
	// On an error, blobs and layers that no image came to use; on success those of images that lost their place.
	defer func() { err = errors.Join(err, d.sweepUnused()) }()
	if err := d.land(rows, blobs); err != nil {
		return err
	}
	var b batch
	defer func() { err = errors.Join(err, d.drop(&b, nil)) }()
	d.doubt(rows)
	for _, row := range rows {
		if err := d.build(ctx, &b, row.Layers, open); err != nil {
			return fmt.Errorf("image %s: %w", row.ID, err)
		}
	}
	if err := d.seal(ctx, &b); err != nil {
		return err
	}
	return d.enter(rows)
}

// land moves the wanted blobs from the spool to their place.
func (d *Disk) land(rows []*imageRow, blobs map[string]spooled) error {
	landed := false
	for _, row := range rows {
		for _, digest := range row.blobs() {
			f, ok := blobs[digest]
			if !ok {
				return fmt.Errorf("image %s: blob %s is not in the archive", row.ID, digest)
			}
			if err := d.durable.SyncFile(f.path); errors.Is(err, fs.ErrNotExist) {
				continue // landed already, for another image
			} else if err != nil {
				return d.note(err)
			}
			if err := d.durable.Rename(f.path, d.blobPath(digest)); err != nil {
				return err
			}
			landed = true
		}
	}
	if !landed {
		return nil
	}
	return d.note(d.durable.SyncDir(d.root(blobsDir)))
}

// enter makes images READY. What was spared for a pull is in use now, or not wanted any more.
func (d *Disk) enter(rows []*imageRow) error {
	for _, row := range rows {
		if err := d.enterOne(row); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spare = nil
	return nil
}

// enterOne makes an image READY, under all names it has and had; another image of one of them loses it.
func (d *Disk) enterOne(row *imageRow) error {
	d.mu.Lock()
	old := d.images[row.ID]
	row.Size = 0
	for _, l := range row.Layers {
		row.Size += d.layers[l.Chain].row.Bytes
	}
	d.mu.Unlock()
	if old != nil {
		row = row.clone()
		row.Names, row.Digests = mergeNames(row.Names, old.Names), mergeNames(row.Digests, old.Digests)
		row.Documents = mergeNames(row.Documents, old.Documents)
		row.CreatedAt, row.Pinned = old.CreatedAt, row.Pinned || old.Pinned
		for i := range row.Layers { // the same layers, for the config is the same
			row.Layers[i].Blob = cmp.Or(row.Layers[i].Blob, old.Layers[i].Blob)
		}
		if row.Source == nil {
			row.Source = old.Source
		}
	}
	if err := d.save(row); err != nil {
		return err
	}
	for _, other := range d.rows() {
		if other.ID != row.ID && slices.ContainsFunc(other.Names, func(n string) bool { return slices.Contains(row.Names, n) }) {
			if err := d.save(without(other, row.Names)); err != nil {
				return err
			}
		}
	}
	return nil
}

// without takes names from an image. One that has none left was replaced, and need not be kept for ever.
func without(row *imageRow, names []string) *imageRow {
	row = row.clone()
	row.Names = slices.DeleteFunc(row.Names, func(n string) bool { return slices.Contains(names, n) })
	if len(row.Names) == 0 {
		row.Pinned = false
	}
	return row
}

// rows is what is there now, in the order of their IDs.
func (d *Disk) rows() []*imageRow {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]*imageRow, 0, len(d.images))
	for _, row := range d.images {
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b *imageRow) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// save writes a row, its copy on disk first: should the index be lost, the images are not.
func (d *Disk) save(row *imageRow) error {
	d.mu.Lock()
	d.seq++
	row.Seq = d.seq
	d.mu.Unlock()
	if err := d.writeJSON(d.copyPath(row.ID), row); err != nil {
		return d.note(err)
	}
	return d.putImage(row)
}

func (d *Disk) putImage(row *imageRow) error {
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if err := d.cfg.Index.Put(imageKey+row.ID, data); err != nil {
		return fmt.Errorf("keep row of image %s: %w", row.ID, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.images[row.ID]; !ok && !d.opened.IsZero() {
		d.arrived(row.ID)
	}
	d.images[row.ID] = row
	return nil
}

// sweepUnused removes layers and blobs that no image and no container needs. write is held.
func (d *Disk) sweepUnused() error {
	blobs, chains := map[string]bool{}, map[string]bool{}
	for _, row := range d.rows() {
		for _, b := range row.blobs() {
			blobs[hexOf(b)] = true
		}
		for _, l := range row.Layers {
			chains[l.Chain] = true
		}
	}
	d.mu.Lock()
	var gone []string
	for c := range d.layers {
		if !chains[c] && !d.spare[c] {
			gone = append(gone, c)
		}
	}
	d.mu.Unlock()
	slices.Sort(gone)
	var errs []error
	for _, c := range gone {
		if !d.needed(c) {
			errs = append(errs, d.removeLayer(c))
		}
	}
	list, err := os.ReadDir(d.root(blobsDir))
	errs = append(errs, err)
	for _, e := range list {
		if !blobs[e.Name()] {
			errs = append(errs, os.Remove(d.root(blobsDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// removeLayer takes the row away first, then the name, then the content.
func (d *Disk) removeLayer(chain string) error {
	if err := d.cfg.Index.Delete(layerKey + chain); err != nil {
		return fmt.Errorf("drop row of layer %s: %w", chain, err)
	}
	d.mu.Lock()
	delete(d.layers, chain)
	d.mu.Unlock()
	return d.discardLayer(d.layerPath(chain))
}

func (d *Disk) discardLayer(dir string) error {
	tmp, err := os.MkdirTemp(d.root(layersDir), tmpPrefix)
	if err != nil {
		return err
	}
	if err := d.durable.Rename(dir, filepath.Join(tmp, "layer")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, os.Remove(tmp))
	}
	return d.cfg.Layers.Remove(tmp)
}
