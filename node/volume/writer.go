package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A volume of files is replaced in one step, as Kubernetes does it, so that a container never sees part of an update.
// The container opens links that lead through one link, and an update renames a new link over that one:
//
//	config.yaml     -> ..data/config.yaml
//	..data          -> ..2026_11_21_20_00_00.123456789
//	..2026_11_21_20_00_00.123456789/config.yaml
const (
	dataLink = "..data"
	tmpLink  = "..data_tmp"
)

// ownership is who a volume's files belong to.
type ownership struct {
	user  *int64 // of files marked Own
	group *int64 // fsGroup
}

// writeFiles makes a directory hold exactly these files, beside mount points. What it holds already is left alone: written says
// whether anything was done. Everything happens below the directory, whatever links stand in it (os.Root).
func writeFiles(dir string, files Files, points map[string]bool, own ownership, now time.Time) (written bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	old, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if old != "" && holds(root, old, files, points) {
		return false, errors.Join(linkAll(root, files, points), removeOthers(root, old, files, points)) // a crash may have come between
	}
	version := now.UTC().Format("..2006_01_02_15_04_05.000000000")
	if err := writeVersion(root, version, files, own); err != nil {
		return false, errors.Join(err, root.RemoveAll(version))
	}
	if err := root.RemoveAll(tmpLink); err != nil {
		return false, err
	}
	if err := root.Symlink(version, tmpLink); err != nil {
		return false, err
	}
	if err := root.Rename(tmpLink, dataLink); err != nil {
		return false, err
	}
	return true, errors.Join(linkAll(root, files, points), removeOthers(root, version, files, points))
}

// holds says whether a version has exactly these contents.
func holds(root *os.Root, version string, files Files, points map[string]bool) bool {
	n := 0
	err := fs.WalkDir(root.FS(), version, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(p, version+"/")
		want, ok := files[name]
		switch {
		case !ok && points[name]:
			return nil
		case !ok:
			return fs.ErrNotExist
		}
		have, err := root.ReadFile(p)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, want.Data) {
			return fs.ErrInvalid
		}
		n++
		return nil
	})
	return err == nil && n == len(files)
}

func writeVersion(root *os.Root, version string, files Files, own ownership) error {
	if err := root.Mkdir(version, 0o755); err != nil {
		return err
	}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		name := path.Join(version, p)
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(name, files[p].Data, 0o600); err != nil {
			return err
		}
	}
	return fs.WalkDir(root.FS(), version, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return give(root, p, d.IsDir(), files[strings.TrimPrefix(p, version+"/")], own)
	})
}

// give gives a file or directory its owner and mode. A pod's fsGroup may read whatever there is, and new files in
// its directories are the group's too.
func give(root *os.Root, p string, isDir bool, f File, own ownership) error {
	uid, gid := -1, -1
	if own.user != nil && f.Own {
		uid = int(*own.user)
	}
	if own.group != nil {
		gid = int(*own.group)
	}
	if uid >= 0 || gid >= 0 {
		if err := root.Chown(p, uid, gid); err != nil {
			return err
		}
	}
	mode := fs.FileMode(f.Mode & 0o777)
	switch {
	case isDir:
		mode = 0o755
	case f.Own && (own.user != nil || own.group != nil):
		mode = 0o600
	}
	if own.group != nil {
		mode |= 0o440
		if isDir {
			mode |= fs.ModeSetgid | 0o110
		}
	}
	return root.Chmod(p, mode) // after the owner, whose change clears bits
}

// linkAll makes the names that users see.
func linkAll(root *os.Root, files Files, points map[string]bool) error {
	mounted := topNames(points)
	for name := range topNames(files) {
		want := path.Join(dataLink, name)
		if got, err := root.Readlink(name); err == nil && got == want {
			continue
		}
		if st, err := root.Lstat(name); err == nil && mounted[name] && st.Mode()&fs.ModeSymlink == 0 {
			continue // made to be mounted on before there was a file of this name
		}
		if err := root.RemoveAll(name); err != nil {
			return err
		}
		if err := root.Symlink(want, name); err != nil {
			return err
		}
	}
	return nil
}

func topNames[T any](paths map[string]T) map[string]bool {
	out := map[string]bool{}
	for p := range paths {
		top, _, _ := strings.Cut(p, "/")
		out[top] = true
	}
	return out
}

// removeOthers takes away the names that have gone and every other version.
func removeOthers(root *os.Root, version string, files Files, points map[string]bool) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	keep, mounted := topNames(files), topNames(points)
	keep[version], keep[dataLink] = true, true
	var errs []error
	for _, e := range entries {
		if !keep[e.Name()] && (!mounted[e.Name()] || e.Type()&fs.ModeSymlink != 0) {
			errs = append(errs, root.RemoveAll(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// writeError says which volume could not be written, without the board's own paths.
func writeError(dir string, err error) error {
	return fmt.Errorf("write files: %s", strings.ReplaceAll(err.Error(), filepath.Dir(dir)+"/", ""))
}
