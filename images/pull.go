package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// puller brings images from registries.
type puller struct {
	home      *home
	registry  Registry // nil: none
	platform  Platform
	maxLayer  int64 // bytes
	maxLayers int   // of an image, fetched at the same time
	keep      KeepBlobs
	shelf     *shelf
	stock     *stock
	pulls     *pulls
	parts     *parts
	leftover  *leftovers
	loader    *loader
	room      func(ctx context.Context, bytes int64) error
	get       func(ctx context.Context, ref string) (Image, error)
	turns     chan struct{} // holds one for each pull that goes on
}

// pull is one image on its way from a registry. Layers are fetched side by side and unpacked one after the other,
// lowest first, each while it is still coming. None of that holds up the store; only at the end, with everything
// unpacked, is the image made READY in the same steps as an imported one.
type pull struct {
	by   *puller
	req  PullRequest
	ref  Reference
	took int // layers that an earlier try had made

	// guarded by pulls
	waiting bool
	chains  []string // layers that must not go
	loads   []*download
}

// Pull implements Store.
func (d *Disk) Pull(ctx context.Context, req PullRequest) (Pulled, error) {
	out, err := d.puller.pull(ctx, req)
	if err != nil {
		d.tally.Failed(out.Bytes, ctx.Err() == nil)
		return out, fmt.Errorf("pull %s: %w", req.Ref, err)
	}
	d.tally.Pulled(out)
	return out, nil
}

// Counts implements Meter.
func (d *Disk) Counts() Counts { return d.tally.Counts() }

// Pulls are the pulls that go on, by reference.
func (d *Disk) Pulls() []PullStatus { return d.pulls.status() }

func (q *puller) pull(ctx context.Context, req PullRequest) (out Pulled, err error) {
	ref, err := ParseReference(req.Ref)
	if err != nil {
		return out, err
	}
	if strings.HasPrefix(ref.Name(), builtInDomain) {
		return out, fmt.Errorf("%w: it comes with ledge, from no registry", ErrBuiltIn)
	}
	if q.registry == nil {
		return out, fmt.Errorf("%w: this store has none", ErrUnreachable)
	}
	p := &pull{by: q, req: req, ref: ref, waiting: true}
	q.pulls.add(p)
	defer func() {
		q.pulls.remove(p)
		for _, f := range p.loads {
			f.close()
		}
	}()
	began := time.Now()
	select {
	case q.turns <- struct{}{}:
		defer func() { <-q.turns }()
	case <-ctx.Done():
		return out, ctx.Err()
	}
	out.Waited = time.Since(began)
	q.pulls.begun(p)
	err = p.run(ctx, &out)
	out.Took = time.Since(began) - out.Waited
	return out, err
}

func (p *pull) run(ctx context.Context, out *Pulled) error {
	if err := p.by.home.broken(); err != nil {
		return err
	}
	if img, ok, err := p.here(ctx); err != nil || ok {
		out.Image, out.Present = img, true
		return err
	}
	found, docs, err := ResolveRemote(ctx, p.by.registry, p.ref, p.req.Keys, p.by.platform, p.by.maxLayer)
	if err != nil {
		return err
	}
	row := rowOf(found)
	row.Pinned = p.req.Pin
	row.Digests = p.digests(found)
	err = p.bring(ctx, row, found, docs)
	for _, f := range p.loads {
		out.Bytes += f.fetched
	}
	if err != nil {
		return err
	}
	out.Present = len(p.loads)+p.took == 0
	out.Image, err = p.by.get(ctx, row.ID)
	return err
}

// digests are the names by digest of what was pulled: also when it was asked for without a tag.
func (p *pull) digests(f Found) []string {
	out := digestsOf(f)
	for _, dg := range append(slices.Clone(f.Indexes), f.Manifest) {
		out = append(out, p.ref.Name()+"@"+dg)
	}
	return mergeNames(out, nil)
}

// here says whether what the reference names is in the store already: by its digest if it has one, else by asking
// the registry what its tag stands for today.
func (p *pull) here(ctx context.Context) (Image, bool, error) {
	img, err := p.by.get(ctx, p.req.Ref)
	if err != nil {
		return img, false, nil
	}
	if ok, err := p.by.shelf.chainsSound(ctx, img.Layers); err != nil || !ok {
		return img, false, err // what is damaged is fetched again
	}
	if p.req.Pin && (!img.Pinned || !img.Kept && p.keeps()) {
		return img, false, nil
	}
	if p.req.IfMissing || p.ref.Digest != "" {
		return img, true, nil
	}
	digest, err := p.by.registry.Head(ctx, p.ref, p.req.Keys)
	if errors.Is(err, ErrUnreachable) || ctx.Err() != nil {
		return img, false, err
	}
	return img, slices.Contains(img.Digests, p.ref.Name()+"@"+digest), nil
}

// keeps says whether the image's compressed layers are to stay.
func (p *pull) keeps() bool {
	return p.by.keep == KeepAll || p.req.Pin && p.by.keep == KeepPinned
}

