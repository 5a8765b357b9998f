package claims

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Aside is what a restore has put out of the way of a claim.
type Aside struct {
	Name  string
	Bytes int64
	More  bool // it has more files than were counted
}

// mostCounted is how many files are looked at to weigh what is aside.
const mostCounted = 100_000

// Aside are those there are. Of so many files that it would take long, only some are counted.
func (s *Shelf) Aside() ([]Aside, error) {
	list, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Aside
	left := mostCounted
	for _, e := range list {
		if strings.HasPrefix(e.Name(), oldPrefix) {
			a := Aside{Name: e.Name()}
			if err := s.weigh(&a, &left); err != nil {
				return nil, err
			}
			out = append(out, a)
		}
	}
	return out, nil
}

// weigh counts what a directory takes up. The kernel knows, if the directory has a number; a file with several names counts once.
func (s *Shelf) weigh(a *Aside, left *int) error {
	if u, ok := s.Use(a.Name); ok {
		a.Bytes = u.Bytes
		return nil
	}
	seen := map[uint64]bool{}
	return filepath.WalkDir(s.Path(a.Name), func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody removes it
		}
		if err != nil {
			return err
		}
		if *left == 0 {
			a.More = true
			return fs.SkipAll
		}
		*left--
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		if st.Nlink > 1 && !d.IsDir() {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		a.Bytes += st.Blocks * 512
		return nil
	})
}
