package claims

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

type unpacker struct {
	s     *Shelf
	claim string
	root  *os.Root
	done  []string
	made  map[string]bool
}

// Unpacked are claims of an archive that are on disk and not in their place yet:
//
//	Unpack -> Begin (from here on no board starts) -> Place
//
// A cut after Begin is mended by another restore, which goes on as the one that was cut.
type Unpacked struct {
	Names []string
	s     *Shelf
	to    restoring
	again bool // a restore was cut, and this is the next
}

// restoring is what a restore writes down before it changes anything.
type restoring struct {
	Time  string   `json:"time"`  // at the end of the names of what is put aside
	There []string `json:"there"` // what was in its place before
}

// restoringFile is there from Begin until all are in their place.
const restoringFile = ".restoring"

// Restoring says that a restore was cut, and so that claims and store are of different times.
func (s *Shelf) Restoring() error {
	_, err := os.Lstat(s.Path(restoringFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return fmt.Errorf("look whether a restore was cut: %w", err)
	}
	return fmt.Errorf("a restore was cut, and claims and store are of different times: "+
		"'ledge backup restore FILE --claims' again, or remove %s to go on with what there is", s.Path(restoringFile))
}

// Unpack puts the claims of an archive beside those that are there, all of them on disk. Nobody may have a claim mounted, and no brain
// may run.
func (s *Shelf) Unpack(r io.Reader) (out *Unpacked, err error) {
	u := &unpacker{s: s, made: map[string]bool{}}
	defer func() {
		if err = errors.Join(err, u.close()); err != nil {
			err = errors.Join(err, s.drop(slices.Collect(maps.Keys(u.made))))
		}
	}()
	if err := s.build(); err != nil {
		return nil, err
	}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.entry(h, tr)
		}
		if err != nil {
			return nil, fmt.Errorf("unpack claims: %w", err)
		}
	}
	if u.claim != "" {
		return nil, fmt.Errorf("unpack claims: the archive ends in the middle of %s", u.claim)
	}
	if err := s.Disk.SyncFS(s.dir); err != nil {
		return nil, err
	}
	return &Unpacked{Names: u.done, s: s}, nil
}

// drop removes half-made claims.
func (s *Shelf) drop(names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, s.removeTree(newPrefix+name))
	}
	return err
}

// Drop takes what was unpacked away again, before Begin.
func (u *Unpacked) Drop() error { return u.s.drop(u.Names) }

// Begin writes down that the claims are about to take their place.
func (u *Unpacked) Begin() error {
	data, err := os.ReadFile(u.s.Path(restoringFile))
	if err == nil {
		if err = json.Unmarshal(data, &u.to); err != nil || u.to.Time == "" {
			return errors.Join(err, fmt.Errorf("%s says nothing of the restore that was cut: remove it, and restore again", u.s.Path(restoringFile)))
		}
		u.again = true
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	list, err := os.ReadDir(u.s.dir)
	if err != nil {
		return err
	}
	at := time.Now().UTC()
	taken := func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), u.to.Time) }
	for u.to.Time = at.Format(asideTime); slices.ContainsFunc(list, taken); u.to.Time = at.Format(asideTime) {
		at = at.Add(time.Second)
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), ".") {
			u.to.There = append(u.to.There, e.Name())
		}
	}
	if data, err = json.Marshal(u.to); err != nil {
		return err
	}
	return u.s.Disk.Replace(u.s.Path(restoringFile), data, 0o600)
}

const asideTime = "-20060102T150405"

// Place moves the claims into their place. What was there stays aside, as .old-NAME-TIME, and nobody removes it.
func (u *Unpacked) Place() error {
	for _, name := range u.Names {
		old := oldPrefix + name + u.to.Time
		_, err := os.Lstat(u.s.Path(old))
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		case u.again && (err == nil || !slices.Contains(u.to.There, name)): // the restore that was cut has put it here, if anything is
			err = u.s.removeTree(name)
		default:
			err = u.s.putAside(name, old)
		}
		if err == nil {
			err = u.s.Disk.Move(u.s.Path(newPrefix+name), u.s.Path(name))
		}
		if err != nil {
			return err
		}
	}
	return u.s.Disk.Remove(u.s.Path(restoringFile))
}

