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

// mounting joins layers, lowest first, with a fresh one in dir, at target.
type mounting func(target, dir string, lower []string) error

// mounter mounts and unmounts root file systems.
type mounter struct {
	home  *home
	work  Layers
	roots *roots
	uses  *uses
	shelf *shelf
	stock *stock
	heal  func(context.Context, *imageRow) error
	keys  keyLocks
}

// Mount implements Store.
func (d *Disk) Mount(ctx context.Context, imageID, key string) (rootfs string, err error) {
	return d.mounter.mount(ctx, imageID, key, d.cfg.Layers.Mount)
}

// MountFor implements UserStore.
func (d *Disk) MountFor(ctx context.Context, imageID, key string, host, size uint32) (rootfs string, err error) {
	layers, ok := d.cfg.Layers.(UserLayers)
	if !ok {
		return "", errors.New("mount image: layers cannot be mounted for a user namespace")
	}
	return d.mounter.mount(ctx, imageID, key, func(target, dir string, lower []string) error {
		return layers.MountFor(target, dir, lower, host, size)
	})
}

// Written is where what container key writes to its root file system ends up, for whoever counts it.
func (d *Disk) Written(key string) string {
	return filepath.Join(d.home.root(containersDir, key), "upper")
}

// Unmount implements Store.
func (d *Disk) Unmount(ctx context.Context, key string) error { return d.mounter.unmount(ctx, key) }

// Retain implements Store.
func (d *Disk) Retain(ctx context.Context, keys []string) error {
	known, err := d.mounter.allKeys()
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

func (t *mounter) mount(ctx context.Context, imageID, key string, how mounting) (rootfs string, err error) {
	if err := ValidKey(key); err != nil {
		return "", err
	}
	defer t.keys.lock(key)()
	target := t.home.run(rootfsDir, key)
	row, there, err := t.roots.reserve(imageID, key, t.stock.catalog.get)
	if err != nil {
		return "", fmt.Errorf("mount image for %s: %w", key, err)
	}
	if row != nil {
		t.uses.touch(imageID)
	}
	if there {
		ok, err := t.work.Mounted(target)
		if err != nil {
			return "", fmt.Errorf("mount image for %s: %w", key, err)
		}
		if ok {
			return target, nil
		}
	}
	if err := t.mountNew(ctx, row, key, target, how); err != nil {
		// A layer that broke must not hold the image in use, nor a half-made mount the key.
		err = errors.Join(err, t.giveUp(context.WithoutCancel(ctx), key))
		return "", fmt.Errorf("mount image %s for %s: %w", imageID, key, err)
	}
	return target, nil
}

// giveUp undoes what Mount began. If the image was found to be lost, its layers were held by this very mount.
func (t *mounter) giveUp(ctx context.Context, key string) error {
	if err := t.takeDown(ctx, key); err != nil {
		return err
	}
	return t.stock.alone(t.stock.sweep)
}

func (t *mounter) mountNew(ctx context.Context, row *imageRow, key, target string, how mounting) error {
	if row == nil {
		return ErrNotFound
	}
	if err := t.ready(ctx, row); err != nil {
		return err
	}
	// Whatever is left under this key is of a container that ended some other way.
	dir := t.home.root(containersDir, key)
	if err := t.clear(ctx, key); err != nil {
		return err
	}
	m, _ := t.roots.get(key)
	record, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := durable.Volatile.Replace(t.home.run(mountsDir, key+".json"), record, 0o600); err != nil {
		return err
	}
	for _, p := range []string{dir, target} {
		if err := os.Mkdir(p, 0o700); err != nil {
			return err
		}
	}
	lower := make([]string, len(m.Layers))
	for i, c := range m.Layers {
		lower[i] = t.home.layerPath(c)
	}
	if err := how(target, dir, lower); err != nil {
		return err
	}
	t.roots.stands(key, m)
	return nil
}

// ready checks that all layers of an image are present and sound, and unpacks the others again.
func (t *mounter) ready(ctx context.Context, row *imageRow) error {
	for _, l := range row.Layers {
		ok, err := t.shelf.sound(ctx, l.Chain)
		if err != nil {
			return err
		}
		if !ok {
			return t.heal(ctx, row)
		}
	}
	return nil
}

// clear unmounts and deletes what belongs to a key.
func (t *mounter) clear(ctx context.Context, key string) error {
	target := t.home.run(rootfsDir, key)
	if err := t.work.Unmount(ctx, target); err != nil {
		return err
	}
	// Only the mount point: should something be mounted still, this fails instead of emptying it.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return t.work.Remove(t.home.root(containersDir, key))
}

func (t *mounter) unmount(ctx context.Context, key string) error {
	if err := ValidKey(key); err != nil {
		return nil // never mounted
	}
	defer t.keys.lock(key)()
	if err := t.takeDown(ctx, key); err != nil {
		return fmt.Errorf("unmount root file system of %s: %w", key, err)
	}
	return nil
}

func (t *mounter) takeDown(ctx context.Context, key string) error {
	if err := t.clear(ctx, key); err != nil {
		return err
	}
	if err := os.Remove(t.home.run(mountsDir, key+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m, ok := t.roots.get(key); ok {
		t.uses.touch(m.Image)
	}
	t.roots.drop(key)
	return nil
}

// allKeys is every key of which there is anything: a record, a directory or a mount point.
func (t *mounter) allKeys() ([]string, error) {
	keys := t.roots.keys()
	for _, dir := range []string{t.home.root(containersDir), t.home.run(rootfsDir)} {
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

// load reads what is mounted since before this process. Nothing is after a boot: what is found then is
// cleared away.
func (t *mounter) load(ctx context.Context, newBoot bool) error {
	list, err := os.ReadDir(t.home.run(mountsDir))
	if err != nil {
		return err
	}
	for _, e := range list {
		path := t.home.run(mountsDir, e.Name())
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
		mounted, err := t.work.Mounted(t.home.run(rootfsDir, key))
		if err != nil {
			return err
		}
		if mounted {
			t.roots.stands(key, m)
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	keys, err := t.allKeys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if _, ok := t.roots.get(key); ok {
			continue
		}
		if err := t.clear(ctx, filepath.Base(key)); err != nil {
			return err
		}
	}
	return nil
}
