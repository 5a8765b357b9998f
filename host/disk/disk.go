// Package disk grows the last partition of a disk to the disk's end: an image is as small as it can be, and cards are not.
//
// PlanGrowth says what to write and in which order. Each write is to be on the disk before the next begins, and after any of
// their sectors the power may be cut: what decides is one sector, and the table before it and after it is whole.
package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Write is some sectors.
type Write struct {
	At   int64
	Data []byte
}

// Growth is what makes a partition larger.
type Growth struct {
	Writes      []Write // none: it ends where the disk does
	Start, Size int64   // of the partition, when they are done
}

// Partitions begin and end at multiples of this: what cards erase at once, or a part of it.
const align = 1 << 20

// ErrNotLast is a partition that has no free room behind it.
var ErrNotLast = errors.New("it is not the last partition")

// PlanGrowth plans for partition number (from 1) of a disk with so many bytes and sectors of that size.
func PlanGrowth(r io.ReaderAt, size int64, sector, number int) (Growth, error) {
	if sector < 512 || sector > 4096 || sector&(sector-1) != 0 || size < 4*align {
		return Growth{}, fmt.Errorf("a disk of %d bytes in sectors of %d", size, sector)
	}
	d := device{r: r, sector: int64(sector), sectors: size / int64(sector)}
	first, err := d.read(0, 1)
	if err != nil {
		return Growth{}, err
	}
	if first[510] != 0x55 || first[511] != 0xaa {
		return Growth{}, errors.New("the disk has no partition table")
	}
	for i := range 4 {
		if mbrEntry(first, i)[4] == protective {
			return d.gpt(first, number)
		}
	}
	return d.mbr(first, number)
}

type device struct {
	r       io.ReaderAt
	sector  int64
	sectors int64
}

func (d device) read(lba, n int64) ([]byte, error) {
	if lba < 0 || n < 0 || lba+n > d.sectors || n*d.sector > align {
		return nil, fmt.Errorf("the partition table is %d sectors at %d", n, lba)
	}
	out := make([]byte, n*d.sector)
	if _, err := d.r.ReadAt(out, lba*d.sector); err != nil {
		return nil, fmt.Errorf("read the partition table: %w", err)
	}
	return out, nil
}

// down is the last multiple of align that is not above, in sectors.
func (d device) down(lba int64) int64 { return lba - lba%(align/d.sector) }

// An MBR has four entries of 16 bytes.
const (
	protective = 0xee // all of a GPT disk
	mbrTable   = 446
)

func mbrEntry(first []byte, i int) []byte { return first[mbrTable+16*i : mbrTable+16*i+16] }

var le = binary.LittleEndian

// mbr changes one sector.
func (d device) mbr(first []byte, number int) (Growth, error) {
	if number < 1 || number > 4 {
		return Growth{}, errors.New("it is a logical partition, which does not grow")
	}
	e := mbrEntry(first, number-1)
	start, length := int64(le.Uint32(e[8:])), int64(le.Uint32(e[12:]))
	if length == 0 || e[4] == 0x05 || e[4] == 0x0f || e[4] == 0x85 {
		return Growth{}, fmt.Errorf("partition %d does not grow", number)
	}
	for i := range 4 {
		if other := mbrEntry(first, i); i != number-1 && int64(le.Uint32(other[12:])) > 0 && int64(le.Uint32(other[8:])) > start {
			return Growth{}, ErrNotLast
		}
	}
	g := Growth{Start: start * d.sector, Size: length * d.sector}
	end := d.down(min(d.sectors, 1<<32))
	if end <= start+length {
		return g, nil
	}
	changed := bytes.Clone(first)
	e = mbrEntry(changed, number-1)
	le.PutUint32(e[12:], uint32(end-start))
	copy(e[5:8], beyond)
	g.Size, g.Writes = (end-start)*d.sector, []Write{{0, changed}}
	return g, nil
}

// beyond is a place in cylinders and heads that cannot be said so.
var beyond = []byte{0xfe, 0xff, 0xff}

// header has the fields of a GPT's header that we read and change.
type header struct{ raw []byte }

func (h header) at(off int) int64     { return int64(le.Uint64(h.raw[off:])) }
func (h header) set(off int, v int64) { le.PutUint64(h.raw[off:], uint64(v)) }

// Offsets in it.
const (
	hdrSize, hdrCRC                = 12, 16
	hdrSelf, hdrOther              = 24, 32
	hdrFirst, hdrLast              = 40, 48 // that partitions may have
	hdrEntries                     = 72
	hdrCount, hdrEach, hdrTableCRC = 80, 84, 88
	entryFirst, entryLast          = 32, 40
)

func (h header) sum() uint32 {
	b := bytes.Clone(h.raw[:le.Uint32(h.raw[hdrSize:])])
	le.PutUint32(b[hdrCRC:], 0)
	return crc32.ChecksumIEEE(b)
}

func (h header) seal() []byte {
	le.PutUint32(h.raw[hdrCRC:], h.sum())
	return h.raw
}

