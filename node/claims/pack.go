package claims

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An archive of claims is a tar file and, after its end, a line with the checksum of all before. Of each claim:
//
//	NAME/            first, with its size in recordClaim
//	NAME/a/b         a file; of one with holes an entry for each piece of data, by recordAt, with the length of the file in recordSize
//	NAME/a/          a directory after all that is in it: what it says of itself holds from then on
//	NAME/            last: the claim is whole
const (
	recordClaim = "LEDGE.claim"
	recordAt    = "LEDGE.at"
	recordSize  = "LEDGE.size"
	recordMore  = "LEDGE.more" // not the first piece
	xattrPrefix = "SCHILY.xattr."
	footerMark  = "ledge-claims-1 "
	footerSize  = len(footerMark) + 2*sha256.Size + 1
)

// Whoever fills a claim chooses its shape. What is beyond these is refused by its path.
const (
	deepest     = 512       // directories in directories: each is an open file here
	mostLinks   = 64 << 20  // bytes of names of files that have further names
	mostXattrs  = 256 << 10 // bytes of attributes of one file
	smallHole   = 64 << 10  // holes below this are read as data, and found again by restore
	mostLeftOut = 8         // that are named
)

// clockTick is more than what the times of files are behind the clock.
const clockTick = 20 * time.Millisecond

// Packed is what an archive has.
type Packed struct {
	Claims, Files int
	Left          []string // paths that no archive can have: sockets, devices
	LeftOut       int
}

func (p *Packed) leave(path string) {
	if p.LeftOut++; len(p.Left) < mostLeftOut {
		p.Left = append(p.Left, path)
	}
}

type packer struct {
	Packed
	tw    *tar.Writer
	top   string
	begun time.Time
	dev   uint64
	links map[uint64]string // by inode: the name that it has in the archive
	named int               // bytes of those
}

// Pack writes all claims. Nobody may write to them meanwhile: what changed is an error.
func (s *Shelf) Pack(w io.Writer) (Packed, error) {
	dirs, err := s.Dirs()
	if err != nil {
		return Packed{}, err
	}
	sum := sha256.New()
	p := &packer{tw: tar.NewWriter(io.MultiWriter(w, sum)), top: s.dir, begun: time.Now().Add(-clockTick)}
	for _, d := range dirs {
		if d.Gone {
			continue
		}
		if err := s.packOne(p, d); err != nil {
			return p.Packed, err
		}
	}
	if err := p.tw.Close(); err != nil {
		return p.Packed, err
	}
	_, err = fmt.Fprintf(w, "%s%x\n", footerMark, sum.Sum(nil))
	return p.Packed, err
}

func (s *Shelf) packOne(p *packer, d Dir) error {
	f, err := s.open(d.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	p.dev, p.links, p.named = st.Dev, map[uint64]string{}, 0
	err = p.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d.Name + "/", Mode: 0o700, Format: tar.FormatPAX,
		PAXRecords: map[string]string{recordClaim: strconv.FormatInt(d.Limit, 10)}})
	if err != nil {
		return err
	}
	if err := p.dir(f, d.Name, 0); err != nil {
		return err
	}
	// A second look finds what was written behind our back.
	if err := p.unchanged(f, d.Name, 0); err != nil {
		return err
	}
	p.Claims++
	return nil
}

