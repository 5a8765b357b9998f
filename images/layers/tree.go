package layers

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath is how every path of an archive is opened: below the given directory, without following any link.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

const (
	maxSymlinks = 40
	maxPath     = 4000 // the kernel's PATH_MAX less room for ours
	maxName     = 255
	opaqueXattr = "trusted.overlay.opaque"
)

// tree is a layer being made, over the layers below it. Paths in it are relative, clean and free of links.
type tree struct {
	root  int   // our directory
	lower []int // highest first

	dir   string // the directory opened last: archives come in order
	fd    int    // of dir, or -1
	mtime int64  // what dir is to have when it has been filled, if it was made just now; else negative
}

func openTree(root string, lower []string) (*tree, error) {
	t := &tree{fd: -1, mtime: -1, root: -1}
	fd, err := openPathDir(root)
	if err != nil {
		return nil, err
	}
	t.root = fd
	for i := len(lower) - 1; i >= 0; i-- {
		fd, err := openPathDir(lower[i])
		if err != nil {
			t.close()
			return nil, err
		}
		t.lower = append(t.lower, fd)
	}
	return t, nil
}

func openPathDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open layer directory %s: %w", path, err)
	}
	return fd, nil
}

func (t *tree) close() {
	t.forget()
	for _, fd := range append(t.lower, t.root) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// forget drops the cached directory. It need not be dropped when an entry is replaced: it is then that entry's
// parent.
//
// A directory that was made just now gets its time here, while its inode is in the file system's current transaction. As a
// rule it is then right, and finish, much later, need not change it: each of those changes is written to the card twice,
// in the journal and in place. So nothing hangs on whether it works.
func (t *tree) forget() {
	if t.fd >= 0 {
		if t.mtime >= 0 {
			_ = setTimesAt(t.fd, ".", t.mtime)
		}
		_ = unix.Close(t.fd)
	}
	t.fd, t.dir, t.mtime = -1, "", -1
}

// openAt opens path below a directory. path "" is the directory itself.
func openAt(root int, path string, flags uint64) (int, error) {
	if path == "" {
		path = "."
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: beneath}
	for {
		fd, err := unix.Openat2(root, path, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fd, err
	}
}

// open gives a descriptor of a directory of this layer that must exist; it stays valid until the next call.
func (t *tree) open(dir string) (int, error) {
	if t.fd >= 0 && t.dir == dir {
		return t.fd, nil
	}
	fd, err := openAt(t.root, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	t.adopt(fd, dir)
	return fd, nil
}

// adopt makes an open directory the cached one.
func (t *tree) adopt(fd int, dir string) {
	t.forget()
	t.fd, t.dir = fd, dir
}

// statAt looks at path without following links; ok is false when nothing is there.
func statAt(root int, path string) (st unix.Stat_t, ok bool, err error) {
	fd, err := openAt(root, path, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return st, false, nil
	}
	if err != nil {
		return st, false, err
	}
	defer unix.Close(fd)
	return st, true, unix.Fstat(fd, &st)
}

func kind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

func isWhiteout(st *unix.Stat_t) bool { return kind(st) == unix.S_IFCHR && st.Rdev == 0 }

// seen is what the merged view of this layer and those below shows at a path.
type seen struct {
	st    unix.Stat_t
	found bool
	own   bool // in this layer, not below
	root  int  // the layer it is in
}

// look finds path, whose parents are directories in the merged view, in this layer or those below.
func (t *tree) look(path string) (seen, error) {
	st, ok, err := statAt(t.root, path)
	if err != nil && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return seen{}, err
	}
	if err == nil && ok {
		return seen{st: st, found: !isWhiteout(&st), own: true, root: t.root}, nil
	}
	if len(t.lower) == 0 || hides(t.root, path) {
		return seen{}, nil
	}
	for _, fd := range t.lower {
		st, ok, err := statAt(fd, path)
		if err == nil && ok {
			return seen{st: st, found: !isWhiteout(&st), root: fd}, nil
		}
		if hides(fd, path) {
			return seen{}, nil
		}
	}
	return seen{}, nil
}

// hides says whether a layer that does not have path hides it in the layers below: a parent is a whiteout, an
// opaque directory or no directory at all.
func hides(root int, path string) bool {
	for i := 0; i < len(path); i++ {
		if path[i] != '/' && i != 0 {
			continue
		}
		st, ok, err := statAt(root, path[:i])
		switch {
		case err != nil:
			return true
		case !ok:
			return false
		case kind(&st) != unix.S_IFDIR:
			return true
		case isOpaque(root, path[:i]):
			return true
		}
	}
	return false
}

func isOpaque(root int, dir string) bool {
	fd, err := openAt(root, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var b [1]byte
	n, err := unix.Fgetxattr(fd, opaqueXattr, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// deepest opens what this layer has of the path of a directory, without a link in it. The path is whole when no link can be in
// the rest of it either, for there is nothing.
func (t *tree) deepest(dir string) (own string, whole bool, err error) {
	for own, whole = dir, true; ; own, _ = split(own) {
		_, err := t.open(own)
		switch {
		case err == nil:
			return own, whole, nil
		case errors.Is(err, unix.ENOENT) && own != "":
			whole = len(t.lower) == 0
		case (errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) && own != "":
			whole = false
		default:
			return "", false, fmt.Errorf("open %q: %w", own, err)
		}
	}
}

// resolve gives the path of a directory free of links: those of this layer and the layers below are followed
// inside the tree, as a container would see them. What does not exist yet is taken as it is. What there is of it in this
// layer is then open.
func (t *tree) resolve(dir string, maxDepth int) (string, error) {
	own, whole, err := t.deepest(dir)
	if err != nil || whole {
		return dir, err
	}
	cur, todo := splitPath(own), splitPath(dir[len(own):])
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		if part == ".." {
			cur = cur[:max(0, len(cur)-1)]
			continue
		}
		path := strings.Join(append(cur, part), "/")
		if len(path) > maxPath || len(cur) >= maxDepth {
			return "", fmt.Errorf("path too long or too deep: %.60q", path)
		}
		s, err := t.look(path)
		if err != nil {
			return "", fmt.Errorf("look at %q: %w", path, err)
		}
		if !s.found || kind(&s.st) == unix.S_IFDIR || kind(&s.st) != unix.S_IFLNK && !s.own {
			cur = append(cur, part)
			continue
		}
		if kind(&s.st) != unix.S_IFLNK {
			return "", fmt.Errorf("%q is not a directory", path)
		}
		if links++; links > maxSymlinks {
			return "", fmt.Errorf("too many symbolic links in %q", dir)
		}
		target, err := readlinkAt(s.root, path)
		if err != nil {
			return "", fmt.Errorf("read link %q: %w", path, err)
		}
		if strings.HasPrefix(target, "/") {
			cur = nil
		}
		todo = append(splitPath(target), todo...)
	}
	path := strings.Join(cur, "/")
	_, _, err = t.deepest(path)
	return path, err
}

// readlinkAt reads a link through a descriptor of its own, so that its parents are opened safely as well.
func readlinkAt(root int, path string) (string, error) {
	fd, err := openAt(root, path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func splitPath(p string) []string {
	var parts []string
	for s := range strings.SplitSeq(p, "/") {
		if s != "" && s != "." {
			parts = append(parts, s)
		}
	}
	return parts
}