// gptTable reads the header at lba and its entries. They must be whole: a table that is not is nobody's to change.
func (d device) gptTable(lba int64) (h header, entries []byte, err error) {
	if h.raw, err = d.read(lba, 1); err != nil {
		return h, nil, err
	}
	if n := le.Uint32(h.raw[hdrSize:]); string(h.raw[:8]) != "EFI PART" || n < 92 || int(n) > len(h.raw) ||
		h.sum() != le.Uint32(h.raw[hdrCRC:]) || h.at(hdrSelf) != lba {
		return h, nil, errors.New("the partition table (GPT) is damaged")
	}
	count, each := int64(le.Uint32(h.raw[hdrCount:])), int64(le.Uint32(h.raw[hdrEach:]))
	if count < 1 || count > 1024 || each < 128 || each > 1024 {
		return h, nil, fmt.Errorf("the partition table (GPT) has %d entries of %d bytes", count, each)
	}
	if entries, err = d.read(h.at(hdrEntries), (count*each+d.sector-1)/d.sector); err != nil {
		return h, nil, err
	}
	if crc32.ChecksumIEEE(entries[:count*each]) != le.Uint32(h.raw[hdrTableCRC:]) {
		return h, nil, errors.New("the partition table (GPT) is damaged")
	}
	return h, entries, nil
}

// gpt writes the copy at the disk's end first. The kernel ignores that copy unless the first table is whole, so the
// first stays whole: its new entries go where no entries are, and then one sector, the header, switches to them.
func (d device) gpt(first []byte, number int) (Growth, error) {
	h, entries, err := d.gptTable(1)
	if err != nil {
		return Growth{}, err
	}
	each := int(le.Uint32(h.raw[hdrEach:]))
	if number < 1 || number > int(le.Uint32(h.raw[hdrCount:])) {
		return Growth{}, fmt.Errorf("there is no partition %d", number)
	}
	lowest := d.sectors
	entry := header{entries[(number-1)*each:]}
	start, last := entry.at(entryFirst), entry.at(entryLast)
	for i := 0; i < len(entries); i += each {
		e := header{entries[i:min(i+each, len(entries))]}
		if len(e.raw) < each || bytes.Equal(e.raw[:16], make([]byte, 16)) {
			continue
		}
		lowest = min(lowest, e.at(entryFirst))
		if e.at(entryFirst) > start {
			return Growth{}, ErrNotLast
		}
	}
	if start < 1 || last < start || last >= d.sectors {
		return Growth{}, fmt.Errorf("there is no partition %d", number)
	}
	g := Growth{Start: start * d.sector, Size: (last + 1 - start) * d.sector}
	n := int64(len(entries)) / d.sector
	usable := d.sectors - 1 - n // the copy: entries, then the header in the last sector
	end := d.down(usable)
	if end <= last+1 {
		return g, nil
	}
	entry.set(entryLast, end-1)
	slot, err := d.slot(h.at(hdrEntries), n, lowest, entries, (number-1)*each+entryLast)
	if err != nil {
		return Growth{}, err
	}
	le.PutUint32(h.raw[hdrTableCRC:], crc32.ChecksumIEEE(entries[:each*int(le.Uint32(h.raw[hdrCount:]))]))
	h.set(hdrFirst, max(h.at(hdrFirst), slot+n))
	h.set(hdrLast, usable-1)
	copied := header{bytes.Clone(h.raw)}
	copied.set(hdrSelf, d.sectors-1)
	copied.set(hdrOther, 1)
	copied.set(hdrEntries, usable)
	h.set(hdrOther, d.sectors-1)
	h.set(hdrEntries, slot)
	g.Size = (end - start) * d.sector
	g.Writes = []Write{{usable * d.sector, entries}, {(d.sectors - 1) * d.sector, copied.seal()}, {slot * d.sector, entries},
		{d.sector, h.seal()}}
	if changed := bytes.Clone(first); d.protect(changed) {
		g.Writes = append(g.Writes, Write{0, changed})
	}
	return g, nil
}

// slot is where new entries can be written without touching those that count: behind the usual place, or there. Whatever else
// lies in front of the first partition, such as a boot loader, stays: only an earlier table of ours, which differs in the bytes
// from last on, is written over.
func (d device) slot(now, n, lowest int64, entries []byte, last int) (int64, error) {
	const usual = 2
	slot := int64(usual)
	if now < usual+n {
		slot = now + n
	}
	if slot+n > lowest || now < slot+n && slot < now+n {
		return 0, errors.New("there is no room for a second table in front of the first partition")
	}
	if slot == usual {
		return slot, nil
	}
	there, err := d.read(slot, n)
	if err != nil {
		return 0, err
	}
	ours := bytes.Clone(there)
	copy(ours[last:last+8], entries[last:])
	free := make([]byte, d.sector)
	for i := int64(0); i < int64(len(there)); i += d.sector {
		if !bytes.Equal(there[i:i+d.sector], free) && !bytes.Equal(ours[i:i+d.sector], entries[i:i+d.sector]) {
			return 0, errors.New("something lies in front of the first partition where the second table would come")
		}
	}
	return slot, nil
}

// protect makes the old table say that all of the disk is taken. It need not: it is for programs that know no other.
func (d device) protect(first []byte) (changed bool) {
	length := uint32(min(d.sectors-1, 1<<32-1))
	for i := range 4 {
		if e := mbrEntry(first, i); e[4] == protective && le.Uint32(e[8:]) == 1 && le.Uint32(e[12:]) != length {
			le.PutUint32(e[12:], length)
			copy(e[5:8], beyond)
			changed = true
		}
	}
	return changed
}
