package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ledge/internal/durable"
)

// mount is a root file system that is mounted or about to be.
type mount struct {
	Image  string
	Layers []string // chain IDs, lowest first

	mounted bool // not only about to be
}

// ValidKey says why a key cannot name a root file system; keys become file names.
func ValidKey(key string) error {
	bad := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", r)
	}
	if key == "" || len(key) > 200 || key[0] == '.' || strings.ContainsFunc(key, bad) {
		return fmt.Errorf("%.100q cannot name a root file system", key)
	}
	return nil
}

// Mount implements Store.
func (d *Disk) Mount(ctx context.Context, imageID, key string) (rootfs string, err error) {
	return d.mountWith(ctx, imageID, key, d.cfg.Layers.Mount)
}

// MountFor implements UserStore.
func (d *Disk) MountFor(ctx context.Context, imageID, key string, host, size uint32) (rootfs string, err error) {
	layers, ok := d.cfg.Layers.(UserLayers)
	if !ok {
		return "", errors.New("mount image: layers cannot be mounted for a user namespace")
	}
	return d.mountWith(ctx, imageID, key, func(target, dir string, lower []string) error {
		return layers.MountFor(target, dir, lower, host, size)
	})
}

func (d *Disk) mountWith(ctx context.Context, imageID, key string, how func(target, dir string, lower []string) error) (rootfs string,
	err error) {
	if err := ValidKey(key); err != nil {
		return "", err
	}
	defer d.keys.lock(key)()
	target := d.run(rootfsDir, key)
	row, there, err := d.reserve(imageID, key)
	if err != nil {
		return "", fmt.Errorf("mount image for %s: %w", key, err)
	}
	if there {
		ok, err := d.cfg.Layers.Mounted(target)
		if err != nil {
			return "", fmt.Errorf("mount image for %s: %w", key, err)
		}
		if ok {
			return target, nil
		}
	}
	if err := d.mountNew(ctx, row, key, target, how); err != nil {
		// A layer that broke must not hold the image in use, nor a half-made mount the key.
		err = errors.Join(err, d.giveUp(context.WithoutCancel(ctx), key))
		return "", fmt.Errorf("mount image %s for %s: %w", imageID, key, err)
	}
	return target, nil
}

// giveUp undoes what Mount began. If the image was found to be lost, its layers were held by this very mount.
func (d *Disk) giveUp(ctx context.Context, key string) error {
	if err := d.unmount(ctx, key); err != nil {
		return err
	}
	d.write.Lock()
	defer d.write.Unlock()
	return d.sweepUnused()
}

// reserve puts the image in use before anything is done, so that no Remove comes between.
func (d *Disk) reserve(imageID, key string) (row *imageRow, there bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, there := d.mounts[key]
	if there && m.Image != imageID {
		return nil, true, fmt.Errorf("it has a root file system of another image, %s", m.Image)
	}
	row, ok := d.images[imageID]
	if !ok && there {
		return nil, true, nil // mounted before the image was lost
	}
	if !ok {
		return nil, false, fmt.Errorf("%w: %s", ErrNotFound, imageID)
	}
	d.touch(imageID)
	m = mount{Image: imageID, mounted: m.mounted}
	for _, l := range row.Layers {
		m.Layers = append(m.Layers, l.Chain)
	}
	d.mounts[key] = m
	return row, there, nil
}

func (d *Disk) mountNew(ctx context.Context, row *imageRow, key, target string, how func(target, dir string, lower []string) error) error {
	if row == nil {
		return ErrNotFound
	}
	if err := d.ready(ctx, row); err != nil {
		return err
	}
	// Whatever is left under this key is of a container that ended some other way.
	dir := d.root(containersDir, key)
	if err := d.clear(ctx, key); err != nil {
		return err
	}
	d.mu.Lock()
	m := d.mounts[key]
	d.mu.Unlock()
	record, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := durable.Volatile.Replace(d.run(mountsDir, key+".json"), record, 0o600); err != nil {
		return err
	}
	for _, p := range []string{dir, target} {
		if err := os.Mkdir(p, 0o700); err != nil {
			return err
		}
	}
	lower := make([]string, len(m.Layers))
	for i, c := range m.Layers {
		lower[i] = d.layerPath(c)
	}
	if err := how(target, dir, lower); err != nil {
		return err
	}
	m.mounted = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounts[key] = m
	return nil
}

