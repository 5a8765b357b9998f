package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// oddSuffix ends the names of what was set aside.
const oddSuffix = ".odd"

// setAside looks for what stands under the name of a file or directory of the store and is none: a FIFO or a device would hang
// whoever opens it, and a directory or a loop of links keeps the store down, with all that can mend it lying beside. It is renamed, and
// what belongs there is missing then, which an opening can deal with. Links to files, and to directories, are left as somebody wants them.
func (c Config) setAside(names ...string) (odd []string, err error) {
	if !c.hadStore() { // what is here is somebody else's
		return nil, nil
	}
	for _, name := range names {
		path := filepath.Join(c.Dir, name)
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && (isPlace(name) && st.IsDir() || !isPlace(name) && st.Mode().IsRegular()):
			continue
		case err != nil && !errors.Is(err, unix.ELOOP):
			return odd, err
		}
		to := path + oddSuffix
		for i := 2; ; i++ {
			if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
				break
			}
			to = path + oddSuffix + strconv.Itoa(i)
		}
		if err := os.Rename(path, to); err != nil {
			return odd, fmt.Errorf("%s is no file, and cannot be set aside: %w; remove it", path, err)
		}
		slog.Error("what stood in the place of a file of the store was none, and was set aside", "path", path, "now", to)
		odd = append(odd, name)
	}
	return odd, nil
}

// hadStore says whether a directory shows traces of a store, whatever has become of them.
func (c Config) hadStore() bool {
	return slices.ContainsFunc([]string{dbName, provisionedName, snapshotDir}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(c.Dir, name))
		return err == nil
	})
}

// isPlace tells the directories of a store from its files.
func isPlace(name string) bool {
	return name == redoDir || name == snapshotDir || name == damagedDir || name == ballastDir
}

// sort sets aside all that is odd; the lock is looked at before it is taken.
func (o *opener) sort() error {
	names := []string{redoDir, snapshotDir, damagedDir, ballastDir, dbName, ceilingName, lineageName, cleanName, provisionedName}
	odd, err := o.cfg.setAside(names...)
	if err != nil {
		return err
	}
	for _, dir := range []string{redoDir, snapshotDir} {
		entries, err := os.ReadDir(o.cfg.path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if e.Type().IsRegular() || filepath.Ext(e.Name()) != redoSuffix && filepath.Ext(e.Name()) != ".db" {
				continue
			}
			if _, err := o.cfg.setAside(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	o.odd = len(odd) > 0
	return nil
}
