package stats

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is what files take up.
type Disk struct{ Bytes, Inodes int64 }

// DiskUsage counts what stands in some directories, as the file system gives it out: blocks, not lengths, and a file
// with several names once. It stays on each directory's own file system; what is not there counts nothing.
func DiskUsage(dirs ...string) (Disk, error) {
	var out Disk
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	for _, dir := range dirs {
		top, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		own := top.Sys().(*syscall.Stat_t).Dev
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed while we look
			}
			if err != nil {
				return err
			}
			st, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			s := st.Sys().(*syscall.Stat_t)
			if s.Dev != own {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			id := inode{uint64(s.Dev), s.Ino}
			if s.Nlink > 1 && !d.IsDir() {
				if seen[id] {
					return nil
				}
				seen[id] = true
			}
			out.Bytes += s.Blocks * 512
			out.Inodes++
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
