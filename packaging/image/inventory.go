package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"

	"ledge/packaging/sbom"
)

// writeInventory lists what is in the image.
func (im *image) writeInventory(debs string) error {
	info, err := buildinfo.ReadFile(im.ledge)
	if err != nil {
		return err
	}
	text, err := sbom.Of(sbom.Thing{Name: filepath.Base(im.base), Version: im.version.name, Epoch: im.version.epoch, Arch: im.board.arch,
		Debs: debs, Binary: info})
	if err != nil {
		return err
	}
	return os.WriteFile(im.base+".spdx.json", text, 0o644)
}
