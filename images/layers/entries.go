package layers

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"

	"archive/tar"

	"golang.org/x/sys/unix"
)

// was is what stood at a place before.
type was int

const (
	wasNothing was = iota
	wasDir
	wasOther // a file or a whiteout: it hid what the layers below have there
)

// clear makes room for an entry; with keepDir a directory stays. What the archive wrote before is unlinked, never
// written through, so that a link planted earlier leads nowhere.
func (u *unpacker) clear(p place, keepDir bool) (was, error) {
	var st unix.Stat_t
	err := unix.Fstatat(p.fd, p.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return wasNothing, nil
	}
	if err != nil {
		return 0, err
	}
	before := wasOther
	if kind(&st) == unix.S_IFDIR {
		before = wasDir
		if keepDir {
			return wasDir, nil
		}
	}
	if err := removeAt(p.fd, p.base); err != nil {
		return 0, fmt.Errorf("replace: %w", err)
	}
	return before, u.j.replace(u.j.gone, p.path)
}

func (u *unpacker) mkdir(p place, m meta) error {
	made, err := u.newDir(p, m)
	if made || err != nil {
		return err
	}
	return u.explicitDir(p.path, m)
}

// newDir makes a directory, unless one is there.
func (u *unpacker) newDir(p place, m meta) (made bool, err error) {
	before := wasNothing
	mode := m.mode&0o777 | 0o700 // apply does the rest
	err = unix.Mkdirat(p.fd, p.base, mode)
	if errors.Is(err, unix.EEXIST) {
		if before, err = u.clear(p, true); before == wasDir || err != nil {
			return false, err
		}
		err = unix.Mkdirat(p.fd, p.base, mode)
	}
	if err != nil {
		return false, err
	}
	fd, err := unix.Openat(p.fd, p.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	u.t.adopt(fd, p.path) // what comes next is in it, as a rule
	u.t.mtime = m.mtime
	if err := u.describe(fd, p.path, m); err != nil {
		return false, err
	}
	if before == wasOther {
		return true, u.markOpaque(p.path)
	}
	return true, nil
}

// explicitDir applies a later entry's mode, owner and times to a directory that exists already.
func (u *unpacker) explicitDir(path string, m meta) error {
	if err := u.j.replace(u.j.again, path); err != nil {
		return err
	}
	return u.dirMeta(path, m)
}

func (u *unpacker) dirMeta(path string, m meta) error {
	fd, err := openAt(u.t.root, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return u.describe(fd, path, m)
}

func (u *unpacker) describe(fd int, path string, m meta) error {
	if err := m.apply(fd); err != nil {
		return err
	}
	return u.j.add(record{kind: 'd', mode: m.mode, uid: m.uid, gid: m.gid, mtime: m.mtime, path: path})
}

// opaque handles the mark in a directory; p is the mark's own place.
func (u *unpacker) opaque(p place) error {
	dir, _ := split(p.path)
	return u.markOpaque(dir)
}

// markOpaque hides what the layers below have in a directory. The attribute costs the same however often it is
// asked for; nothing is walked (CVE-2026-95838).
func (u *unpacker) markOpaque(dir string) error {
	if isOpaque(u.t.root, dir) {
		return nil
	}
	fd, err := openAt(u.t.root, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fsetxattr(fd, opaqueXattr, []byte("y"), 0); err != nil {
		return fmt.Errorf("mark %q opaque: %w", dir, err)
	}
	return u.j.add(record{kind: 'o', path: dir})
}

// whiteout hides a name of the layers below. It says nothing about what this layer brings under the same name,
// before or after.
func (u *unpacker) whiteout(hdr *tar.Header, p place) error {
	if hdr.Typeflag != tar.TypeReg && hdr.Typeflag != tar.TypeLink {
		return errors.New("a whiteout must be an empty file")
	}
	var st unix.Stat_t
	err := unix.Fstatat(p.fd, p.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return err
	case kind(&st) == unix.S_IFDIR:
		return u.markOpaque(p.path)
	default:
		return nil
	}
	if err := unix.Mknodat(p.fd, p.base, unix.S_IFCHR, 0); err != nil {
		return fmt.Errorf("make whiteout: %w", err)
	}
	return u.j.add(record{kind: 'w', path: p.path})
}

func (u *unpacker) file(p place, m meta, r io.Reader) error {
	fd, err := u.newFile(p, m)
	if err != nil {
		return err
	}
	defer u.out.take(fd)
	size, crc, err := u.copy(fd, r)
	if err != nil {
		return err
	}
	return u.describeFile(p, fd, m, size, crc)
}

// newFile makes an empty file. What stands there already, which is rare, is cleared away first.
func (u *unpacker) newFile(p place, m meta) (fd int, err error) {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	mode := m.mode & 0o777 // apply does the rest
	fd, err = unix.Openat(p.fd, p.base, flags, mode)
	if errors.Is(err, unix.EEXIST) {
		if _, err := u.clear(p, false); err != nil {
			return -1, err
		}
		fd, err = unix.Openat(p.fd, p.base, flags, mode)
	}
	return fd, err
}

// describeFile gives a file that has its content the rest.
func (u *unpacker) describeFile(p place, fd int, m meta, size int64, crc uint32) error {
	if err := m.apply(fd); err != nil {
		return err
	}
	if err := setTimesAt(p.fd, p.base, m.mtime); err != nil {
		return err
	}
	return u.j.add(record{kind: 'f', mode: m.mode, uid: m.uid, gid: m.gid, size: size, crc: crc, path: p.path})
}

const nowhere = -1

// copy writes content inside the budget to a file, or nowhere.
func (u *unpacker) copy(fd int, r io.Reader) (size int64, crc uint32, err error) {
	for {
		n, err := r.Read(u.buf)
		if n > 0 {
			size += int64(n)
			crc = crc32.Update(crc, castagnoli, u.buf[:n])
			if err := u.b.spend(int64(n)); err != nil {
				return 0, 0, err
			}
			if fd != nowhere {
				if err := writeAll(fd, u.buf[:n]); err != nil {
					return 0, 0, err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return size, crc, nil
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read archive: %w", err)
		}
	}
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// share makes a file of content that is on disk already: a clone where the file system can, a further name where
// owner and mode are right, else a copy. The archive is read all the same, for its digest.
func (u *unpacker) share(p place, m meta, same *os.File, r io.Reader) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(same.Fd()), &st); err != nil {
		return err
	}
	fd, err := u.newFile(p, m)
	if err != nil {
		return err
	}
	defer u.out.take(fd)
	if unix.IoctlFileClone(fd, int(same.Fd())) == nil {
		size, crc, err := u.copy(nowhere, r)
		if err != nil {
			return err
		}
		return u.describeFile(p, fd, m, size, crc)
	}
	if st.Mode == unix.S_IFREG|m.mode && st.Uid == m.uid && st.Gid == m.gid && len(m.xattrs) == 0 && u.link(p, same) {
		size, crc, err := u.copy(nowhere, r)
		if err != nil {
			return err
		}
		return u.j.add(record{kind: 'f', mode: m.mode, uid: m.uid, gid: m.gid, size: size, crc: crc, path: p.path})
	}
	size, crc, err := u.copy(fd, r)
	if err != nil {
		return err
	}
	return u.describeFile(p, fd, m, size, crc)
}

// link replaces the empty file at p by a further name of an open one. On another file system it cannot.
func (u *unpacker) link(p place, same *os.File) bool {
	tmp := whiteoutPrefix + p.base // no entry can have this name
	src := "/proc/self/fd/" + strconv.Itoa(int(same.Fd()))
	if unix.Linkat(unix.AT_FDCWD, src, p.fd, tmp, unix.AT_SYMLINK_FOLLOW) != nil {
		return false
	}
	if unix.Renameat(p.fd, tmp, p.fd, p.base) != nil {
		_ = unix.Unlinkat(p.fd, tmp, 0)
		return false
	}
	return true
}

func (u *unpacker) symlink(p place, m meta, target string) error {
	if target == "" || len(target) > maxPath || strings.IndexByte(target, 0) >= 0 {
		return errors.New("symbolic link with an impossible target")
	}
	if _, err := u.clear(p, false); err != nil {
		return err
	}
	if err := unix.Symlinkat(target, p.fd, p.base); err != nil {
		return err
	}
	if err := unix.Fchownat(p.fd, p.base, int(m.uid), int(m.gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := setTimesAt(p.fd, p.base, m.mtime); err != nil {
		return err
	}
	return u.j.add(record{kind: 'l', uid: m.uid, gid: m.gid, size: int64(len(target)),
		crc: crc32.Checksum([]byte(target), castagnoli), path: p.path})
}

func (u *unpacker) fifo(p place, m meta) error {
	if _, err := u.clear(p, false); err != nil {
		return err
	}
	if err := unix.Mknodat(p.fd, p.base, unix.S_IFIFO|0o600, 0); err != nil {
		return err
	}
	if err := unix.Fchownat(p.fd, p.base, int(m.uid), int(m.gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	// Nobody else works in this directory, and what stands here is the pipe made above.
	if err := unix.Fchmodat(p.fd, p.base, m.mode, 0); err != nil {
		return err
	}
	if err := setTimesAt(p.fd, p.base, m.mtime); err != nil {
		return err
	}
	return u.j.add(record{kind: 'p', mode: m.mode, uid: m.uid, gid: m.gid, path: p.path})
}
