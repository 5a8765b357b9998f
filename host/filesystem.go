package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Filesystem is the room on one file system.
type Filesystem struct {
	Capacity, Available int64 // bytes; Available to those who are not root
	Inodes, InodesFree  int64 // 0 and 0 where there is no such bound (btrfs)
	Type                int64 // the kernel's magic number
}

// Filesystem reads the one a path is on.
func (h *Host) Filesystem(path string) (Filesystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Filesystem{}, fmt.Errorf("read file system of %s: %w", path, err)
	}
	block := int64(st.Bsize)
	return Filesystem{Capacity: int64(st.Blocks) * block, Available: int64(st.Bavail) * block,
		Inodes: int64(st.Files), InodesFree: int64(st.Ffree), Type: int64(uint32(st.Type))}, nil
}

// NoRoom says that a disk is full: of bytes, of inodes, or of what one user may have. It says nothing else of that disk.
func NoRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Apart says whether two directories are on different file systems (N-6.17).
func Apart(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev != y.Dev
}

const (
	exfatMagic = 0x2011bab0
	ntfsMagic  = 0x5346544e
	ntfs3Magic = 0x7366746e
	vfatMagic  = unix.MSDOS_SUPER_MAGIC
	fuseMagic  = unix.FUSE_SUPER_MAGIC
)

// TypeName is the file system's name; a number for those that boards seldom have.
func (f Filesystem) TypeName() string {
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.F2FS_SUPER_MAGIC: "f2fs", unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
		unix.NFS_SUPER_MAGIC: "nfs", vfatMagic: "vfat", exfatMagic: "exfat", ntfsMagic: "ntfs", ntfs3Magic: "ntfs3",
		unix.SQUASHFS_MAGIC: "squashfs", unix.EROFS_SUPER_MAGIC_V1: "erofs", fuseMagic: "fuse", 0x2fc12fc1: "zfs",
		0xca451a4e: "bcachefs"}
	if n, ok := names[f.Type]; ok {
		return n
	}
	return fmt.Sprintf("type %#x", f.Type)
}

// OverlayCapable tells whether container root file systems can be made with their writable layer in dir. The kernel is
// asked to make one, attached nowhere, so nothing is to be unmounted; what that takes in dir is removed again. The
// error says why not.
func OverlayCapable(dir string) error {
	work, err := os.MkdirTemp(dir, ".ledge-overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open overlayfs: %w", err)
	}
	defer unix.Close(fd)
	for _, key := range []string{"lowerdir", "upperdir", "workdir"} {
		sub := filepath.Join(work, key)
		if err := os.Mkdir(sub, 0o700); err != nil {
			return err
		}
		if err := unix.FsconfigSetString(fd, key, sub); err != nil {
			return fmt.Errorf("set %s of overlayfs: %w", key, err)
		}
	}
	// Without this letting go of it syncs the whole file system below. Kernels before 5.10 do not know it.
	_ = unix.FsconfigSetFlag(fd, "volatile")
	if err := unix.FsconfigCreate(fd); err != nil {
		return fmt.Errorf("make overlayfs: %w", err)
	}
	return nil
}
