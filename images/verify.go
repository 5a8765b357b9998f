package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Report is what Verify or Check found.
type Report struct {
	Layers   int      // looked at
	Damaged  []string // layers that were not in order, by chain ID
	Repaired []string // of Damaged: unpacked again from their blobs
	Lost     []string // images that cannot be repaired here and must be pulled or imported again, by ID
	Names    []string // of Lost
}

// Verify compares every layer, byte for byte, with what was unpacked once, and repairs what is damaged from the
// kept blobs. It takes as long as the card takes to read; pods may start and stop meanwhile.
func (d *Disk) Verify(ctx context.Context) (Report, error) { return d.inspect(ctx, d.heal) }

// Check is Verify without the repair. What it finds damaged is repaired before it is used next.
func (d *Disk) Check(ctx context.Context) (Report, error) {
	return d.inspect(ctx, func(context.Context, *imageRow) error { return nil })
}

func (d *Disk) inspect(ctx context.Context, repair func(context.Context, *imageRow) error) (Report, error) {
	var rep Report
	seen := map[string]bool{} // chain: is sound
	for _, row := range d.rows() {
		bad := false
		for _, l := range row.Layers {
			sound, known := seen[l.Chain]
			if !known {
				rep.Layers++
				var err error
				if sound, err = d.verifyChain(ctx, l.Chain); err != nil {
					return rep, fmt.Errorf("verify images: %w", err)
				}
				if seen[l.Chain] = sound; !sound {
					rep.Damaged = append(rep.Damaged, l.Chain)
				}
			}
			bad = bad || !sound
		}
		if !bad || !d.has(row.ID) {
			continue
		}
		err := repair(ctx, row)
		if errors.Is(err, ErrNotFound) {
			rep.Lost, rep.Names = append(rep.Lost, row.ID), append(rep.Names, row.Names...)
		} else if err != nil {
			return rep, fmt.Errorf("verify images: %w", err)
		}
	}
	rep.Repaired = d.present(rep.Damaged)
	return rep, nil
}

// verifyChain is false for a layer that is there and not in order.
func (d *Disk) verifyChain(ctx context.Context, chain string) (bool, error) {
	d.mu.Lock()
	l, ok := d.layers[chain]
	d.mu.Unlock()
	if !ok {
		return false, nil
	}
	return d.verifyLayer(ctx, l.row, true)
}

// present leaves out layers that are not there.
func (d *Disk) present(chains []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, c := range chains {
		if l, ok := d.layers[c]; ok && !l.damaged {
			out = append(out, c)
		}
	}
	return out
}

// heal unpacks the damaged and missing layers of an image again from its blobs. If a blob is damaged too, the image
// is dropped, so that it can be pulled again, and the error wraps ErrNotFound.
func (d *Disk) heal(ctx context.Context, row *imageRow) (err error) {
	if row.Source != nil {
		return d.healSelf(ctx, row)
	}
	d.write.Lock()
	defer d.write.Unlock()
	if err := d.broken(); err != nil {
		return err
	}
	if !d.has(row.ID) {
		return fmt.Errorf("%w: %s", ErrNotFound, row.ID)
	}
	var b batch
	defer func() { err = errors.Join(err, d.drop(&b, nil)) }()
	err = d.build(ctx, &b, row.Layers, d.fromBlob)
	if err == nil {
		if err = d.seal(ctx, &b); err == nil && len(b.made) > 0 {
			d.cfg.Log.Warn("image repaired", "image", row.ID, "names", row.Names, "layers", len(b.made))
		}
		return err
	}
	if ctx.Err() != nil || d.blobsSound(row) {
		return fmt.Errorf("repair: %w", err)
	}
	d.cfg.Log.Warn("image lost", "image", row.ID, "names", row.Names, "err", err)
	return errors.Join(fmt.Errorf("%w: %s is damaged beyond repair", ErrNotFound, row.ID), d.lose(row))
}

// lose drops an image that is damaged beyond repair. Its sound layers stay for a while, so that another pull fetches
// only the others.
func (d *Disk) lose(row *imageRow) error {
	d.mu.Lock()
	if d.spare == nil {
		d.spare = map[string]bool{}
	}
	for _, l := range row.Layers {
		if have, ok := d.layers[l.Chain]; ok && !have.damaged {
			d.spare[l.Chain] = true
		}
	}
	d.mu.Unlock()
	return d.forget(row)
}

func (d *Disk) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.images[id]
	return ok
}

// blobsSound says whether everything an image could be unpacked from is there unharmed.
func (d *Disk) blobsSound(row *imageRow) bool {
	for _, l := range row.Layers {
		if l.Blob == "" {
			return false
		}
		got, err := fileDigest(d.blobPath(l.Blob))
		if err == nil && got != l.Blob || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EIO) {
			return false
		}
	}
	return true
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