// ready checks that all layers of an image are present and sound, and unpacks the others again.
func (d *Disk) ready(ctx context.Context, row *imageRow) error {
	for _, l := range row.Layers {
		ok, err := d.sound(ctx, l.Chain)
		if err != nil {
			return err
		}
		if !ok {
			return d.heal(ctx, row)
		}
	}
	return nil
}

// clear unmounts and deletes what belongs to a key.
func (d *Disk) clear(ctx context.Context, key string) error {
	target := d.run(rootfsDir, key)
	if err := d.cfg.Layers.Unmount(ctx, target); err != nil {
		return err
	}
	// Only the mount point: should something be mounted still, this fails instead of emptying it.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.cfg.Layers.Remove(d.root(containersDir, key))
}

// Written is where what container key writes to its root file system ends up, for whoever counts it.
func (d *Disk) Written(key string) string { return filepath.Join(d.root(containersDir, key), "upper") }

// Unmount implements Store.
func (d *Disk) Unmount(ctx context.Context, key string) error {
	if err := ValidKey(key); err != nil {
		return nil // never mounted
	}
	defer d.keys.lock(key)()
	if err := d.unmount(ctx, key); err != nil {
		return fmt.Errorf("unmount root file system of %s: %w", key, err)
	}
	return nil
}

func (d *Disk) unmount(ctx context.Context, key string) error {
	if err := d.clear(ctx, key); err != nil {
		return err
	}
	if err := os.Remove(d.run(mountsDir, key+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.mounts[key]; ok {
		d.touch(m.Image)
	}
	delete(d.mounts, key)
	return nil
}

// Retain implements Store.
func (d *Disk) Retain(ctx context.Context, keys []string) error {
	known, err := d.allKeys()
	if err != nil {
		return fmt.Errorf("retain root file systems: %w", err)
	}
	var errs []error
	for _, key := range known {
		if !slices.Contains(keys, key) {
			errs = append(errs, d.Unmount(ctx, key))
		}
	}
	return errors.Join(errs...)
}

// allKeys is every key of which there is anything: a record, a directory or a mount point.
func (d *Disk) allKeys() ([]string, error) {
	d.mu.Lock()
	var keys []string
	for k := range d.mounts {
		keys = append(keys, k)
	}
	d.mu.Unlock()
	for _, dir := range []string{d.root(containersDir), d.run(rootfsDir)} {
		list, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			keys = append(keys, e.Name())
		}
	}
	return mergeNames(keys, nil), nil
}

// loadMounts reads what is mounted since before this process. Nothing is after a boot: what is found then is
// cleared away.
func (d *Disk) loadMounts(ctx context.Context, newBoot bool) error {
	list, err := os.ReadDir(d.run(mountsDir))
	if err != nil {
		return err
	}
	for _, e := range list {
		path := d.run(mountsDir, e.Name())
		key, ok := strings.CutSuffix(e.Name(), ".json")
		var m mount
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !ok || newBoot || strings.HasPrefix(key, ".") || json.Unmarshal(data, &m) != nil {
			if err := os.Remove(path); err != nil {
				return err
			}
			continue
		}
		mounted, err := d.cfg.Layers.Mounted(d.run(rootfsDir, key))
		if err != nil {
			return err
		}
		if mounted {
			m.mounted = true
			d.mounts[key] = m
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	keys, err := d.allKeys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if _, ok := d.mounts[key]; ok {
			continue
		}
		if err := d.clear(ctx, filepath.Base(key)); err != nil {
			return err
		}
	}
	return nil
}
