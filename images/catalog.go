package images

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// catalog is which images are READY, and under which names.
type catalog struct {
	home  *home
	index Index
	uses  *uses
	log   *slog.Logger

	mu     sync.Mutex
	images map[string]*imageRow // by ID; rows are replaced, never changed
	seq    uint64
}

// find is the image of a reference: a name, a digest or an ID.
func (c *catalog) find(ref string) (*imageRow, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := ref
	if isHex(ref, 64) {
		id = "sha256:" + ref
	}
	if row, ok := c.images[id]; ok {
		return row, nil
	}
	if ValidDigest(id) {
		for _, row := range c.images {
			if slices.Contains(row.Documents, id) {
				return row, nil
			}
		}
		return nil, fmt.Errorf("%w: %s", ErrNotFound, ref)
	}
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	for _, row := range c.images {
		// A digest is exact; a tag beside it says nothing more.
		if r.Digest != "" && slices.Contains(row.Digests, r.Name()+"@"+r.Digest) ||
			r.Digest == "" && slices.Contains(row.Names, r.Tagged()) {
			return row, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNotFound, r)
}

// get is the image of an ID.
func (c *catalog) get(id string) (*imageRow, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row, ok := c.images[id]
	return row, ok
}

func (c *catalog) has(id string) bool {
	_, ok := c.get(id)
	return ok
}

// rows is what is there now, in the order of their IDs.
func (c *catalog) rows() []*imageRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*imageRow, 0, len(c.images))
	for _, row := range c.images {
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b *imageRow) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// layerUsers is how many images have each layer.
func (c *catalog) layerUsers() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]int{}
	for _, row := range c.images {
		seen := map[string]bool{}
		for _, l := range row.Layers {
			if !seen[l.Chain] {
				n[l.Chain]++
			}
			seen[l.Chain] = true
		}
	}
	return n
}

// enter makes an image READY, under all names it has and had; another image of one of them loses it.
func (c *catalog) enter(row *imageRow) error {
	if old, ok := c.get(row.ID); ok {
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
	if err := c.save(row); err != nil {
		return err
	}
	for _, other := range c.rows() {
		if other.ID != row.ID && slices.ContainsFunc(other.Names, func(n string) bool { return slices.Contains(row.Names, n) }) {
			if err := c.save(without(other, row.Names)); err != nil {
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

// save writes a row, its copy on disk first: should the index be lost, the images are not.
func (c *catalog) save(row *imageRow) error {
	c.mu.Lock()
	c.seq++
	row.Seq = c.seq
	c.mu.Unlock()
	if err := c.home.writeJSON(c.home.copyPath(row.ID), row); err != nil {
		return c.home.note(err)
	}
	return c.put(row)
}

func (c *catalog) put(row *imageRow) error {
	data, err := json.Marshal(row)
	if err != nil {
		return err
	}
	if err := c.index.Put(imageKey+row.ID, data); err != nil {
		return fmt.Errorf("keep row of image %s: %w", row.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.images[row.ID]; !ok {
		c.uses.arrived(row.ID)
	}
	c.images[row.ID] = row
	return nil
}

// drop forgets an image: the copy of its row first, so that a cut in between leaves it whole, then the row.
func (c *catalog) drop(row *imageRow) error {
	if err := c.home.durable.Remove(c.home.copyPath(row.ID)); err != nil {
		return c.home.note(err)
	}
	if err := c.index.Delete(imageKey + row.ID); err != nil {
		return fmt.Errorf("drop row of image %s: %w", row.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.images, row.ID)
	c.uses.forget(row.ID)
	return nil
}

// load joins rows and their copies on disk, and drops images that are not whole: those have lost a layer for good.
func (c *catalog) load(rows map[string]*imageRow, whole func(*imageRow) bool) error {
	copies, err := c.readCopies()
	if err != nil {
		return err
	}
	for id, own := range copies {
		if row, ok := rows[id]; ok && row.Seq >= own.Seq {
			continue
		}
		if whole(own) {
			if err := c.put(own); err != nil {
				return err
			}
			rows[id] = own
		}
	}
	for id, row := range rows {
		if !whole(row) {
			c.log.Warn("image lost", "image", id, "names", row.Names)
			if err := c.drop(row); err != nil {
				return err
			}
			continue
		}
		c.take(row)
		if own, ok := copies[id]; !ok || own.Seq < row.Seq {
			if err := c.home.writeJSON(c.home.copyPath(id), row); err != nil {
				return err
			}
		}
	}
	for id := range copies {
		if !c.has(id) {
			if err := c.home.durable.Remove(c.home.copyPath(id)); err != nil {
				return err
			}
		}
	}
	return c.finishMoves()
}

// take has a row that is in the index.
func (c *catalog) take(row *imageRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.images[row.ID] = row
	c.seq = max(c.seq, row.Seq)
}

func (c *catalog) readCopies() (map[string]*imageRow, error) {
	list, err := os.ReadDir(c.home.root(imagesDir))
	if err != nil {
		return nil, err
	}
	copies := map[string]*imageRow{}
	for _, e := range list {
		path := c.home.root(imagesDir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		row := &imageRow{}
		key := imageKey + "sha256:" + strings.TrimSuffix(filepath.Base(path), ".json")
		if err := json.Unmarshal(data, row); err != nil || row.check(key) != nil {
			c.log.Warn("copy of an image row damaged", "file", path)
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		copies[row.ID] = row
	}
	return copies, nil
}

// finishMoves ends a move of names that a cut interrupted: the later claim holds.
func (c *catalog) finishMoves() error {
	list := c.rows()
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
			if err := c.save(without(row, lost)); err != nil {
				return err
			}
		}
	}
	return nil
}
