package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// isMounted says whether something is mounted at a directory itself.
func isMounted(dir string) (bool, error) {
	var own, parent unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &own); err != nil {
		return false, err
	}
	if own.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 { // kernel 5.8
		return own.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	if err := unix.Statx(unix.AT_FDCWD, filepath.Dir(dir), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &parent); err != nil {
		return false, err
	}
	return own.Dev_major != parent.Dev_major || own.Dev_minor != parent.Dev_minor, nil
}

// tmpfs is a file system in memory. Size 0 is the kernel's own bound, half of the memory.
type tmpfs struct {
	mode  uint32
	group *int64
	size  int64
}

// mountTmpfs mounts memory at a directory that it makes, once.
func mountTmpfs(dir string, t tmpfs) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if mounted, err := isMounted(dir); err != nil || mounted {
		return err
	}
	data := fmt.Sprintf("mode=%o", t.mode)
	if t.group != nil {
		data += fmt.Sprintf(",gid=%d", *t.group)
	}
	if t.size > 0 {
		data += fmt.Sprintf(",size=%d", t.size)
	}
	// noswap (Linux 6.4) keeps what is in memory off the card (N-8.14); older kernels refuse the word.
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}

// unmountBelow takes down everything mounted at or below a directory, deepest first, and looks again: nothing may be
// left. Containers with Bidirectional mounts may have left some of their own.
func unmountBelow(dir string) error {
	for try := 0; ; try++ {
		list, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		for _, m := range list {
			if err = unix.Unmount(m, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				err = fmt.Errorf("unmount volume %s: %w", m, err)
				break
			}
			err = nil
		}
		switch {
		case err != nil && try < 3 && errors.Is(err, unix.EBUSY): // somebody looked into it at this moment
			time.Sleep(20 * time.Millisecond)
		case err != nil:
			return err
		case try > 32:
			return fmt.Errorf("unmount volumes below %s: %d mounts are left", dir, len(list))
		}
	}
}

// mountsBelow lists mount points at or below a directory, deepest and latest first.
func mountsBelow(dir string) ([]string, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var out []string
	for _, m := range infos {
		out = append(out, m.Mountpoint)
	}
	slices.Reverse(out) // of two at one place the later hides the earlier
	slices.SortStableFunc(out, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return out, nil
}

// CanKeepOffSwap says whether memory can be mounted so that it never reaches a swap file (Linux 6.4). It asks the
// kernel without mounting anything.
var CanKeepOffSwap = sync.OnceValue(func() bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.FsconfigSetFlag(fd, "noswap") == nil
})
