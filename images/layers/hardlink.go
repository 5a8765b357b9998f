package layers

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hardlink gives a file of this layer a further name. Its owner, mode and times are the file's: the header's are
// not applied, or a link would be a way to change another file (CVE-2021-32760). An absolute target, as kaniko
// writes it, is meant from the image's root.
func (u *unpacker) hardlink(p place, linkname string) error {
	target, err := u.target(linkname)
	if err != nil {
		return fmt.Errorf("hard link to %.200q: %w", linkname, err)
	}
	if target == p.path {
		return errors.New("hard link to itself")
	}
	st, ok, err := statAt(u.t.root, target)
	if err != nil {
		return fmt.Errorf("hard link to %.200q: %w", linkname, err)
	}
	if !ok || isWhiteout(&st) {
		if st, err = u.copyUp(target); err != nil {
			return fmt.Errorf("hard link to %.200q: %w", linkname, err)
		}
	}
	if k := kind(&st); k != unix.S_IFREG && k != unix.S_IFLNK && k != unix.S_IFIFO {
		return fmt.Errorf("hard link to %.200q, which is not a file", linkname)
	}
	dir, base := split(p.path)
	if p.fd, err = u.t.open(dir); err != nil { // copyUp may have opened another
		return err
	}
	if _, err := u.clear(place{fd: p.fd, base: base, path: p.path}, false); err != nil {
		return err
	}
	tdir, tbase := split(target)
	fd, err := openAt(u.t.root, tdir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("hard link to %.200q: %w", linkname, err)
	}
	defer unix.Close(fd)
	if err := unix.Linkat(fd, tbase, p.fd, base, 0); err != nil {
		return fmt.Errorf("hard link to %.200q: %w", linkname, err)
	}
	r := record{kind: 'h', mode: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid, size: st.Size, path: p.path}
	if kind(&st) != unix.S_IFREG {
		r = record{kind: 'x', mode: r.mode, uid: r.uid, gid: r.gid, path: p.path}
	}
	return u.j.add(r)
}

// target finds what a hard link means: links among its parents are followed inside the tree, the last name is
// not.
func (u *unpacker) target(linkname string) (string, error) {
	name, err := u.clean(linkname)
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", errors.New("the root cannot be linked to")
	}
	dir, base := split(name)
	if skip, err := whiteoutName(dir, base); skip || err != nil {
		return "", errors.New("a whiteout cannot be linked to")
	}
	dir, err = u.t.resolve(dir, u.cfg.MaxDepth)
	if err != nil {
		return "", err
	}
	return join(dir, base), nil
}

// copyUp brings a file of a layer below into this one, as writing to it in a container would: some builders link
// to files of an earlier layer.
func (u *unpacker) copyUp(path string) (unix.Stat_t, error) {
	s, err := u.t.look(path)
	if err != nil {
		return s.st, err
	}
	if !s.found || kind(&s.st) != unix.S_IFREG {
		return s.st, errors.New("no such file")
	}
	fd, err := openAt(s.root, path, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return s.st, err
	}
	src := os.NewFile(uintptr(fd), path)
	defer src.Close()
	m := metaOf(&s.st)
	if m.xattrs, err = readXattrs(fd); err != nil {
		return s.st, err
	}
	dir, base := split(path)
	p, err := u.place(dir, base)
	if err != nil {
		return s.st, err
	}
	return s.st, u.file(p, m, src)
}
