package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ledge/firstboot"
	"ledge/host/disk"
)

// copyCard writes an image onto a card of that size.
func copyCard(ctx context.Context, image, card string, size int64) error {
	if out, err := command(ctx, "cp", "--sparse=always", image, card).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the image: %w: %s", err, out)
	}
	return os.Truncate(card, size)
}

// fresh is a card with the image on it that no board has seen; it is larger than the image, and by no round number.
func (s *flashing) fresh(ctx context.Context) (card string, err error) {
	card = filepath.Join(s.work, "card.img")
	st, err := os.Stat(s.image)
	if err != nil {
		return "", err
	}
	size := st.Size()
	if s.firmware != "pi" { // QEMU's wants a power of two, which the image has
		size += 256<<20 + 3*512
	}
	if err := copyCard(ctx, s.image, card, size); err != nil {
		return "", err
	}
	if s.key == "" {
		return card, nil
	}
	return card, errors.Join(os.RemoveAll(s.key+".known"), os.RemoveAll(s.key+".machine")) // what was known of another machine
}

// inspectCard looks at a card as a laptop would. The card names no mistakes but the known ones, and its last partition reaches to its end.
// After an orderly end (off) the file system there is whole and needs no repair.
func inspectCard(ctx context.Context, card string, off bool, known ...string) error {
	if out, err := command(ctx, "mcopy", "-n", "-i", card+"@@1M", "::/ledge-errors.txt", "-").Output(); err == nil &&
		!slices.Equal(firstboot.Reported(out), known) {
		return fmt.Errorf("it says: %s", out)
	}
	if out, err := command(ctx, "mcopy", "-n", "-i", card+"@@1M", "::/ledge.yaml", "-").Output(); err == nil && strings.Contains(string(out),
		pagePassword) {
		return fmt.Errorf("the password of its page can be read: %s", out)
	}
	f, err := os.Open(card)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	start, end, err := lastPartition(f)
	if err != nil {
		return err
	}
	super := make([]byte, 1024)
	if _, err := f.ReadAt(super, start+1024); err != nil {
		return err
	}
	if err := grown(super, start, end, st.Size()); err != nil || !off {
		return err
	}
	if state := binary.LittleEndian.Uint32(super[96:]); state&4 != 0 { // INCOMPAT_RECOVER
		return errors.New("the data partition's journal is to be replayed")
	}
	out, err := command(ctx, "e2fsck", "-fn", fmt.Sprintf("%s?offset=%d", card, start)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("the data partition: %w: %s", err, out)
	}
	return nil
}

// lastPartition is where the last entry of a card's old partition table says that it begins and ends, in bytes.
func lastPartition(card io.ReaderAt) (start, end int64, err error) {
	first := make([]byte, 512)
	if _, err := card.ReadAt(first, 0); err != nil {
		return 0, 0, err
	}
	for at := 446; at < 446+4*16; at += 16 {
		from, count := int64(binary.LittleEndian.Uint32(first[at+8:])), int64(binary.LittleEndian.Uint32(first[at+12:]))
		if count > 0 {
			start, end = from*512, (from+count)*512
		}
	}
	return start, end, nil
}

// grown checks that a partition reaches to the end of its card, and the ext4 in it to the end of the partition. ext4 leaves out a last
// block group that would be too small.
func grown(super []byte, start, end, card int64) error {
	if magic := binary.LittleEndian.Uint16(super[56:]); magic != 0xef53 {
		return fmt.Errorf("no ext4 is in the last partition, at byte %d", start)
	}
	blocks := int64(binary.LittleEndian.Uint32(super[4:])) << (10 + binary.LittleEndian.Uint32(super[24:]))
	if end < card-2<<20 || end > card || blocks > end-start || blocks < (end-start)*9/10 {
		return fmt.Errorf("the data partition goes from %d to %d on a card of %d bytes, and its file system has %d of these", start, end, card,
			blocks)
	}
	return nil
}

// tear makes the data partition look as if the power had gone in the middle of a write of the superblock, so that its checksum is wrong,
// and in the middle of the journal's last transaction.
func tear(card string, start int64) error {
	if err := tearJournal(card, start); err != nil {
		return err
	}
	f, err := os.OpenFile(card, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const sum = 1024 + 0x3fc
	old := make([]byte, 4)
	if _, err := f.ReadAt(old, start+sum); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(old, ^binary.LittleEndian.Uint32(old))
	_, err = f.WriteAt(old, start+sum)
	return errors.Join(err, f.Sync())
}

// tearJournal makes the last block of the journal's last transaction look half written: behind its head stands what was there before.
func tearJournal(card string, start int64) error {
	f, err := os.OpenFile(card, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	commits, err := disk.Commits(io.NewSectionReader(f, start, 1<<62))
	if err != nil || len(commits) == 0 {
		return err
	}
	last := slices.MaxFunc(commits, func(a, b disk.Commit) int { return int(int32(a.Sequence - b.Sequence)) })
	fmt.Println("vm: torn: transaction", last.Sequence)
	_, err = f.WriteAt(bytes.Repeat([]byte("before. "), int(last.Size-512)/8), start+last.At+512)
	return errors.Join(err, f.Sync())
}

// tearLast is tear for the last partition of an old partition table.
func tearLast(card string) error {
	f, err := os.Open(card)
	if err != nil {
		return err
	}
	start, _, err := lastPartition(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return tear(card, start)
}
