package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// layer is a READY layer.
type layer struct {
	row     layerRow
	suspect bool // power was cut since it was last looked at
	damaged bool // looked at, and not in order
}

// shelf holds the READY layers.
type shelf struct {
	home  *home
	index Index
	work  Layers
	log   *slog.Logger

	mu     sync.Mutex
	layers map[string]*layer // by chain ID
}

// build makes those layers of an image that are not there or not sound. The caller seals or drops
// the batch.
func (s *shelf) build(ctx context.Context, b *batch, refs []layerRef, open opener) error {
	if b.dirs == nil {
		b.dirs = map[string]string{}
	}
	var lower []string
	for _, l := range refs {
		if _, ok := b.dirs[l.Chain]; !ok {
			ok, err := s.sound(ctx, l.Chain)
			if err != nil {
				return err
			}
			if ok {
				b.dirs[l.Chain] = s.home.layerPath(l.Chain)
			} else if err := s.make(ctx, b, l, lower, open); err != nil {
				return fmt.Errorf("layer %s: %w", l.DiffID, err)
			}
		}
		lower = append(lower, b.dirs[l.Chain])
	}
	return nil
}

func (s *shelf) make(ctx context.Context, b *batch, l layerRef, lower []string, open opener) error {
	archive, closer, err := open(l)
	if err != nil {
		return err
	}
	defer closer.Close()
	archive.Lower = lower
	tmp, err := os.MkdirTemp(s.home.root(layersDir), tmpPrefix)
	if err != nil {
		return err
	}
	u, err := s.work.Unpack(ctx, tmp, archive)
	if err == nil && u.DiffID != l.DiffID {
		err = fmt.Errorf("unpacks to %s: %w", u.DiffID, ErrDamaged)
	}
	if err != nil {
		return errors.Join(err, s.work.Remove(tmp))
	}
	b.add(made{tmp: tmp, row: layerRow{V: rowVersion, Chain: l.Chain, DiffID: l.DiffID, Manifest: u.Manifest,
		Bytes: u.Bytes, Entries: u.Entries}})
	return nil
}