// putAside gives what is in a claim's place another name, if there is anything. Nothing bounds it from then on, and no claim is it.
func (s *Shelf) putAside(name, old string) error {
	f, err := s.open(name)
	if err == nil {
		err = errors.Join(s.unbind(f), f.Close())
		if err != nil {
			return err
		}
	}
	if _, err := os.Lstat(s.Path(name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.Disk.Move(s.Path(name), s.Path(old))
}

func (u *unpacker) close() error {
	if u.root == nil {
		return nil
	}
	err := u.root.Close()
	u.root, u.claim = nil, ""
	return err
}

func (u *unpacker) begin(name, limit string) error {
	bytes, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || bytes < 0 || u.claim != "" || u.made[name] || len(u.made) >= most || len(content.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%q does not begin a claim", name)
	}
	half := newPrefix + name
	if err := u.s.removeTree(half); err != nil {
		return err
	}
	if err := os.Mkdir(u.s.Path(half), 0o700); err != nil {
		return err
	}
	u.made[name] = true
	if bytes > 0 {
		if err := u.s.size(half, bytes); err != nil {
			return err
		}
	}
	u.claim = name
	u.root, err = os.OpenRoot(u.s.Path(half))
	return err
}

// inside is the path in its claim of a name of the archive.
func (u *unpacker) inside(name string) (string, error) {
	claim, path, _ := strings.Cut(strings.TrimSuffix(name, "/"), "/")
	if path == "" {
		path = "."
	}
	if u.claim == "" || claim != u.claim || !filepath.IsLocal(path) || strings.Count(path, "/") > deepest {
		return "", fmt.Errorf("%q is not in the claim %q", name, u.claim)
	}
	return filepath.Clean(path), nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if limit, ok := h.PAXRecords[recordClaim]; ok {
		return u.begin(strings.TrimSuffix(h.Name, "/"), limit)
	}
	path, err := u.inside(h.Name)
	if err != nil {
		return err
	}
	if path == "." {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%q is no directory", h.Name)
		}
		u.done = append(u.done, u.claim)
		return errors.Join(u.finish(h, "."), u.close())
	}
	if err := u.root.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.root.MkdirAll(path, 0o700)
	case tar.TypeReg:
		err = u.file(h, path, r)
	case tar.TypeSymlink:
		err = u.root.Symlink(h.Linkname, path)
	case tar.TypeLink:
		first, err := u.inside(h.Linkname)
		if err != nil {
			return err
		}
		return u.root.Link(first, path)
	case tar.TypeFifo:
		err = u.in(path, func(dir int, base string) error { return unix.Mkfifoat(dir, base, 0o600) })
	default:
		err = fmt.Errorf("%q is of a kind that no claim has", h.Name)
	}
	if err != nil {
		return err
	}
	return u.finish(h, path)
}

// in calls fn with the directory of a path.
func (u *unpacker) in(path string, fn func(dir int, base string) error) error {
	d, err := u.root.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return fn(int(d.Fd()), filepath.Base(path))
}

func (u *unpacker) file(h *tar.Header, path string, r io.Reader) error {
	at, err := strconv.ParseInt(h.PAXRecords[recordAt], 10, 64)
	size, serr := strconv.ParseInt(h.PAXRecords[recordSize], 10, 64)
	if err != nil || serr != nil || at < 0 || size < 0 || at > size || h.Size > size-at {
		return fmt.Errorf("%q does not say where its data belongs", h.Name)
	}
	flags := os.O_WRONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if h.PAXRecords[recordMore] == "" {
		flags |= os.O_CREATE | os.O_EXCL
	}
	f, err := u.root.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%q is no file", h.Name))
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if err := sparsely(f, at, r); err != nil {
		return err
	}
	return f.Close()
}

// sparsely writes data, and leaves holes for what is nought: a file takes no more of its claim than it did.
func sparsely(f *os.File, at int64, r io.Reader) error {
	const block = 4096
	buf := make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(r, buf)
		for from := 0; from < n; {
			to := min(n, from+block-int((at+int64(from))%block))
			if !nought(buf[from:to]) {
				if _, err := f.WriteAt(buf[from:to], at+int64(from)); err != nil {
					return err
				}
			}
			from = to
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n < len(buf) {
			return nil // the archive is whole, who calls has looked
		}
		if err != nil {
			return err
		}
	}
}

func nought(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// finish gives a file its owner, mode, attributes and time, none of which is read through a link.
func (u *unpacker) finish(h *tar.Header, path string) error {
	return u.in(path, func(dir int, base string) error {
		if err := unix.Fchownat(dir, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("give %q its owner: %w", h.Name, err)
		}
		if h.Typeflag != tar.TypeSymlink {
			fd, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			real := fmt.Sprintf("/proc/self/fd/%d", fd)
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
				return errors.Join(err, fmt.Errorf("%q is a link", h.Name))
			}
			if err := unix.Chmod(real, uint32(h.Mode&0o7777)); err != nil {
				return fmt.Errorf("give %q its mode: %w", h.Name, err)
			}
			for key, value := range h.PAXRecords {
				name, ok := strings.CutPrefix(key, xattrPrefix)
				if !ok {
					continue
				}
				if err := unix.Setxattr(real, name, []byte(value), 0); err != nil {
					return fmt.Errorf("give %q its attribute %q: %w", h.Name, name, err)
				}
			}
		}
		at, err := unix.TimeToTimespec(h.ModTime)
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(dir, base, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	})
}
