package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The last block of a transaction in an ext4 journal is a header followed by zeros, and the header has a checksum of
// the block. It is written when the rest of the transaction is on the disk. A power cut during that write can leave
// the new header in front of old bytes. Kernels before 2024, Debian 12's among them, then take the whole journal for
// damaged and never mount it again; later kernels trust the header. The intended block is certain, since the checksum
// proves it.

// Commit is the end of a transaction.
type Commit struct {
	Sequence uint32
	At, Size int64 // in the file system
	Torn     bool
}

// Where things are in a journal, whose numbers have their high bytes first.
const (
	journalMagic     = 0xc03b3998
	journalKind      = 4
	journalSequence  = 8
	journalBlockSize = 0x0c // of its first block, as all the others here
	journalFeatures  = 0x28
	journalIdentity  = 0x30
	journalSumKind   = 0x50
	journalSum       = 0xfc
	journalHead      = 1024 // bytes that journalSum is the checksum of

	kindCommit, kindSuper = 2, 4
	commitSum             = 16
	commitHead            = 512  // a sector, with all there is in it
	journalSums           = 0x18 // second and third version of checksums, among the features

	superCopyKind = 0xfd // 1: the superblock has a copy of where the journal is
	superCopy     = 0x10c
	extentMagic   = 0xf30a
)

// Commits finds the ends of transactions in the journal of an ext4. Without checksums there are none that could be judged.
func Commits(r io.ReaderAt) ([]Commit, error) {
	super := make([]byte, superSize)
	if _, err := r.ReadAt(super, superAt); err != nil {
		return nil, fmt.Errorf("read the superblock: %w", err)
	}
	return commits(r, super)
}

func commits(r io.ReaderAt, super []byte) ([]Commit, error) {
	if err := fits(r, super); err != nil {
		return nil, err
	}
	size := int64(1024) << le.Uint32(super[superBlockSize:])
	runs, err := journalRuns(super)
	if err != nil {
		return nil, fmt.Errorf("where the journal is: %w", err)
	}
	first := make([]byte, journalHead)
	if _, err := r.ReadAt(first, runs[0].at*size); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	be := binary.BigEndian
	sum := be.Uint32(first[journalSum:])
	be.PutUint32(first[journalSum:], 0)
	switch {
	case be.Uint32(first) != journalMagic || be.Uint32(first[journalKind:]) != kindSuper || int64(be.Uint32(first[journalBlockSize:])) != size:
		return nil, errors.New("there is no journal where the superblock says")
	case be.Uint32(first[journalFeatures:])&journalSums == 0:
		return nil, nil
	case first[journalSumKind] != 4 || checksum(^uint32(0), first) != sum: // 4: crc32c
		return nil, errors.New("the journal's first block is damaged")
	}
	seed := checksum(^uint32(0), first[journalIdentity:journalIdentity+16])
	var out []Commit
	block := make([]byte, size)
	for _, run := range runs {
		for n := range run.blocks {
			at := (run.at + n) * size
			if _, err := r.ReadAt(block, at); err != nil {
				return nil, fmt.Errorf("read the journal: %w", err)
			}
			if be.Uint32(block) == journalMagic && be.Uint32(block[journalKind:]) == kindCommit {
				c := Commit{Sequence: be.Uint32(block[journalSequence:]), At: at, Size: size}
				c.Torn = torn(block, seed)
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// torn says that a commit's block would be right if there were nothing behind its head.
func torn(block []byte, seed uint32) bool {
	rest := block[commitHead:]
	if bytes.Equal(rest, make([]byte, len(rest))) {
		return false
	}
	meant := make([]byte, len(block))
	copy(meant, block[:commitHead])
	sum := binary.BigEndian.Uint32(meant[commitSum:])
	clear(meant[commitSum : commitSum+4])
	return checksum(seed, meant) == sum
}

// run is blocks behind one another.
type run struct{ at, blocks int64 }

// journalRuns reads the superblock's copy of where its journal is.
func journalRuns(super []byte) (runs []run, err error) {
	tree := super[superCopy : superCopy+60]
	entries := int(le.Uint16(tree[2:]))
	if super[superCopyKind] != 1 || le.Uint16(tree) != extentMagic || le.Uint16(tree[6:]) != 0 || entries < 1 || entries > 4 {
		return nil, errors.New("it is not where mke2fs puts it")
	}
	for e := tree[12:]; len(runs) < entries; e = e[12:] {
		count := int64(le.Uint16(e[4:]))
		at := int64(le.Uint16(e[6:]))<<32 | int64(le.Uint32(e[8:]))
		if count == 0 || count > 1<<15 || at == 0 {
			return nil, fmt.Errorf("%d blocks from %d on", count, at)
		}
		runs = append(runs, run{at, count})
	}
	return runs, nil
}
