package volume

import (
	"cmp"
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

// unmountEach takes down what is mounted at some places. False: something is left.
func unmountEach(places []string) bool {
	for _, at := range places {
		var err error
		for err == nil {
			err = unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
		}
		switch mounted, merr := isMounted(at); {
		case errors.Is(merr, fs.ErrNotExist):
		case merr != nil || mounted || !errors.Is(err, unix.EINVAL): // EINVAL: nothing is mounted there
			return false
		}
	}
	return true
}

// unmountBelow takes down everything mounted at or below directories, those of the first one first and in each the deepest,
// and looks again: nothing may be left. Containers with Bidirectional mounts may have left some of their own.
func unmountBelow(dirs ...string) error {
	for try := 0; ; try++ {
		list, err := mountsBelow(dirs...)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		if err := KeepApart(dirs...); err != nil {
			return err
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
			return fmt.Errorf("unmount volumes below %s: %d mounts are left", strings.Join(dirs, ", "), len(list))
		}
	}
}

// KeepApart sees to it that what is unmounted at and below directories is unmounted there only: the kernel repeats it in all peers of the
// mount that it stands on, and a volume's peer is the board's own. Shares nobody looks at, and nothing else has a part in them.
func KeepApart(dirs ...string) error {
	list, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(dirs, func(dir string) bool { return m.Mountpoint == dir || strings.HasPrefix(m.Mountpoint, dir+"/") }), false
	})
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	carries := map[int]bool{}
	for _, m := range list {
		carries[m.Parent] = true
	}
	for _, m := range list {
		if !carries[m.ID] || !strings.Contains(m.Optional, "shared:") || strings.HasPrefix(m.FSType, "nfs") {
			continue
		}
		err := unix.Mount("", m.Mountpoint, "", unix.MS_PRIVATE, "")
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // those say that it has gone
			return fmt.Errorf("keep what happens in %s from the board: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// mountsBelow lists mount points at or below directories, by directory and in each deepest and latest first. The kernel's list
// is long where there are many pods, and holds up whoever mounts: it is read once for all.
func mountsBelow(dirs ...string) ([]string, error) {
	dirs = slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		_, err := os.Lstat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(dirs) == 0 {
		return nil, nil
	}
	under := func(m *mountinfo.Info) int {
		return slices.IndexFunc(dirs, func(dir string) bool { return m.Mountpoint == dir || strings.HasPrefix(m.Mountpoint, dir+"/") })
	}
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return under(m) < 0, false })
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	slices.Reverse(infos) // of two at one place the later hides the earlier
	slices.SortStableFunc(infos, func(a, b *mountinfo.Info) int {
		return cmp.Or(cmp.Compare(under(a), under(b)), strings.Count(b.Mountpoint, "/")-strings.Count(a.Mountpoint, "/"))
	})
	var out []string
	for _, m := range infos {
		out = append(out, m.Mountpoint)
	}
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
