package images

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// mount is a root file system that is mounted or about to be.
type mount struct {
	Image  string
	Layers []string // chain IDs, lowest first

	mounted bool // not only about to be
}

// roots is which root file systems there are, and what they stand on.
type roots struct {
	mu    sync.Mutex
	byKey map[string]mount
}

// reserve puts an image in use before anything is done: whoever removes images after get gave this one sees the mount.
// there: the key has one already, of this image; the row is nil if the image was lost since.
func (r *roots) reserve(imageID, key string, get func(id string) (*imageRow, bool)) (row *imageRow, there bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, there := r.byKey[key]
	if there && m.Image != imageID {
		return nil, true, fmt.Errorf("it has a root file system of another image, %s", m.Image)
	}
	row, ok := get(imageID)
	if !ok && there {
		return nil, true, nil // mounted before the image was lost
	}
	if !ok {
		return nil, false, fmt.Errorf("%w: %s", ErrNotFound, imageID)
	}
	m = mount{Image: imageID, mounted: m.mounted}
	for _, l := range row.Layers {
		m.Layers = append(m.Layers, l.Chain)
	}
	r.byKey[key] = m
	return row, there, nil
}

func (r *roots) get(key string) (mount, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.byKey[key]
	return m, ok
}

// stands says that a root file system is mounted.
func (r *roots) stands(key string, m mount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.mounted = true
	r.byKey[key] = m
}

func (r *roots) drop(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}

func (r *roots) keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.byKey))
}

// mountedOn says whether a container stands on a layer.
func (r *roots) mountedOn(chain string) bool {
	return r.any(func(m mount) bool { return m.mounted && slices.Contains(m.Layers, chain) })
}

// need says whether a container stands on a layer or is about to.
func (r *roots) need(chain string) bool {
	return r.any(func(m mount) bool { return slices.Contains(m.Layers, chain) })
}

// use says whether a container stands on an image or is about to.
func (r *roots) use(id string) bool {
	return r.any(func(m mount) bool { return m.Image == id })
}

func (r *roots) any(is func(mount) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.byKey {
		if is(m) {
			return true
		}
	}
	return false
}

// users are the keys of the root file systems that stand on an image.
func (r *roots) users(id string) (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, m := range r.byKey {
		if m.Image == id {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
