package quota

import (
	"os"

	"golang.org/x/sys/unix"
)

// Trial is what ledge doctor says of a directory.
type Trial struct {
	Err    error
	Remedy string
}

// Try says whether directories below one can be held to sizes, and else what to do. It changes nothing.
func Try(dir string) Trial {
	f, err := os.Open(dir)
	if err != nil {
		return Trial{Err: err}
	}
	defer f.Close()
	if err = (Kernel{}).On(f); err == nil {
		return Trial{}
	}
	var st unix.Statfs_t
	if e := unix.Fstatfs(int(f.Fd()), &st); e != nil {
		return Trial{Err: e}
	}
	return Trial{err, remedy(int64(uint32(st.Type)))}
}

func remedy(kind int64) string {
	switch kind {
	case unix.EXT4_SUPER_MAGIC:
		return "while it is not mounted: tune2fs -O quota,project -Q prjquota DEVICE ; then mount it with the option prjquota (/etc/fstab; of a root " +
			"file system: rootflags=prjquota on the kernel's command line)"
	case unix.XFS_SUPER_MAGIC:
		return "mount it with the option prjquota (/etc/fstab; of a root file system: rootflags=prjquota on the kernel's command line)"
	}
	return "put the data directory on ext4 or xfs with the mount option prjquota (--data-dir)"
}
