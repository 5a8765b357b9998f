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

// PlanMend says what makes a torn superblock whole. Nil: it is whole, or has no checksum. One that is wrong in more is nobody's to
// change: the first description of a group of blocks has a checksum too, which knows the file system's identity and sizes.
func PlanMend(r io.ReaderAt) (*Write, error) {
	super := make([]byte, superSize)
	if _, err := r.ReadAt(super, superAt); err != nil {
		return nil, fmt.Errorf("read the superblock: %w", err)
	}
	if le.Uint16(super[superMagic:]) != 0xef53 {
		return nil, errors.New("there is no ext4")
	}
	sum := checksum(^uint32(0), super[:superSum])
	if le.Uint32(super[superReadOnly:])&metadataSums == 0 || super[superSumKind] != crc32c || le.Uint32(super[superSum:]) == sum {
		return nil, nil
	}
	if err := fits(r, super); err != nil {
		return nil, fmt.Errorf("the superblock is damaged: %w", err)
	}
	le.PutUint32(super[superSum:], sum)
	const second = 512
	return &Write{At: superAt + second, Data: super[second:]}, nil
}

// Where things are in a superblock.
const (
	superAt, superSize = 1024, 1024
	superFirstBlock    = 0x14
	superBlockSize     = 0x18
	superMagic         = 0x38
	superIncompatible  = 0x60
	superReadOnly      = 0x64
	superIdentity      = 0x68
	superGroupSize     = 0xfe
	superSumKind       = 0x175
	superSeed          = 0x270
	superSum           = 0x3fc

	metadataSums = 0x400  // among what may be read only without it
	seeded       = 0x2000 // among what is incompatible
	large        = 0x80   // the same: blocks have 64 bits
	crc32c       = 1
)

// fits says whether the first group of blocks is described as by the file system of this superblock.
func fits(r io.ReaderAt, super []byte) error {
	power, size := le.Uint32(super[superBlockSize:]), 32
	if le.Uint32(super[superIncompatible:])&large != 0 {
		size = int(le.Uint16(super[superGroupSize:]))
	}
	if power > 6 || size < 32 || size > 1024 {
		return fmt.Errorf("blocks of 2^%d KiB, descriptions of %d bytes", power, size)
	}
	group := make([]byte, size)
	if _, err := r.ReadAt(group, (int64(le.Uint32(super[superFirstBlock:]))+1)*(1024<<power)); err != nil {
		return fmt.Errorf("read the description of blocks: %w", err)
	}
	seed := le.Uint32(super[superSeed:])
	if le.Uint32(super[superIncompatible:])&seeded == 0 {
		seed = checksum(^uint32(0), super[superIdentity:superIdentity+16])
	}
	const at = 0x1e // of the sum's lower half
	have := le.Uint16(group[at:])
	le.PutUint16(group[at:], 0)
	if sum := checksum(checksum(seed, make([]byte, 4)), group); have != uint16(sum) {
		return errors.New("its blocks are another file system's")
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is ext4's: without what others turn over before and after.
func checksum(seed uint32, data []byte) uint32 { return ^crc32.Update(^seed, castagnoli, data) }

// Mend makes the torn superblock of an ext4 that is not mounted whole, and says whether it was.
func Mend(device string) (mended bool, err error) {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return false, fmt.Errorf("mend the superblock of %s: %w", device, err)
	}
	defer f.Close()
	w, err := PlanMend(f)
	if err == nil && w != nil {
		err = apply(f, []Write{*w})
	}
	if err != nil {
		return false, fmt.Errorf("mend the superblock of %s: %w", device, err)
	}
	return w != nil, nil
}
