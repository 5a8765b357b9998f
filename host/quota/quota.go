// Package quota holds a directory to a size (project quotas of ext4 and XFS). The directory has a number, and all in it has the same,
// since new files and directories inherit it. The kernel counts and bounds the bytes and inodes of that number. statfs in such a
// directory tells its bound in place of the disk's, so df in a pod shows the claim.
//
//	On(dir)                  can this file system?
//	Bound(dir, 7, ...)       so much for all that bears 7
//	Mark(dir, 7)             this directory bears 7, and so will all that is made in it
//	Count(dir, 7)            what that has come to
package quota

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the kernel calls it, where golang.org/x/sys has no name.
const (
	fsGetXattr = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit    = 0x200      // FS_XFLAG_PROJINHERIT

	project   = 2                       // PRJQUOTA
	getQuota  = 0x800007<<8 | project   // Q_GETQUOTA
	setQuota  = 0x800008<<8 | project   // Q_SETQUOTA
	getStates = ('X'<<8+5)<<8 | project // Q_XGETQSTAT, which ext4 answers too
	enforced  = 1 << 5                  // FS_QUOTA_PDQ_ENFD
	limits    = 1 | 4                   // QIF_BLIMITS, QIF_ILIMITS
)

// attributes is the kernel's struct fsxattr.
type attributes struct {
	flags, extent, extents, project, cow uint32
	_                                    [8]byte
}

// counted is the kernel's struct if_dqblk. Its bounds of room are in KiB.
type counted struct {
	hardKiB, softKiB, bytes, hardInodes, softInodes, inodes, bytesTime, inodesTime uint64
	valid                                                                          uint32
	_                                                                              uint32
}

// Use is what bears a number, and how much may. A bound of 0 is none.
type Use struct {
	Bytes, MaxBytes   int64
	Inodes, MaxInodes int64
}

// Free says that nothing bears the number, and nothing is meant to.
func (u Use) Free() bool { return u == Use{} }

// Kernel is the one that this program runs on.
type Kernel struct{}

// ErrNone says that a file system holds no directory to a size.
var ErrNone = errors.New("its file system holds no directory to a size")

// On says whether the file system of a directory enforces such bounds; an error, which is ErrNone, says that it does not.
func (Kernel) On(dir *os.File) error {
	var states struct {
		_     int8
		flags uint16
		_     [100]byte
	}
	switch err := control(dir, getStates, 0, unsafe.Pointer(&states)); {
	case err == nil && states.flags&enforced != 0:
		return nil
	case errors.Is(err, unix.ENOSYS) && !known():
		return fmt.Errorf("%w: that takes Linux 5.14", ErrNone)
	}
	return ErrNone
}

// known tells whether the kernel has quotactl_fd: it then has something else than ENOSYS against a bad descriptor.
func known() bool {
	_, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, ^uintptr(0), setQuota, 0, 0, 0, 0)
	return e != unix.ENOSYS
}

func control(dir *os.File, cmd, id uint32, data unsafe.Pointer) error {
	if _, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), uintptr(cmd), uintptr(id), uintptr(data), 0, 0); e != 0 {
		return e
	}
	return nil
}

// Count reads what bears a number.
func (Kernel) Count(dir *os.File, id uint32) (Use, error) {
	var c counted
	err := control(dir, getQuota, id, unsafe.Pointer(&c))
	if errors.Is(err, unix.ENOENT) { // XFS: nothing ever bore it
		return Use{}, nil
	}
	if err != nil {
		return Use{}, fmt.Errorf("count what bears %d on %s: %w", id, dir.Name(), err)
	}
	return Use{int64(c.bytes), int64(c.hardKiB) * 1024, int64(c.inodes), int64(c.hardInodes)}, nil
}

// Bound says how much may bear a number (N-13.11); 0: no bound. What there is already stays.
func (Kernel) Bound(dir *os.File, id uint32, bytes, inodes int64) error {
	c := counted{hardKiB: uint64(bytes+1023) / 1024, hardInodes: uint64(inodes), valid: limits}
	if err := control(dir, setQuota, id, unsafe.Pointer(&c)); err != nil {
		return fmt.Errorf("bound what bears %d on %s: %w", id, dir.Name(), err)
	}
	return nil
}

// Mark gives an empty directory a number, which all inherits that is made in it.
func (Kernel) Mark(dir *os.File, id uint32) error {
	a, err := marks(dir)
	if err != nil {
		return err
	}
	a.project, a.flags = id, a.flags|inherit
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), fsSetXattr, uintptr(unsafe.Pointer(&a))); e != 0 {
		return fmt.Errorf("mark %s with %d: %w", dir.Name(), id, e)
	}
	return nil
}

// Number is the project that new files in a directory belong to; 0: none.
func (Kernel) Number(dir *os.File) uint32 {
	a, err := marks(dir)
	if err != nil || a.flags&inherit == 0 {
		return 0
	}
	return a.project
}

func marks(dir *os.File) (attributes, error) {
	var a attributes
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), fsGetXattr, uintptr(unsafe.Pointer(&a))); e != 0 {
		return a, fmt.Errorf("read the marks of %s: %w", dir.Name(), e)
	}
	return a, nil
}
