package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	if err := d.home.broken(); err != nil {
		return nil, err
	}
	s, err := newSpool(ctx, d.home, d.cfg.Layers, r, d.cfg.MaxImport)
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
	blobs, open := s.byDigest(), d.stock.fromBlob
	if d.cfg.KeepBlobs == KeepNone {
		open = fromSpool(rows, blobs)
	}
	if err := d.stock.bring(ctx, rows, blobs, open); err != nil {
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
