package claims

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mounted are the places where a claim is mounted: pods that have it, whether a brain runs or not.
func (s *Shelf) Mounted() (map[string][]string, error) {
	dirs, err := s.Dirs()
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	by := map[fileID]string{}
	for _, d := range dirs {
		if fi, err := os.Lstat(s.Path(d.Name)); err == nil {
			by[idOf(fi)] = d.Name
		}
	}
	places, err := placesOn(s.dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, at := range places {
		fi, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue // unmounted since
		}
		if err != nil {
			return nil, err
		}
		if name, ok := by[idOf(fi)]; ok {
			out[name] = append(out[name], at)
		}
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out, nil
}

type fileID struct{ dev, ino uint64 }

func idOf(fi os.FileInfo) fileID {
	st := fi.Sys().(*syscall.Stat_t)
	return fileID{uint64(st.Dev), st.Ino}
}

// placesOn are the places where something of a directory's file system is mounted. Others are not looked at: one may be a share whose
// server does not answer.
func placesOn(dir string) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, err
	}
	list, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Major != int(unix.Major(st.Dev)) || m.Minor != int(unix.Minor(st.Dev)), false
	})
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(list))
	for _, m := range list {
		out = append(out, m.Mountpoint)
	}
	return out, nil
}
