package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/host/quota"
	"ledge/internal/durable"
)

// played are sizes of a kernel without quotas. A directory is known by its inode, as by the mark on it.
type played struct {
	off     bool
	mu      sync.Mutex
	numbers map[uint64]uint32
	uses    map[uint32]quota.Use
}

func newPlayed() *played { return &played{numbers: map[uint64]uint32{}, uses: map[uint32]quota.Use{}} }

func inode(f *os.File) uint64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		panic(err)
	}
	return st.Ino
}

func (p *played) On(*os.File) error {
	if p.off {
		return quota.ErrNone
	}
	return nil
}

func (p *played) Count(_ *os.File, id uint32) (quota.Use, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uses[id], nil
}

func (p *played) Bound(_ *os.File, id uint32, bytes, inodes int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uses[id] = quota.Use{MaxBytes: bytes, MaxInodes: inodes}
	return nil
}

func (p *played) Mark(f *os.File, id uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.numbers[inode(f)] = id
	return nil
}

func (p *played) Number(f *os.File) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.numbers[inode(f)]
}

func aShelf(t *testing.T) (*Shelf, *played) {
	t.Helper()
	sizes := newPlayed()
	return NewShelf(filepath.Join(t.TempDir(), "claims"), sizes), sizes
}

// lies is what is on a shelf, in words.
func lies(t *testing.T, s *Shelf) string {
	t.Helper()
	list, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// TestShelf: a directory is made, grows, and is removed; its number is its own, and given back.
func TestShelf(t *testing.T) {
	s, sizes := aShelf(t)
	if err := errors.Join(s.Make("one", 10*mib), s.Make("two", mib), s.Make("one", 20*mib)); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(s.Path("one")); err != nil || st.Mode().Perm() != 0o777 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	numbers := slices.Sorted(maps.Values(sizes.numbers))
	if !slices.Equal(numbers, []uint32{firstNumber, firstNumber + 1}) {
		t.Errorf("numbers %x", numbers)
	}
	if u, ok := s.Use("one"); !ok || u.MaxBytes != 20*mib || u.MaxInodes != 4096 {
		t.Errorf("%+v %v", u, ok)
	}
	if u, ok := s.Use("none"); ok {
		t.Errorf("%+v", u)
	}
	if err := os.WriteFile(filepath.Join(s.Path("one"), "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dirs, err := s.Dirs()
	if err != nil || len(dirs) != 2 || dirs[0].Empty || !dirs[1].Empty || dirs[0].Limit != 20*mib {
		t.Errorf("%+v %v", dirs, err)
	}
	if err := errors.Join(s.Keep("two"), s.Remove("one")); err != nil {
		t.Fatal(err)
	}
	if got := lies(t, s); got != ".gone-one .kept-two two" {
		t.Error(got)
	}
	if dirs, err := s.Dirs(); err != nil || len(dirs) != 2 || !dirs[0].Gone || dirs[0].Name != "one" || !dirs[1].Kept {
		t.Errorf("%+v %v", dirs, err)
	}
	if err := s.Sweep(gonePrefix); err != nil || lies(t, s) != ".kept-two two" || !sizes.uses[firstNumber].Free() {
		t.Errorf("%v %s %+v", err, lies(t, s), sizes.uses)
	}
	if err := errors.Join(s.Remove("two"), s.Sweep(gonePrefix)); err != nil || lies(t, s) != "" {
		t.Errorf("%v %s", err, lies(t, s))
	}
	sizes.off = true
	if err := s.Make("three", mib); err != nil || s.CanSize() == nil {
		t.Error(err)
	}
	if dirs, err := s.Dirs(); err != nil || len(dirs) != 1 || dirs[0].Sized {
		t.Errorf("%+v %v", dirs, err)
	}
}

// TestNumbersOfOthers: one that another data directory on the disk has given away, or whose files are still open, is not taken.
func TestNumbersOfOthers(t *testing.T) {
	s, sizes := aShelf(t)
	sizes.uses[firstNumber], sizes.uses[firstNumber+1] = quota.Use{MaxBytes: 1}, quota.Use{Inodes: 1}
	if err := s.Make("one", mib); err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(maps.Values(sizes.numbers)); len(got) != 1 || got[0] != firstNumber+2 {
		t.Errorf("%x", got)
	}
}

// TestInItsPlace: what is no directory is not taken for one, and what it leads to is not touched.
func TestInItsPlace(t *testing.T) {
	s, _ := aShelf(t)
	elsewhere := t.TempDir()
	if err := errors.Join(s.build(), os.WriteFile(filepath.Join(elsewhere, "f"), nil, 0o600), os.Symlink(elsewhere, s.Path("link")),
		os.Symlink(elsewhere, s.Path(newPrefix+"half")), os.Symlink(elsewhere, s.Path(gonePrefix+"old")),
		os.WriteFile(s.Path("file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "file"} {
		for _, err := range []error{s.Make(name, mib), s.Resize(name, mib), s.Remove(name)} {
			if err == nil || !strings.Contains(err.Error(), "is no directory") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := errors.Join(s.Sweep(newPrefix), s.Sweep(gonePrefix)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "f")); err != nil {
		t.Error(err)
	}
	if got := lies(t, s); got != "file link" {
		t.Error(got)
	}
	if dirs, err := s.Dirs(); err != nil || len(dirs) != 2 || dirs[0].Empty || dirs[1].Empty {
		t.Errorf("%+v %v", dirs, err)
	}
}

// TestCutsOfAShelf: wherever a power cut falls, there is the directory or there is not, and the next start sees which.
func TestCutsOfAShelf(t *testing.T) { // N-13.10
	cut := errors.New("cut")
	for step := range 14 {
		s, sizes := aShelf(t)
		n := 0
		s.Disk = durable.Disk{Before: func(string, string) error {
			if n++; n > step {
				return cut
			}
			return nil
		}}
		err := errors.Join(s.Make("one", mib), s.Keep("one"))
		if err == nil {
			err = errors.Join(s.Remove("one"), s.Sweep(gonePrefix))
		}
		s.Disk = durable.Disk{}
		if err := errors.Join(s.Sweep(newPrefix), s.Sweep(gonePrefix)); err != nil {
			t.Fatal(err)
		}
		dirs, derr := s.Dirs()
		if derr != nil || len(dirs) > 1 || len(dirs) == 1 && (!dirs[0].Sized || dirs[0].Gone) {
			t.Errorf("step %d: %+v %v, after %v", step, dirs, derr, err)
		}
		if len(dirs) == 0 {
			for id, u := range sizes.uses {
				if !u.Free() {
					t.Errorf("step %d: number %x is still bound: %+v", step, id, u)
				}
			}
			if got := lies(t, s); got != "" {
				t.Errorf("step %d: left %s", step, got)
			}
		}
	}
}

// TestMountsStay: what stands in a directory is not emptied.
func TestMountsStay(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s, _ := aShelf(t)
	elsewhere := t.TempDir()
	at := filepath.Join(s.Path("one"), "in it")
	if err := errors.Join(s.Make("one", mib), os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(elsewhere, "f"), nil, 0o600),
		unix.Mount(elsewhere, at, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(s.Path(gonePrefix+"one")+"/in it", 0) }()
	if err := errors.Join(s.Remove("one"), s.Sweep(gonePrefix)); err == nil || !strings.Contains(fmt.Sprint(err), "unmount it") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "f")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(unix.Unmount(s.Path(gonePrefix+"one")+"/in it", 0), s.Sweep(gonePrefix)); err != nil || lies(t, s) != "" {
		t.Errorf("%v %s", err, lies(t, s))
	}
}
