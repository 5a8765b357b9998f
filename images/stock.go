package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// stock is images with what they consist of: rows, layers and blobs. Nothing of it goes that a root file system or a
// pull stands on.
type stock struct {
	home    *home
	shelf   *shelf
	catalog *catalog
	roots   *roots
	pulls   *pulls
	log     *slog.Logger

	write sync.Mutex      // held by whoever makes or removes layers, blobs or rows; before all other locks
	spare map[string]bool // sound layers of lost images: a pull soon wants them
}

// alone runs what makes or removes layers, blobs or rows: one at a time.
func (s *stock) alone(do func() error) error {
	s.write.Lock()
	defer s.write.Unlock()
	return do()
}

// change is alone, unless the disk cannot be trusted any more.
func (s *stock) change(do func() error) error {
	return s.alone(func() error {
		if err := s.home.broken(); err != nil {
			return err
		}
		return do()
	})
}

// bring brings images in: blobs, layers, rows, each durable before the next.
func (s *stock) bring(ctx context.Context, rows []*imageRow, blobs map[string]spooled, open opener) error {
	return s.change(func() (err error) {
		// On an error, blobs and layers that no image came to use; on success those of images that lost their place.
		defer func() { err = errors.Join(err, s.sweep()) }()
		if err := s.land(rows, blobs); err != nil {
			return err
		}
		var b batch
		defer func() { err = errors.Join(err, s.drop(&b, nil)) }()
		s.shelf.doubt(rows)
		for _, row := range rows {
			if err := s.shelf.build(ctx, &b, row.Layers, open); err != nil {
				return fmt.Errorf("image %s: %w", row.ID, err)
			}
		}
		if err := s.shelf.seal(ctx, &b); err != nil {
			return err
		}
		return s.enter(rows)
	})
}

// land moves the wanted blobs from the spool to their place.
func (s *stock) land(rows []*imageRow, blobs map[string]spooled) error {
	landed := false
	for _, row := range rows {
		for _, digest := range row.blobs() {
			f, ok := blobs[digest]
			if !ok {
				return fmt.Errorf("image %s: blob %s is not in the archive", row.ID, digest)
			}
			if err := s.home.durable.SyncFile(f.path); errors.Is(err, fs.ErrNotExist) {
				continue // landed already, for another image
			} else if err != nil {
				return s.home.note(err)
			}
			if err := s.home.durable.Rename(f.path, s.home.blobPath(digest)); err != nil {
				return err
			}
			landed = true
		}
	}
	if !landed {
		return nil
	}
	return s.home.note(s.home.durable.SyncDir(s.home.root(blobsDir)))
}

// enter makes images READY. What was spared for a pull is in use now, or not wanted any more.
func (s *stock) enter(rows []*imageRow) error {
	for _, row := range rows {
		row.Size = 0
		for _, l := range row.Layers {
			size, _ := s.shelf.size(l.Chain)
			row.Size += size
		}
		if err := s.catalog.enter(row); err != nil {
			return err
		}
	}
	s.spare = nil
	return nil
}

// drop clears away what is left of a batch: after an error everything that has no name yet, else what the new
// layers replaced. A replaced layer that a container stands on, or another pull than this one, stays until the next boot.
func (s *stock) drop(b *batch, own *pull) error {
	var errs []error
	for _, m := range b.made {
		if m.swapped && (s.roots.mountedOn(m.row.Chain) || s.pulls.need(m.row.Chain, own)) {
			err := os.Rename(m.tmp, s.home.root(layersDir, oldPrefix+filepath.Base(m.tmp)[len(tmpPrefix):]))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		errs = append(errs, s.shelf.work.Remove(m.tmp))
	}
	return errors.Join(errs...)
}

// forget drops an image and what only it needed.
func (s *stock) forget(row *imageRow) error {
	if err := s.catalog.drop(row); err != nil {
		return err
	}
	return s.sweep()
}

// sweep removes layers and blobs that no image and no container needs.
func (s *stock) sweep() error {
	blobs, chains := map[string]bool{}, map[string]bool{}
	for _, row := range s.catalog.rows() {
		for _, b := range row.blobs() {
			blobs[hexOf(b)] = true
		}
		for _, l := range row.Layers {
			chains[l.Chain] = true
		}
	}
	var gone []string
	for c := range s.shelf.sizes() {
		if !chains[c] && !s.spare[c] {
			gone = append(gone, c)
		}
	}
	slices.Sort(gone)
	var errs []error
	for _, c := range gone {
		if !s.roots.need(c) && !s.pulls.need(c, nil) {
			errs = append(errs, s.shelf.remove(c))
		}
	}
	list, err := os.ReadDir(s.home.root(blobsDir))
	errs = append(errs, err)
	for _, e := range list {
		if !blobs[e.Name()] {
			errs = append(errs, os.Remove(s.home.root(blobsDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// fromBlob unpacks a layer from the blob that was kept.
func (s *stock) fromBlob(l layerRef) (LayerArchive, io.Closer, error) {
	if l.Blob == "" {
		return LayerArchive{}, nil, errors.New("no archive is kept of it")
	}
	f, err := os.Open(s.home.blobPath(l.Blob))
	return LayerArchive{Tar: f}, f, err
}

// heal unpacks the damaged and missing layers of an image again from its blobs. If a blob is damaged too, the image
// is dropped, so that it can be pulled again, and the error wraps ErrNotFound.
func (s *stock) heal(ctx context.Context, row *imageRow) error {
	return s.change(func() (err error) {
		if !s.catalog.has(row.ID) {
			return fmt.Errorf("%w: %s", ErrNotFound, row.ID)
		}
		var b batch
		defer func() { err = errors.Join(err, s.drop(&b, nil)) }()
		err = s.shelf.build(ctx, &b, row.Layers, s.fromBlob)
		if err == nil {
			if err = s.shelf.seal(ctx, &b); err == nil && len(b.made) > 0 {
				s.log.Warn("image repaired", "image", row.ID, "names", row.Names, "layers", len(b.made))
			}
			return err
		}
		if ctx.Err() != nil || s.blobsSound(row) {
			return fmt.Errorf("repair: %w", err)
		}
		s.log.Warn("image lost", "image", row.ID, "names", row.Names, "err", err)
		return errors.Join(fmt.Errorf("%w: %s is damaged beyond repair", ErrNotFound, row.ID), s.lose(row))
	})
}

// lose drops an image that is damaged beyond repair. Its sound layers stay for a while, so that another pull fetches
// only the others.
func (s *stock) lose(row *imageRow) error {
	if s.spare == nil {
		s.spare = map[string]bool{}
	}
	for _, chain := range s.shelf.present(row.chains()) {
		s.spare[chain] = true
	}
	return s.forget(row)
}

// whole says whether every layer of an image is there, or can be made again from its blob.
func (s *stock) whole(row *imageRow) bool {
	for _, l := range row.Layers {
		if _, ok := s.shelf.size(l.Chain); ok {
			continue
		}
		if l.Blob == "" {
			return false
		}
		if fi, err := os.Lstat(s.home.blobPath(l.Blob)); err != nil || fi.Size() == 0 {
			return false
		}
	}
	return true
}

// blobsSound says whether everything an image could be unpacked from is there unharmed.
func (s *stock) blobsSound(row *imageRow) bool {
	for _, l := range row.Layers {
		if l.Blob == "" {
			return false
		}
		got, err := fileDigest(s.home.blobPath(l.Blob))
		if err == nil && got != l.Blob || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EIO) {
			return false
		}
	}
	return true
}
