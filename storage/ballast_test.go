package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/api"
)

// fill takes every byte, and then every inode, that is left in a directory's file system, and gives a function that gives
// them back.
func fill(t *testing.T, dir string, bytes bool) (undo func()) {
	t.Helper()
	at := filepath.Join(dir, "filler")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil; i++ {
		var f *os.File
		if f, err = os.Create(filepath.Join(at, strconv.Itoa(i))); err != nil {
			break
		}
		for size := 1 << 20; bytes && size >= 512; {
			if _, werr := f.Write(make([]byte, size)); werr != nil {
				size /= 2
				err = werr
			}
		}
		if bytes {
			err = errors.Join(err, f.Sync())
		}
		err = errors.Join(err, f.Close())
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
	}
}

func pieces(s *Store) int {
	list, err := os.ReadDir(s.cfg.path(ballastDir))
	if err != nil {
		return -1
	}
	return len(list)
}

// TestBallast: with no byte, or no inode, left the store takes writes, goes on logging them, comes up again, has lost
// nothing, and keeps space again when there is some.
func TestBallast(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for what, bytes := range map[string]bool{"bytes": true, "inodes": false} {
		t.Run(what, func(t *testing.T) {
			disk := loopFS(t, 96<<20, "-N", "512")
			cfg := Config{Dir: filepath.Join(disk, "data")}
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { s.Close() }()
			if n := pieces(s); n != ballastPieces {
				t.Fatalf("%d pieces of ballast", n)
			}
			undo := fill(t, disk, bytes)
			acknowledged := 0
			write := func() {
				t.Helper()
				for range 30 {
					name := "c" + strconv.Itoa(acknowledged)
					if err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm(name, strings.Repeat(name, 1000))) }); err != nil {
						t.Fatalf("after %d: %v", acknowledged, err)
					}
					acknowledged++
				}
				if s.log.err != nil {
					t.Errorf("the log has ended: %v", s.log.err)
				}
			}
			write()
			s.ceiling.at = s.Revision() // the next write needs a new file
			write()
			if n := pieces(s); n <= 0 || n == ballastPieces {
				t.Errorf("%d pieces are left", n)
			}
			if err := s.takeIn(); err != nil || pieces(s) == ballastPieces {
				t.Errorf("space was taken that is not there: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if s, err = Open(t.Context(), cfg); err != nil { // the brain has been started again
				t.Fatal(err)
			}
			s.ceiling.at = s.Revision()
			write()
			for i := range acknowledged {
				if name := "c" + strconv.Itoa(i); value(t, s, name) != strings.Repeat(name, 1000) {
					t.Errorf("%s is lost", name)
				}
			}
			if err := s.condition.failure(); err != nil {
				t.Error(err)
			}
			undo()
			if err := s.takeIn(); err != nil || pieces(s) != ballastPieces {
				t.Errorf("%d pieces when there is space again: %v", pieces(s), err)
			}
		})
	}
}

// TestBallastIsSpent: when all of it is gone, a write says what is wrong, and the store is as it was.
func TestBallastIsSpent(t *testing.T) {
	s := open(t, t.TempDir())
	n := 0
	err := s.ballast.with(func() error {
		n++
		return fmt.Errorf("write: %w", unix.ENOSPC)
	})
	if !errors.Is(err, unix.ENOSPC) || n != 1+ballastPieces || pieces(s) != 0 || !s.ballast.light.Load() {
		t.Errorf("tried %d times, %d pieces left, %v", n, pieces(s), err)
	}
	if err := s.ballast.with(func() error { return unix.EIO }); !errors.Is(err, unix.EIO) || pieces(s) != 0 {
		t.Errorf("%v", err)
	}
	if err := s.takeIn(); err != nil || pieces(s) != ballastPieces {
		t.Errorf("%d pieces, %v", pieces(s), err)
	}
	s.condition.fail(unix.ENOSPC) // a sync has failed: no space makes that good
	if err := s.ballast.with(func() error { return unix.ENOSPC }); err == nil || pieces(s) != ballastPieces {
		t.Errorf("%v, %d pieces", err, pieces(s))
	}
}

// TestBallastOnSmallDisk: it is not what fills a disk that has hardly any space.
func TestBallastOnSmallDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s, err := Open(t.Context(), Config{Dir: filepath.Join(loopFS(t, 16<<20), "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := pieces(s); n != 0 {
		t.Errorf("%d pieces", n)
	}
}
