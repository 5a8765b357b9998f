package claims

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"ledge/host/quota"
	"ledge/internal/durable"
)

// Sizes hold directories to a size: host/quota, or what a test plays.
type Sizes interface {
	On(dir *os.File) error
	Count(dir *os.File, id uint32) (quota.Use, error)
	Bound(dir *os.File, id uint32, bytes, inodes int64) error
	Mark(dir *os.File, id uint32) error
	Number(dir *os.File) uint32
}

// Dir is a directory of a volume as it lies on the card.
type Dir struct {
	Name   string
	Gone   bool  // it is being removed
	Kept   bool  // its volume was let go, its data is to stay
	Empty  bool  // nothing was ever written there, or all was removed
	Sized  bool  // the file system holds it to Limit
	Limit  int64 // bytes
	number uint32
}

// Shelf is where the directories of volumes lie:
//
//	claims/<volume>            what a pod sees
//	claims/.new-<volume>       one that is not whole yet
//	claims/.gone-<volume>      one that is being removed
//	claims/.kept-<volume>      an empty file: nobody removes <volume>
//	claims/.restoring          a file: a restore was cut
//	claims/.old-<volume>-TIME  what a restore has put aside; a person removes it, nobody else
//
// A name of a volume does not begin with a dot. Whether the name is one, who calls has looked.
type Shelf struct {
	dir   string
	sizes Sizes
	Disk  durable.Disk // the zero value is what a board uses

	stands func() error // why nothing can be made now; nil: something always can
	most   int          // things below dir; 0: any number
}

const (
	newPrefix  = ".new-"
	gonePrefix = ".gone-"
	keptPrefix = ".kept-"
	oldPrefix  = ".old-"
)

// firstNumber is far from those that people give.
const firstNumber = 0x4c000000

// NewShelf has its directories below one that is made when the first of them is. No sizes: the kernel's.
func NewShelf(dir string, sizes Sizes) *Shelf {
	if sizes == nil {
		sizes = quota.Kernel{}
	}
	return &Shelf{dir: dir, sizes: sizes}
}

// build makes the place of all directories, durably.
func (s *Shelf) build() error {
	if s.stands != nil {
		if err := s.stands(); err != nil {
			return err
		}
	}
	err := os.Mkdir(s.dir, 0o711)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Disk.SyncDir(filepath.Dir(s.dir))
}

// Path is that of a volume.
func (s *Shelf) Path(name string) string { return filepath.Join(s.dir, name) }

// Room is how many bytes the whole disk has.
func (s *Shelf) Room() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(s.dir), &st); err != nil {
		return 0, fmt.Errorf("read the file system of %s: %w", s.dir, err)
	}
	return int64(st.Blocks) * int64(st.Bsize), nil
}

// CanSize says whether the disk holds claims to their sizes; the error says why not.
func (s *Shelf) CanSize() error {
	top, err := os.Open(filepath.Dir(s.dir))
	if err != nil {
		return err
	}
	defer top.Close()
	return s.sizes.On(top)
}

// open opens a directory itself: a link in its place is refused.
func (s *Shelf) open(name string) (*os.File, error) {
	f, err := os.OpenFile(s.Path(name), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is no directory: somebody put something else in its place, move it away", s.Path(name))
	}
	return f, err
}

// mostEntries is more than the volumes of a board, with what is being removed and what is kept, ever have on a disk. A stranger's disk
// may have any number.
const mostEntries = 4096