// each calls fn with the names in a directory, some at a time.
func each(f *os.File, fn func(name string) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		names, err := f.Readdirnames(64)
		for _, name := range names {
			if err := fn(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// below opens a directory in a directory.
func (p *packer) below(f *os.File, name, path string, depth int) (*os.File, error) {
	if depth >= deepest {
		return nil, fmt.Errorf("%s is more than %d directories deep: move it up, or away", p.at(path), deepest)
	}
	fd, err := unix.Openat(int(f.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.at(path), err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (p *packer) at(path string) string { return filepath.Join(p.top, path) }

// look is a file's inode, if it is older than this archive and on this disk.
func (p *packer) look(fd int, name, path string) (st unix.Stat_t, err error) {
	if name == "" {
		err = unix.Fstat(fd, &st)
	} else {
		err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch {
	case err != nil:
		return st, fmt.Errorf("look at %s: %w", p.at(path), err)
	case st.Dev != p.dev:
		return st, fmt.Errorf("something is mounted at %s: unmount it", p.at(path))
	case time.Unix(st.Ctim.Unix()).After(p.begun):
		return st, fmt.Errorf("%s was changed while it was saved: stop who writes to it, and save again", p.at(path))
	}
	return st, nil
}

func (p *packer) unchanged(f *os.File, path string, depth int) error {
	if _, err := p.look(int(f.Fd()), "", path); err != nil {
		return err
	}
	return each(f, func(name string) error {
		in := path + "/" + name
		st, err := p.look(int(f.Fd()), name, in)
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return err
		}
		d, err := p.below(f, name, in, depth)
		if err != nil {
			return err
		}
		defer d.Close()
		return p.unchanged(d, in, depth+1)
	})
}

func (p *packer) dir(f *os.File, path string, depth int) error {
	st, err := p.look(int(f.Fd()), "", path)
	if err != nil {
		return err
	}
	if err := each(f, func(name string) error { return p.entry(f, name, path+"/"+name, depth) }); err != nil {
		return err
	}
	h := header(&st, tar.TypeDir, path+"/")
	if err := p.xattrs(h, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), path, false); err != nil {
		return err
	}
	return p.tw.WriteHeader(h)
}

func header(st *unix.Stat_t, kind byte, name string) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX, PAXRecords: map[string]string{}}
}

func (p *packer) entry(f *os.File, name, path string, depth int) error {
	st, err := p.look(int(f.Fd()), name, path)
	if err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		d, err := p.below(f, name, path, depth)
		if err != nil {
			return err
		}
		defer d.Close()
		return p.dir(d, path, depth+1)
	}
	if kind != unix.S_IFREG && kind != unix.S_IFLNK && kind != unix.S_IFIFO {
		p.leave(p.at(path))
		return nil
	}
	p.Files++
	if linked, err := p.link(&st, path); linked || err != nil {
		return err
	}
	real := fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name)
	switch kind {
	case unix.S_IFREG:
		return p.file(f, &st, name, path, real)
	case unix.S_IFLNK:
		h := header(&st, tar.TypeSymlink, path)
		if h.Linkname, err = os.Readlink(real); err != nil {
			return err
		}
		return p.tw.WriteHeader(h)
	default:
		h := header(&st, tar.TypeFifo, path)
		if err := p.xattrs(h, real, path, true); err != nil {
			return err
		}
		return p.tw.WriteHeader(h)
	}
}

// link writes a further name of what has one in the archive.
func (p *packer) link(st *unix.Stat_t, path string) (bool, error) {
	if st.Nlink < 2 {
		return false, nil
	}
	if first, ok := p.links[st.Ino]; ok {
		h := header(st, tar.TypeLink, path)
		h.Linkname = first
		return true, p.tw.WriteHeader(h)
	}
	if p.named += len(path); p.named > mostLinks {
		return false, fmt.Errorf("%s: too many files have several names: more than %d MiB of names cannot be remembered", p.at(path), mostLinks>>20)
	}
	p.links[st.Ino] = path
	return false, nil
}

// xattrs are those of a file but of a symbolic link, which has none that a pod can set.
func (p *packer) xattrs(h *tar.Header, real, path string, self bool) error {
	list, get := unix.Listxattr, unix.Getxattr
	if self {
		list, get = unix.Llistxattr, unix.Lgetxattr
	}
	names := make([]byte, 64<<10) // as many as the kernel lists
	n, err := list(real, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list attributes of %s: %w", p.at(path), err)
	}
	total, value := n, make([]byte, 64<<10)
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if name == "" {
			continue
		}
		if strings.Contains(name, "=") { // the format cannot have it
			p.leave(p.at(path) + " (attribute " + strconv.Quote(name) + ")")
			continue
		}
		n, err := get(real, name, value)
		if err != nil {
			return fmt.Errorf("read attribute %q of %s: %w", name, p.at(path), err)
		}
		if total += n; total > mostXattrs {
			return fmt.Errorf("%s has more than %d KiB of attributes: take some off", p.at(path), mostXattrs>>10)
		}
		h.PAXRecords[xattrPrefix+name] = string(value[:n])
	}
	return nil
}

func (p *packer) file(in *os.File, st *unix.Stat_t, name, path, real string) error {
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", p.at(path), err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if now, err := p.look(fd, "", path); err != nil || now.Ino != st.Ino || now.Mode != st.Mode {
		return errors.Join(err, fmt.Errorf("%s was changed while it was saved: stop who writes to it, and save again", p.at(path)))
	}
	attrs := &tar.Header{PAXRecords: map[string]string{}}
	if err := p.xattrs(attrs, real, path, true); err != nil {
		return err
	}
	start, end, err := piece(fd, 0, st.Size)
	for more := false; err == nil; more = true {
		h := header(st, tar.TypeReg, path)
		h.Size = end - start
		h.PAXRecords[recordAt], h.PAXRecords[recordSize] = strconv.FormatInt(start, 10), strconv.FormatInt(st.Size, 10)
		if more {
			h.PAXRecords[recordMore] = "1"
		}
		from, size := start, end-start
		if start, end, err = piece(fd, end, st.Size); err != nil {
			break
		}
		if start == st.Size { // the last: what is written later would take some of them off
			maps.Copy(h.PAXRecords, attrs.PAXRecords)
		}
		if err = p.tw.WriteHeader(h); err == nil {
			_, err = io.CopyN(p.tw, io.NewSectionReader(f, from, size), size)
		}
		if start == st.Size {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("save %s: %w", p.at(path), err)
	}
	return nil
}

// piece is the next run of data; both are the size when there is none.
func piece(fd int, from, size int64) (start, end int64, err error) {
	if from >= size {
		return size, size, nil
	}
	start, err = unix.Seek(fd, from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	for end = start; err == nil && end < size; {
		if end, err = unix.Seek(fd, end, unix.SEEK_HOLE); err != nil {
			break
		}
		next, nerr := unix.Seek(fd, end, unix.SEEK_DATA)
		if nerr != nil || next-end >= smallHole {
			break // what is wrong there is found by the next piece
		}
		end = next
	}
	return min(start, size), min(end, size), err
}

// WholeArchive reads an archive once, and gives what is to be unpacked. A torn one is refused.
func WholeArchive(f io.ReaderAt, size int64) (io.Reader, error) {
	torn := errors.New("it is no archive of claims, or torn: some of it is missing or changed")
	body := size - int64(footerSize)
	if body < 0 {
		return nil, torn
	}
	foot := make([]byte, footerSize)
	if _, err := f.ReadAt(foot, body); err != nil {
		return nil, err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, body)); err != nil {
		return nil, err
	}
	if string(foot) != footerMark+hex.EncodeToString(sum.Sum(nil))+"\n" {
		return nil, torn
	}
	return io.NewSectionReader(f, 0, body), nil
}
