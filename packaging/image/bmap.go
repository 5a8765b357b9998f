package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A block map tells which blocks of an image matter. The others may keep what the card has: bmaptool skips them. Which ones
// matter is asked of the file systems, not of zeros: a zero in a table of a file system is as good as any other byte.
const blockSize = 4096

type extent struct{ first, last int64 } // blocks

// join sorts extents and joins those that touch.
func join(all []extent) (joined []extent) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b extent) int { return int(a.first - b.first) })
	for _, e := range all {
		if n := len(joined); n > 0 && e.first <= joined[n-1].last+1 {
			joined[n-1].last = max(joined[n-1].last, e.last)
			continue
		}
		joined = append(joined, e)
	}
	return joined
}

// fatUsed is how much of a FAT32 file system matters, from its start.
func fatUsed(r io.ReaderAt) (int64, error) {
	head := make([]byte, sector)
	if _, err := r.ReadAt(head, 0); err != nil {
		return 0, err
	}
	le := binary.LittleEndian
	bytesPer, perCluster, reserved := int64(le.Uint16(head[11:])), int64(head[13]), int64(le.Uint16(head[14:]))
	fats, perFAT := int64(head[16]), int64(le.Uint32(head[36:]))
	if bytesPer != sector || perCluster == 0 || string(head[82:87]) != "FAT32" {
		return 0, errors.New("this is no FAT32")
	}
	fat := make([]byte, perFAT*sector)
	if _, err := r.ReadAt(fat, reserved*sector); err != nil {
		return 0, err
	}
	last := int64(1)
	for i := int64(2); i < int64(len(fat)/4); i++ {
		if le.Uint32(fat[4*i:])&0x0fffffff != 0 {
			last = i
		}
	}
	return (reserved + fats*perFAT + (last-1)*perCluster) * sector, nil
}

// ext4Used reads from dumpe2fs which blocks matter: those that are not free.
func ext4Used(dump string) (used []extent, err error) {
	blocks, perBlock := int64(-1), int64(-1)
	var free []extent
	for line := range strings.Lines(dump) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case key == "Block count":
			blocks, err = strconv.ParseInt(value, 10, 64)
		case key == "Block size":
			perBlock, err = strconv.ParseInt(value, 10, 64)
		case key == "Free blocks" && strings.HasPrefix(line, " "): // of a group
			for _, part := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' }) {
				first, last, ok := strings.Cut(part, "-")
				if !ok {
					last = first
				}
				var e extent
				var err2 error
				e.first, err = strconv.ParseInt(first, 10, 64)
				e.last, err2 = strconv.ParseInt(last, 10, 64)
				err = errors.Join(err, err2)
				free = append(free, e)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("dumpe2fs says %q: %w", line, err)
		}
	}
	if blocks < 0 || perBlock != blockSize || len(free) == 0 {
		return nil, fmt.Errorf("dumpe2fs tells of %d blocks of %d bytes, %d extents of them free", blocks, perBlock, len(free))
	}
	at := int64(0)
	for _, f := range join(free) {
		if f.first > at {
			used = append(used, extent{at, f.first - 1})
		}
		at = f.last + 1
	}
	if at < blocks {
		used = append(used, extent{at, blocks - 1})
	}
	return used, nil
}

// bmap writes the map of an image in bmaptool's form, version 2.0, with checksums.
func bmap(r io.ReaderAt, size int64, used []extent) ([]byte, error) {
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	used = join(used)
	mapped := int64(0)
	var ranges bytes.Buffer
	for _, e := range used {
		sum := sha256.New()
		from, to := e.first*blockSize, min((e.last+1)*blockSize, size)
		if _, err := io.Copy(sum, io.NewSectionReader(r, from, to-from)); err != nil {
			return nil, err
		}
		mapped += e.last - e.first + 1
		which := fmt.Sprintf("%d-%d", e.first, e.last)
		if e.first == e.last {
			which = strconv.FormatInt(e.first, 10)
		}
		fmt.Fprintf(&ranges, "        <Range chksum=\"%x\"> %s </Range>\n", sum.Sum(nil), which)
	}
	text := fmt.Sprintf(`<?xml version="1.0" ?>
<bmap version="2.0">
    <ImageSize> %d </ImageSize>
    <BlockSize> %d </BlockSize>
    <BlocksCount> %d </BlocksCount>
    <MappedBlocksCount> %d </MappedBlocksCount>
    <ChecksumType> sha256 </ChecksumType>
    <BmapFileChecksum> %s </BmapFileChecksum>
    <BlockMap>
%s    </BlockMap>
</bmap>
`, size, blockSize, (size+blockSize-1)/blockSize, mapped, zeros, ranges.String())
	sum := sha256.Sum256([]byte(text)) // of itself, with zeros in its place
	return []byte(strings.Replace(text, zeros, hex.EncodeToString(sum[:]), 1)), nil
}
