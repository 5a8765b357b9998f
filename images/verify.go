package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// Report is the result of Verify or Check.
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
	for _, row := range d.catalog.rows() {
		bad := false
		for _, l := range row.Layers {
			sound, known := seen[l.Chain]
			if !known {
				rep.Layers++
				var err error
				if sound, err = d.shelf.verifyChain(ctx, l.Chain); err != nil {
					return rep, fmt.Errorf("verify images: %w", err)
				}
				if seen[l.Chain] = sound; !sound {
					rep.Damaged = append(rep.Damaged, l.Chain)
				}
			}
			bad = bad || !sound
		}
		if !bad || !d.catalog.has(row.ID) {
			continue
		}
		err := repair(ctx, row)
		if errors.Is(err, ErrNotFound) {
			rep.Lost, rep.Names = append(rep.Lost, row.ID), append(rep.Names, row.Names...)
		} else if err != nil {
			return rep, fmt.Errorf("verify images: %w", err)
		}
	}
	rep.Repaired = d.shelf.present(rep.Damaged)
	return rep, nil
}

// heal makes what is damaged of an image again; the error wraps ErrNotFound if that cannot be done here.
func (d *Disk) heal(ctx context.Context, row *imageRow) error {
	if row.Source != nil {
		return d.self.heal(ctx, row)
	}
	return d.stock.heal(ctx, row)
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