// bring fetches and unpacks what is missing of an image and makes it READY.
func (p *pull) bring(ctx context.Context, row *imageRow, found Found, docs map[string][]byte) (err error) {
	q := p.by
	q.pulls.hold(p, row.Layers)
	q.shelf.doubt([]*imageRow{row})
	var b batch
	defer func() { err = errors.Join(err, q.leftover.leave(&b, p, err)) }()
	p.took = q.leftover.takeUp(&b, row.Layers)
	want, err := p.missing(ctx, &b, row, found)
	if err != nil {
		return err
	}
	if err := p.fetchAndUnpack(ctx, &b, row, want); err != nil {
		return err
	}
	if err := p.commit(ctx, row, docs, &b); err != nil {
		return err
	}
	var errs []error
	for _, l := range row.Layers {
		errs = append(errs, q.parts.drop(p, l.From))
	}
	return errors.Join(errs...)
}

// missing are the downloads of layers that are not here or not sound, by chain ID.
func (p *pull) missing(ctx context.Context, b *batch, row *imageRow, found Found) (map[string]*download, error) {
	want := map[string]*download{}
	var bytes int64
	for i, l := range row.Layers {
		_, ok := b.dirs[l.Chain]
		if !ok {
			var err error
			if ok, err = p.by.shelf.sound(ctx, l.Chain); err != nil {
				return nil, err
			}
		}
		if p.keeps() && ok { // unpacked, but to be kept as it came too
			_, err := os.Lstat(p.by.home.blobPath(l.Blob))
			ok = err == nil
		}
		if ok || want[l.Chain] != nil {
			continue
		}
		f := p.by.loader.download(BlobRequest{Ref: p.ref, Digest: l.Blob, Keys: p.req.Keys}, found.Layers[i].Size)
		want[l.Chain] = f
		bytes += f.size
		if fi, err := os.Lstat(f.path); err == nil {
			bytes -= min(fi.Size(), f.size)
		}
		p.by.pulls.load(p, f)
	}
	return want, p.by.room(ctx, bytes)
}

// fetchAndUnpack runs the downloads, a few at a time, and unpacks behind them.
func (p *pull) fetchAndUnpack(ctx context.Context, b *batch, row *imageRow, want map[string]*download) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	slots := make(chan struct{}, p.by.maxLayers)
	g.Go(func() error {
		for _, f := range p.loads { // in this order: the unpacker wants the lowest first
			select {
			case slots <- struct{}{}:
			case <-gctx.Done():
				return gctx.Err()
			}
			g.Go(func() error {
				defer func() { <-slots }()
				return f.run(gctx)
			})
		}
		return nil
	})
	g.Go(func() error { return p.unpack(gctx, b, row.Layers, want) })
	return g.Wait()
}

// unpack makes the layers, each from its download. What goes wrong with one may be the fault of what was sent: then
// the download begins again, and so does the layer.
func (p *pull) unpack(ctx context.Context, b *batch, layers []layerRef, want map[string]*download) error {
	open := func(l layerRef) (LayerArchive, io.Closer, error) {
		f := want[l.Chain]
		if f == nil {
			return LayerArchive{}, nil, fmt.Errorf("layer was damaged while it was pulled: %w", ErrDamaged)
		}
		r := f.follow(ctx)
		return LayerArchive{Tar: r}, r, nil
	}
	for i, l := range layers {
		f := want[l.Chain]
		for {
			life := 0
			if f != nil {
				life = f.current()
			}
			err := p.by.shelf.build(ctx, b, layers[:i+1], open)
			if err == nil {
				break
			}
			if f == nil {
				return err
			}
			if again, cause := f.outcome(ctx, life); cause != nil {
				return cause
			} else if !again {
				return err
			}
		}
		if f != nil {
			f.unpacked()
		}
	}
	return nil
}

// commit makes a pulled image READY.
func (p *pull) commit(ctx context.Context, row *imageRow, docs map[string][]byte, b *batch) (err error) {
	q := p.by
	dir, err := os.MkdirTemp(q.home.root(ingestDir), "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	blobs := map[string]spooled{}
	for _, dg := range row.Documents {
		path := filepath.Join(dir, hexOf(dg))
		if err := os.WriteFile(path, docs[dg], 0o600); err != nil {
			return err
		}
		blobs[dg] = spooled{path: path, digest: dg}
	}
	return q.stock.change(func() (err error) {
		defer func() { err = errors.Join(err, q.stock.sweep()) }()
		p.keepLayers(row, blobs)
		if err := q.stock.land([]*imageRow{row}, blobs); err != nil {
			return err
		}
		if err := p.spareCard(); err != nil {
			return err
		}
		if err := q.shelf.seal(ctx, b); err != nil {
			return err
		}
		return q.stock.enter([]*imageRow{row})
	})
}

// spareCard forgets parts that came quickly and are not wanted any more, before everything is written out: they would
// be too, only to be deleted. Losing them to a cut in that moment costs less than half a minute of downloading.
func (p *pull) spareCard() error {
	var errs []error
	for _, f := range p.loads {
		if f.marked {
			continue
		}
		f.close() // an open file is written out even without a name
		errs = append(errs, p.by.parts.drop(p, f.req.Digest))
	}
	return errors.Join(errs...)
}

// keepLayers decides which layers of a pulled image are kept as they came.
func (p *pull) keepLayers(row *imageRow, blobs map[string]spooled) {
	for i := range row.Layers {
		l := &row.Layers[i]
		if p.keeps() {
			for _, path := range []string{p.by.home.partPath(l.Blob), p.by.home.blobPath(l.Blob)} {
				if _, err := os.Lstat(path); err == nil {
					blobs[l.Blob] = spooled{path: path, digest: l.Blob}
					break
				}
			}
		}
		if _, ok := blobs[l.Blob]; !ok {
			l.Blob = ""
		}
	}
}
