package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"ledge/brain/place"
	"ledge/node/volume"
)

// mountsBelow lists what is mounted below a directory and whatever stands behind a link there, the latest first: it may hide an
// earlier one.
func mountsBelow(dir string) (points []string, err error) {
	if dir == "" {
		return nil, nil
	}
	real, err := filepath.EvalSymlinks(dir) // the kernel knows no other
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, real+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range infos {
		points = append(points, m.Mountpoint)
	}
	slices.Reverse(points)
	return points, nil
}

// unmountBelow takes down everything that is mounted below a directory, innermost first, and looks again: nothing may be left. What the
// board has mounted elsewhere stays, also where its directory was shown to pods.
func unmountBelow(dir string) error {
	for try := 0; ; try++ {
		points, err := mountsBelow(dir)
		if err != nil || len(points) == 0 {
			return err
		}
		if err := volume.KeepApart(points...); err != nil {
			return err
		}
		failed := fmt.Errorf("%s stays mounted; unmount it (umount), then reset again", points[0])
		gone := 0
		for _, at := range points {
			switch err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW); {
			case err == nil:
				gone++
			case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT): // those say that it is no mount any more
				failed = fmt.Errorf("unmount %s: %w; see who uses it (fuser -m), then reset again", at, err)
			}
		}
		if gone == 0 && try >= 10 || try >= 100 {
			return failed
		}
		if gone == 0 { // somebody may look into it at this moment
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// removeDir removes what is in a directory, its marks last, and then the directory. What is mounted in it would lose its files, the
// host's own among them: while there is any, nothing is touched.
func removeDir(dir string, marks []string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("%s stays as it is: %s is mounted in it", dir, points[0])
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return rank(a.Name(), marks) - rank(b.Name(), marks) })
	for _, e := range entries {
		if e.Name() == place.LostAndFound {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	// It may be systemd's, or a mount point; behind a link somebody has made it, and wants it.
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		if err := os.Remove(dir); err != nil {
			slog.Debug("the directory stays", "dir", dir, "err", err)
		}
	}
	return nil
}

// rank is higher for what is removed later: the first mark last of all.
func rank(name string, marks []string) int {
	for i, mark := range marks {
		if first, _, _ := strings.Cut(mark, "/"); first == name {
			return len(marks) - i
		}
	}
	return 0
}