// seal makes the layers of a batch READY. The order is the point: content first, all of it with one syncfs, then
// the names, then the rows. The caller is alone with the stock.
func (s *shelf) seal(ctx context.Context, b *batch) error {
	if err := s.skipReady(ctx, b); err != nil || len(b.made) == 0 {
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
	if err := s.home.durable.SyncFS(s.home.root(layersDir)); err != nil {
		return s.home.note(err)
	}
	for i, m := range b.made {
		if err := s.home.durable.SyncFile(filepath.Join(m.tmp, ManifestFile)); err != nil {
			return s.home.note(err)
		}
		if err := s.home.durable.Exchange(m.tmp, s.home.layerPath(m.row.Chain)); err != nil {
			return err
		}
		b.made[i].swapped = true
	}
	if err := s.home.durable.SyncDir(s.home.root(layersDir)); err != nil {
		return s.home.note(err)
	}
	for _, m := range b.made {
		if err := s.put(m.row); err != nil {
			return err
		}
	}
	return nil
}

// skipReady drops layers that somebody else made READY meanwhile: containers may stand on those.
func (s *shelf) skipReady(ctx context.Context, b *batch) error {
	var errs []error
	b.made = slices.DeleteFunc(b.made, func(m made) bool {
		ok, err := s.sound(ctx, m.row.Chain)
		errs = append(errs, err)
		if ok {
			errs = append(errs, s.work.Remove(m.tmp))
		}
		return ok
	})
	return errors.Join(errs...)
}

func (s *shelf) put(row layerRow) error {
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if err := s.index.Put(layerKey+row.Chain, data); err != nil {
		return fmt.Errorf("keep row of layer %s: %w", row.Chain, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers[row.Chain] = &layer{row: row}
	return nil
}

// sound says whether a layer is READY and, after a power cut, really is what its row says.
func (s *shelf) sound(ctx context.Context, chain string) (bool, error) {
	s.mu.Lock()
	l, ok := s.layers[chain]
	if !ok || l.damaged || !l.suspect {
		ok = ok && !l.damaged
		s.mu.Unlock()
		return ok, nil
	}
	row := l.row
	s.mu.Unlock()
	return s.verify(ctx, row, false)
}

// chainsSound says whether all layers of an image are READY and what their rows say.
func (s *shelf) chainsSound(ctx context.Context, chains []string) (bool, error) {
	for _, c := range chains {
		if ok, err := s.sound(ctx, c); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// doubt has layers looked at again before they are used: whoever imports an image a second time may do so
// because something is wrong with the first.
func (s *shelf) doubt(rows []*imageRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		for _, ref := range row.Layers {
			if l, ok := s.layers[ref.Chain]; ok {
				l.suspect = true
			}
		}
	}
}

// verify looks at a layer and remembers what it saw.
func (s *shelf) verify(ctx context.Context, row layerRow, full bool) (bool, error) {
	err := s.work.Verify(ctx, s.home.layerPath(row.Chain), row.Manifest, full)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.layers[row.Chain]
	if !ok || l.row != row {
		return false, nil // removed or replaced while we looked
	}
	if err != nil {
		l.damaged = true
		s.log.Warn("image layer damaged", "layer", row.Chain, "err", err)
		return false, nil
	}
	l.suspect = false
	return true, nil
}

// verifyChain is false for a layer that is there and not in order.
func (s *shelf) verifyChain(ctx context.Context, chain string) (bool, error) {
	s.mu.Lock()
	l, ok := s.layers[chain]
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	return s.verify(ctx, l.row, true)
}

// present leaves out layers that are not there.
func (s *shelf) present(chains []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range chains {
		if l, ok := s.layers[c]; ok && !l.damaged {
			out = append(out, c)
		}
	}
	return out
}

// remove takes the row away first, then the name, then the content.
func (s *shelf) remove(chain string) error {
	if err := s.index.Delete(layerKey + chain); err != nil {
		return fmt.Errorf("drop row of layer %s: %w", chain, err)
	}
	s.mu.Lock()
	delete(s.layers, chain)
	s.mu.Unlock()
	return s.discard(s.home.layerPath(chain))
}

func (s *shelf) discard(dir string) error {
	tmp, err := os.MkdirTemp(s.home.root(layersDir), tmpPrefix)
	if err != nil {
		return err
	}
	if err := s.home.durable.Rename(dir, filepath.Join(tmp, "layer")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, os.Remove(tmp))
	}
	return s.work.Remove(tmp)
}

// load joins rows and directories. A directory with its own copy of the row was complete and synced when
// it got its name, so a missing row is written again; one without is the rest of something and goes.
func (s *shelf) load(rows map[string]layerRow, suspect bool) error {
	list, err := os.ReadDir(s.home.root(layersDir))
	if err != nil {
		return err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), oldPrefix) {
			continue
		}
		chain := "sha256:" + e.Name()
		row, known := rows[chain]
		delete(rows, chain)
		var own layerRow
		data, err := os.ReadFile(s.home.root(layersDir, e.Name(), rowFile))
		if err == nil {
			err = decode(layerKey+chain, data, &own)
		}
		switch {
		case err == nil && (!known || own != row):
			if err := s.put(own); err != nil {
				return err
			}
		case err == nil || known:
			s.layers[chain] = &layer{row: row}
		default:
			if err := s.discard(s.home.root(layersDir, e.Name())); err != nil {
				return err
			}
			continue
		}
		s.layers[chain].suspect = suspect || err != nil
	}
	for chain := range rows {
		s.log.Warn("image layer lost", "layer", chain)
		if err := s.index.Delete(layerKey + chain); err != nil {
			return fmt.Errorf("drop row of layer %s: %w", chain, err)
		}
	}
	return nil
}

// sizes is how large every layer is, by chain ID.
func (s *shelf) sizes() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int64, len(s.layers))
	for chain, l := range s.layers {
		out[chain] = l.row.Bytes
	}
	return out
}

// size is the size of a layer; 0 without one.
func (s *shelf) size(chain string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.layers[chain]
	if !ok {
		return 0, false
	}
	return l.row.Bytes, true
}