// entries are the names of what lies there, in their order.
func (s *Shelf) entries() ([]string, error) {
	f, err := os.Open(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	for {
		names, err := f.Readdirnames(512)
		if out = append(out, names...); s.most > 0 && len(out) > s.most {
			return nil, fmt.Errorf("there is too much in %s: more than %d things; move it away", s.dir, s.most)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(out)
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// dropHalves gives what a power cut left half-made to those that sweep, whoever makes something meanwhile. A name that is taken stays
// until the next time.
func (s *Shelf) dropHalves() error {
	list, err := s.entries()
	if err != nil {
		return err
	}
	for _, name := range list {
		if strings.HasPrefix(name, newPrefix) {
			err := s.Disk.Move(s.Path(name), s.Path(gonePrefix+name))
			if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
				return fmt.Errorf("put aside what is half-made: %w", err)
			}
		}
	}
	return nil
}

// Dirs are the directories there are. What a cut left half-made is not among them, and goes by Sweep.
func (s *Shelf) Dirs() ([]Dir, error) {
	list, err := s.entries()
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	sized := s.CanSize() == nil
	kept := map[string]bool{}
	for _, e := range list {
		if name, ok := strings.CutPrefix(e, keptPrefix); ok {
			kept[name] = true
		}
	}
	var out []Dir
	for _, e := range list {
		name, gone := strings.CutPrefix(e, gonePrefix)
		if !gone && strings.HasPrefix(name, ".") {
			continue
		}
		d := Dir{Name: name, Gone: gone, Kept: kept[name]}
		if err := s.look(&d, e, sized); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (s *Shelf) look(d *Dir, entry string, sized bool) error {
	f, err := s.open(entry)
	if err != nil {
		return nil //nolint:nilerr // what is no directory has no size, and counts as full
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	d.Empty = errors.Is(err, io.EOF)
	if d.number = s.sizes.Number(f); sized && d.number != 0 {
		u, err := s.sizes.Count(f, d.number)
		if err != nil {
			return err
		}
		d.Sized, d.Limit = true, u.MaxBytes
	}
	return nil
}

// Make makes a directory of a size, whole or not at all: it appears under its name when that is on disk.
func (s *Shelf) Make(name string, bytes int64) error {
	switch f, err := s.open(name); {
	case err == nil: // a cut came before its volume was known
		f.Close()
		return s.Resize(name, bytes)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	half := newPrefix + name
	if err := errors.Join(s.build(), s.removeTree(half)); err != nil {
		return err
	}
	err := os.Mkdir(s.Path(half), 0o700)
	if err == nil {
		err = s.size(half, bytes)
	}
	if err == nil {
		err = unix.Chmod(s.Path(half), 0o777) // whoever a pod's containers run as, as for emptyDir
	}
	if err == nil {
		err = s.Disk.SyncDir(s.Path(half))
	}
	if err == nil {
		err = s.Disk.Move(s.Path(half), s.Path(name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make the directory of a claim: %w", err), s.removeTree(half))
	}
	return nil
}

// size gives a new directory a number and a bound, where the disk can.
func (s *Shelf) size(name string, bytes int64) error {
	f, err := s.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.sizes.On(f) != nil {
		return nil
	}
	number, err := s.number(f)
	if err != nil {
		return err
	}
	if err := s.sizes.Mark(f, number); err != nil { // first: after a cut somebody bears it whom Sweep finds
		return err
	}
	return s.sizes.Bound(f, number, bytes, inodes(bytes))
}

// inodes are a claim's share of those that a disk of a board has, and no fewer than a small program's files take.
func inodes(bytes int64) int64 { return max(bytes/16384, 4096) }

// number is one that nothing bears, here or in another data directory of the same disk.
func (s *Shelf) number(on *os.File) (uint32, error) {
	dirs, err := s.Dirs()
	if err != nil {
		return 0, err
	}
	taken := map[uint32]bool{}
	for _, d := range dirs {
		taken[d.number] = true
	}
	for n := uint32(firstNumber); n < firstNumber+100*most; n++ {
		if taken[n] {
			continue
		}
		u, err := s.sizes.Count(on, n)
		if err != nil {
			return 0, err
		}
		if u.Free() {
			return n, nil
		}
	}
	return 0, errors.New("no number is left for a directory with a size")
}

// Resize bounds what a directory may hold from now on.
func (s *Shelf) Resize(name string, bytes int64) error {
	f, err := s.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	number := s.sizes.Number(f)
	if number == 0 || s.sizes.On(f) != nil {
		return nil // made where no size was to be had, and filled since
	}
	return s.sizes.Bound(f, number, bytes, inodes(bytes))
}

// Use is what is in a directory, and what may be. false: the disk does not count it.
func (s *Shelf) Use(name string) (quota.Use, bool) {
	f, err := s.open(name)
	if err != nil {
		return quota.Use{}, false
	}
	defer f.Close()
	number := s.sizes.Number(f)
	if number == 0 || s.sizes.On(f) != nil {
		return quota.Use{}, false
	}
	u, err := s.sizes.Count(f, number)
	return u, err == nil
}

// Remove takes a directory out of the way, for good: Sweep deletes what is in it.
func (s *Shelf) Remove(name string) error {
	f, err := s.open(name)
	if err != nil {
		return err
	}
	f.Close()
	return s.Disk.Move(s.Path(name), s.Path(gonePrefix+name))
}

// Keep has a directory stay without its volume.
func (s *Shelf) Keep(name string) error { return s.Disk.Replace(s.Path(keptPrefix+name), nil, 0o600) }

// Sweep deletes what is half-made or half-removed. Only one may be at it, and nobody may make anything meanwhile that it calls
// half-made: the caller says what it wants swept.
func (s *Shelf) Sweep(prefix string) error {
	list, err := s.entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		if name, ok := strings.CutPrefix(e, prefix); ok {
			if err := s.removeTree(e); err != nil {
				errs = append(errs, fmt.Errorf("remove the directory of the claim %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// unbind takes the bound off a directory's number, which is nobody's as soon as nothing bears it.
func (s *Shelf) unbind(f *os.File) error {
	if number := s.sizes.Number(f); number != 0 && s.sizes.On(f) == nil {
		return s.sizes.Bound(f, number, 0, 0)
	}
	return nil
}

// removeTree deletes a directory with all that is in it, and gives its number back. What a pod has mounted there is not touched.
func (s *Shelf) removeTree(entry string) error {
	f, err := s.open(entry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil: // first: what bears the number is found again, and makes it nobody's by going
		if err = errors.Join(s.unbind(f), f.Close()); err != nil {
			return err
		}
	}
	at := s.Path(entry) // as the kernel names mount points:
	if real, err := filepath.EvalSymlinks(s.dir); err == nil {
		at = filepath.Join(real, entry)
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != at && !strings.HasPrefix(m.Mountpoint, at+"/"), false
	})
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("something is mounted at %s: unmount it", mounts[0].Mountpoint)
	}
	if name, ok := strings.CutPrefix(entry, gonePrefix); ok {
		if err := os.Remove(s.Path(keptPrefix + name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	return s.Disk.SyncDir(s.dir)
}
