package disk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// An ext4 writes its superblock in place at each mount and each end of one: two sectors, the checksum of all in the second. When
// the plug is pulled in between, one of them is of before, and a kernel mounts that never again. What else is in the second sector
// does not change from mount to mount, so the sum is all that has to be made anew.

// PlanMend says what makes an ext4 whole that a power cut has torn: the end of a transaction, or its superblock. Nothing: it is whole,
// or has no checksums. What is wrong in more is nobody's to change (fits).
func PlanMend(r io.ReaderAt) ([]Write, error) {
	super := make([]byte, superSize)
	if _, err := r.ReadAt(super, superAt); err != nil {
		return nil, fmt.Errorf("read the superblock: %w", err)
	}
	if le.Uint16(super[superMagic:]) != 0xef53 {
		return nil, errors.New("there is no ext4")
	}
	if le.Uint32(super[superReadOnly:])&metadataSums == 0 || super[superSumKind] != crc32c {
		return nil, nil
	}
	sum := checksum(^uint32(0), super[:superSum])
	whole := le.Uint32(super[superSum:]) == sum
	commits, err := commits(r, super)
	if err != nil && !whole {
		err = fmt.Errorf("the superblock is damaged, and not only torn: %w", err)
	}
	if err != nil {
		return nil, err
	}
	var out []Write
	for _, c := range commits {
		if c.Torn {
			out = append(out, Write{At: c.At + commitHead, Data: make([]byte, c.Size-commitHead)})
		}
	}
	if !whole {
		le.PutUint32(super[superSum:], sum)
		const second = 512
		out = append(out, Write{At: superAt + second, Data: super[second:]})
	}
	return out, nil
}

// Where things are in a superblock.
const (
	superAt, superSize = 1024, 1024
	superInodes        = 0x00
	superBlocks        = 0x04
	superFirstBlock    = 0x14
	superBlockSize     = 0x18
	superBlocksEach    = 0x20 // in a group
	superInodesEach    = 0x28
	superMagic         = 0x38
	superFirstInode    = 0x54
	superInodeSize     = 0x58
	superCompatible    = 0x5c
	superIncompatible  = 0x60
	superReadOnly      = 0x64
	superIdentity      = 0x68
	superJournal       = 0xe0
	superGroupSize     = 0xfe
	superBlocksHigh    = 0x150
	superSumKind       = 0x175
	superSeed          = 0x270
	superSum           = 0x3fc

	metadataSums = 0x400  // among what may be read only without it
	seeded       = 0x2000 // among what is incompatible
	large        = 0x80   // the same: blocks have 64 bits
	recover      = 4      // the same: the journal is to be replayed
	usual        = 0x242  // the same: files in directories have types, extents, groups together
	journaled    = 4      // among what is compatible
	crc32c       = 1
)

// fits says whether each sector by itself is what an ext4 of the kind that we make has: then only their belonging together was lost.
// What a damaged card has instead is for people to look at.
func fits(r io.ReaderAt, super []byte) error {
	u32 := func(at int) uint32 { return le.Uint32(super[at:]) }
	power, size := u32(superBlockSize), 32
	if u32(superIncompatible)&large != 0 {
		size = int(le.Uint16(super[superGroupSize:]))
	}
	if power > 6 || size < 32 || size > 1024 {
		return fmt.Errorf("blocks of 2^%d KiB, descriptions of %d bytes", power, size)
	}
	block := uint32(1024) << power
	each, inodes, inode := u32(superBlocksEach), u32(superInodesEach), uint32(le.Uint16(super[superInodeSize:]))
	if each != 8*block || inodes == 0 || inodes > 8*block {
		return fmt.Errorf("groups of %d blocks and %d inodes", each, inodes)
	}
	first := u32(superFirstBlock)
	groups := (int64(u32(superBlocks)) - int64(first) + int64(each) - 1) / int64(each)
	switch end := int64(u32(superBlocks)) * int64(block); {
	case first != 0 && power != 0 || first > 1 || inode < 128 || inode > block || inode&(inode-1) != 0 || u32(superFirstInode) != 11:
		return fmt.Errorf("the first block is %d, the first inode %d, and inodes have %d bytes", first, u32(superFirstInode), inode)
	case size > 32 && u32(superBlocksHigh) != 0:
		return errors.New("it has more than 2^32 blocks")
	case groups < 1 || int64(u32(superInodes)) != groups*int64(inodes):
		return fmt.Errorf("%d inodes in %d groups of %d", u32(superInodes), groups, inodes)
	case u32(superCompatible)&journaled == 0 || u32(superJournal) != 8:
		return errors.New("it has no journal, or another's")
	case u32(superIncompatible)&^(large|seeded|recover|usual) != 0:
		return fmt.Errorf("it has what is not known here, %#x", u32(superIncompatible)&^(large|seeded|recover|usual))
	default:
		if _, err := r.ReadAt(make([]byte, 1), end-1); err != nil {
			return fmt.Errorf("it is larger than its partition, or that cannot be read: %w", err)
		}
	}
	return described(r, super, int64(first+1)*int64(block), size)
}

// described says whether the first group of blocks is described as by the file system of this superblock: the checksum of that has
// the identity in it.
func described(r io.ReaderAt, super []byte, at int64, size int) error {
	group := make([]byte, size)
	if _, err := r.ReadAt(group, at); err != nil {
		return fmt.Errorf("read the description of blocks: %w", err)
	}
	seed := le.Uint32(super[superSeed:])
	if le.Uint32(super[superIncompatible:])&seeded == 0 {
		seed = checksum(^uint32(0), super[superIdentity:superIdentity+16])
	}
	const sumAt = 0x1e // its lower half
	have := le.Uint16(group[sumAt:])
	le.PutUint16(group[sumAt:], 0)
	if sum := checksum(checksum(seed, make([]byte, 4)), group); have != uint16(sum) {
		return errors.New("its blocks are another file system's")
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is ext4's: without what others turn over before and after.
func checksum(seed uint32, data []byte) uint32 { return ^crc32.Update(^seed, castagnoli, data) }

// Mend makes an ext4 whole that is not mounted, and says whether it was torn.
func Mend(device string) (mended bool, err error) {
	f, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0) // which a device that is mounted refuses
	if err != nil {
		return false, fmt.Errorf("mend the file system on %s: %w", device, err)
	}
	defer f.Close()
	writes, err := PlanMend(f)
	if err == nil {
		err = apply(f, writes)
	}
	if err != nil {
		return false, fmt.Errorf("mend the file system on %s: %w", device, err)
	}
	return len(writes) > 0, nil
}
