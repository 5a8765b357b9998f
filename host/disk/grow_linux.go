package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Grow makes the partition that is mounted at dir as large as its disk lets it be, and the file system (ext4) as large as the
// partition. It may be called at every boot, and goes on where the power was cut. grown is the size if it has changed.
func Grow(dir string) (grown int64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("grow %s: %w", dir, err)
	}
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	here, err := filepath.EvalSymlinks(link)
	if err != nil {
		return 0, fmt.Errorf("grow %s: it is on no disk: %w", dir, err)
	}
	if number, err := readNumber(filepath.Join(here, "partition")); err == nil {
		if err := growPartition(here, int(number)); err != nil && !errors.Is(err, ErrNotLast) {
			return 0, fmt.Errorf("grow the partition of %s: %w", dir, err)
		}
	}
	size, err := readNumber(filepath.Join(here, "size"))
	if err != nil {
		return 0, fmt.Errorf("grow %s: %w", dir, err)
	}
	if grown, err = growFileSystem(dir, node(here), size*512); err != nil {
		return 0, fmt.Errorf("grow the file system of %s: %w", dir, err)
	}
	return grown, nil
}

// node is the device of a directory in /sys.
func node(sys string) string { return "/dev/" + strings.ReplaceAll(filepath.Base(sys), "!", "/") }

func readNumber(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func growPartition(sys string, number int) error {
	disk := filepath.Dir(sys)
	size, err := readNumber(filepath.Join(disk, "size"))
	if err != nil {
		return err
	}
	sector, err := readNumber(filepath.Join(disk, "queue", "logical_block_size"))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(node(disk), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	g, err := PlanGrowth(f, size*512, int(sector), number)
	if err != nil {
		return err
	}
	if err := apply(f, g.Writes); err != nil {
		return err
	}
	// The kernel knows it as it was at the boot.
	if now, err := readNumber(filepath.Join(sys, "size")); err != nil || now*512 >= g.Size {
		return err
	}
	return tellKernel(f, number, g)
}

// file is what apply needs of a disk.
type file interface {
	io.WriterAt
	Sync() error
}

// apply has each write on the disk before the next.
func apply(f file, writes []Write) error {
	for _, w := range writes {
		if _, err := f.WriteAt(w.Data, w.At); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// tellKernel resizes a partition that is in use.
func tellKernel(disk *os.File, number int, g Growth) error {
	part := struct { // struct blkpg_partition
		start, length int64
		number        int32
		names         [128]byte
	}{start: g.Start, length: g.Size, number: int32(number)}
	arg := struct { // struct blkpg_ioctl_arg
		op, flags, length int32
		data              unsafe.Pointer
	}{op: unix.BLKPG_RESIZE_PARTITION, length: int32(unsafe.Sizeof(part)), data: unsafe.Pointer(&part)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		return fmt.Errorf("tell the kernel: %w", errno)
	}
	return nil
}

// growFileSystem grows an ext4 while it is in use. Its journal has the steps: a cut leaves it at one of them.
func growFileSystem(dir, device string, size int64) (grown int64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	if int64(fs.Type) != unix.EXT4_SUPER_MAGIC {
		return 0, errors.New("it is no ext4")
	}
	have, each, err := blocks(device)
	if err != nil {
		return 0, err
	}
	want := size / each
	if have+8*each > want { // less than a group of blocks; the kernel takes no small ones
		return 0, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	const resize = 0x40086610 // EXT4_IOC_RESIZE_FS
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), resize, uintptr(unsafe.Pointer(&want))); errno != 0 {
		return 0, errno
	}
	if have, _, err = blocks(device); err != nil {
		return 0, err
	}
	return have * each, nil
}

// blocks returns the number and the size of an ext4's blocks. A read of the device returns the superblock as the kernel knows it.
func blocks(device string) (n, each int64, err error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var super [superSize]byte
	if _, err := f.ReadAt(super[:], superAt); err != nil {
		return 0, 0, err
	}
	if le.Uint16(super[superMagic:]) != 0xef53 {
		return 0, 0, fmt.Errorf("%s has no ext4", device)
	}
	n = int64(le.Uint32(super[4:]))
	if le.Uint32(super[superIncompatible:])&large != 0 {
		n |= int64(le.Uint32(super[0x150:])) << 32
	}
	return n, 1024 << (le.Uint32(super[superBlockSize:]) & 15), nil
}
