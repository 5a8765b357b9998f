package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// A disk has the older of the two kinds of partition tables, which every firmware reads: the BIOS, the Raspberry Pi's, and UEFI (which
// takes a FAT partition on a disk that can be pulled out, whatever its type says). The whole table is one sector. So one write is enough
// to have the last partition reach to the end of the card, and a power cut leaves that done or not done. A table of this kind ends at 2
// TiB.
const (
	sector   = 512
	mebibyte = 1 << 20

	gapSize  = 1 * mebibyte // the table, and what a BIOS starts
	bootSize = 256 * mebibyte
	dataSize = 64 * mebibyte // the first boot makes it as large as the card lets it be
)

// ids are what distinguishes one image from another. They follow from its name, so that it is the same each time; what
// distinguishes one board from another is made by its first boot.
type ids struct {
	disk, fat  uint32
	data, seed string // UUIDs
}

func newIDs(board, flavour, version string) ids {
	sum := sha256.Sum256([]byte("ledge image\n" + board + "\n" + flavour + "\n" + version + "\n"))
	more := sha256.Sum256(sum[:])
	return ids{disk: binary.LittleEndian.Uint32(sum[:]), fat: binary.LittleEndian.Uint32(sum[4:]), data: uuid(sum[8:24]),
		seed: uuid(more[:16])}
}

// uuid makes a UUID from a name (version 8: by rules of our own).
func uuid(b []byte) string {
	b = bytes.Clone(b)
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

type partition struct {
	kind         byte
	active       bool
	start, count uint32 // sectors
}

const (
	kindFAT   = 0x0c // with addresses by number: what Windows, macOS and the Pi's firmware mount
	kindLinux = 0x83
)

// part is a file that becomes a partition.
type part struct {
	file string
	kind byte
	at   int64 // in the image, behind those before it
	size int64
}

// layOut puts partitions one behind the other, each from a mebibyte on, and gives the size of the disk.
func layOut(parts []part) (size int64) {
	size = gapSize
	for i := range parts {
		parts[i].at = size
		size += (parts[i].size + mebibyte - 1) / mebibyte * mebibyte
	}
	return size
}

// table is the first sector of a disk: code for a BIOS, if any, and up to four partitions.
func table(code []byte, id uint32, parts ...partition) ([]byte, error) {
	const codeSize = 440
	if len(code) > codeSize || len(parts) > 4 {
		return nil, fmt.Errorf("%d bytes of code and %d partitions do not fit into a sector", len(code), len(parts))
	}
	s := make([]byte, sector)
	copy(s, code)
	binary.LittleEndian.PutUint32(s[codeSize:], id)
	for i, p := range parts {
		e := s[446+16*i:]
		if p.active {
			e[0] = 0x80
		}
		// Heads and cylinders are out of use; these values say so.
		copy(e[1:], []byte{0xfe, 0xff, 0xff, p.kind, 0xfe, 0xff, 0xff})
		binary.LittleEndian.PutUint32(e[8:], p.start)
		binary.LittleEndian.PutUint32(e[12:], p.count)
	}
	s[510], s[511] = 0x55, 0xaa
	return s, nil
}

// biosCode is GRUB's first sector made ready for a disk, as its grub-bios-setup does it.
func biosCode(boot []byte) ([]byte, error) {
	const kernelSector, driveCheck = 0x5c, 0x66
	if len(boot) != sector || boot[510] != 0x55 {
		return nil, fmt.Errorf("GRUB's boot.img has %d bytes, or is none", len(boot))
	}
	boot = bytes.Clone(boot[:440])
	binary.LittleEndian.PutUint64(boot[kernelSector:], 1)
	boot[driveCheck], boot[driveCheck+1] = 0x90, 0x90 // believe the BIOS which drive it is
	return boot, nil
}

// checkCore holds what grub-mkimage made against the place it is to have, from the second sector on: its own first sector says
// where the rest is.
func checkCore(core []byte) error {
	if len(core) < 2*sector || len(core) > gapSize-sector {
		return fmt.Errorf("GRUB's core has %d bytes, and %d of room", len(core), gapSize-sector)
	}
	list := core[sector-12:]
	at, count := binary.LittleEndian.Uint64(list), binary.LittleEndian.Uint16(list[8:])
	if want := (len(core) - 1) / sector; at != 2 || int(count) < want {
		return fmt.Errorf("GRUB's core wants its rest, %d sectors, at %d; it has %d at 2", count, at, want)
	}
	return nil
}
