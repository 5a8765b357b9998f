package layers

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/images"
)

const (
	treeDir        = "fs" // of a layer directory: what a container sees
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh." // what AUFS kept beside; only the next means anything today
	whiteoutOpaque = ".wh..wh..opq"
)

// Unpack implements images.Layers.
func (o *Overlay) Unpack(ctx context.Context, dir string, a images.LayerArchive) (images.Unpacked, error) {
	out, err := o.unpack(ctx, dir, a)
	if err != nil {
		return images.Unpacked{}, fmt.Errorf("unpack layer: %w", err)
	}
	return out, nil
}

func (o *Overlay) unpack(ctx context.Context, dir string, a images.LayerArchive) (out images.Unpacked, err error) {
	root := filepath.Join(dir, treeDir)
	if err := os.Mkdir(root, 0o755); err != nil {
		return out, err
	}
	lower := make([]string, len(a.Lower))
	for i, l := range a.Lower {
		lower[i] = filepath.Join(l, treeDir)
	}
	t, err := openTree(root, lower)
	if err != nil {
		return out, err
	}
	defer t.close()
	j, err := newJournal(filepath.Join(dir, images.ManifestFile+".tmp"))
	if err != nil {
		return out, err
	}
	defer j.close()

	in := &meter{r: a.Tar, ctx: ctx}
	plain, _, err := decompress(in)
	if err != nil {
		return out, err
	}
	defer plain.Close()
	b := &budget{in: in, cfg: &o.cfg}
	h := sha256.New()
	content := io.TeeReader(&stream{r: plain, b: b}, h)
	u := &unpacker{cfg: &o.cfg, t: t, j: j, b: b, same: a.Same, out: newWriteback(), buf: make([]byte, 128<<10)}
	if err := errors.Join(u.run(tar.NewReader(content)), u.out.wait()); err != nil {
		return out, err
	}
	// What follows the end of the archive belongs to its digest.
	if _, err := io.CopyBuffer(onlyWriter{io.Discard}, content, u.buf); err != nil {
		return out, err
	}
	t.forget() // it may know of an older time than the journal
	out.Manifest, err = j.finish(filepath.Join(dir, images.ManifestFile), t)
	out.DiffID, out.Bytes, out.Entries = sum(h), b.spent, u.entries
	return out, err
}

// onlyWriter keeps io.Copy from using a buffer of its own.
type onlyWriter struct{ io.Writer }

type unpacker struct {
	cfg     *Config
	t       *tree
	j       *journal
	b       *budget
	same    map[string]*os.File
	out     *writeback
	buf     []byte
	entries int
}

func (u *unpacker) run(tr *tar.Reader) error {
	if err := u.rootDir(); err != nil {
		return err
	}
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if u.entries++; u.entries > u.cfg.MaxEntries {
			return fmt.Errorf("layer has more than %d entries", u.cfg.MaxEntries)
		}
		if err := u.entry(hdr, tr); err != nil {
			return fmt.Errorf("entry %.200q: %w", hdr.Name, err)
		}
	}
}

// rootDir gives "/" what the layer below has, until the archive says otherwise.
func (u *unpacker) rootDir() error {
	m := meta{mode: 0o755}
	if len(u.t.lower) > 0 {
		st, _, err := statAt(u.t.lower[0], "")
		if err != nil {
			return err
		}
		m = metaOf(&st)
	}
	return u.dirMeta("", m)
}

// place is where an entry goes: an open directory and a name in it.
type place struct {
	fd   int
	base string
	path string // of the entry, free of links
}

func (u *unpacker) entry(hdr *tar.Header, r io.Reader) error {
	name, err := u.clean(hdr.Name)
	if err != nil {
		return err
	}
	m, err := headerMeta(hdr)
	if err != nil {
		return err
	}
	if name == "" {
		if hdr.Typeflag != tar.TypeDir {
			return errors.New("the root is not a directory")
		}
		return u.explicitDir("", m)
	}
	dir, base := split(name)
	if skip, err := whiteoutName(dir, base); skip || err != nil {
		return err
	}
	p, err := u.place(dir, base)
	if err != nil {
		return err
	}
	switch {
	case base == whiteoutOpaque:
		return u.opaque(p)
	case strings.HasPrefix(base, whiteoutPrefix):
		p.base = strings.TrimPrefix(base, whiteoutPrefix)
		p.path = p.path[:len(p.path)-len(base)] + p.base
		return u.whiteout(hdr, p)
	}
	return u.create(hdr, r, p, m)
}

func (u *unpacker) create(hdr *tar.Header, r io.Reader, p place, m meta) error {
	switch hdr.Typeflag {
	case tar.TypeDir:
		return u.mkdir(p, m)
	case tar.TypeReg, tar.TypeGNUSparse:
		if f := u.same[p.path]; f != nil {
			return u.share(p, m, f, r)
		}
		return u.file(p, m, r)
	case tar.TypeSymlink:
		return u.symlink(p, m, hdr.Linkname)
	case tar.TypeLink:
		return u.hardlink(p, hdr.Linkname)
	case tar.TypeFifo:
		return u.fifo(p, m)
	case tar.TypeChar, tar.TypeBlock:
		if strings.HasPrefix(p.path, "dev/") {
			return nil // every container has a /dev of its own there
		}
		return errors.New("device nodes are not allowed in images, but below /dev, where they are left out")
	}
	return fmt.Errorf("unknown entry type %q", hdr.Typeflag)
}

// clean makes an archive's path relative. Leading slashes and "./" are an oddity; ".." is an attack.
func (u *unpacker) clean(name string) (string, error) {
	if len(name) > maxPath {
		return "", errors.New("path is too long")
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", errors.New("path has a zero byte")
	}
	parts := splitPath(name)
	if len(parts) > u.cfg.MaxDepth {
		return "", fmt.Errorf("path is deeper than %d directories", u.cfg.MaxDepth)
	}
	for _, p := range parts {
		if p == ".." {
			return "", errors.New(`path has ".."`)
		}
		if len(p) > maxName {
			return "", errors.New("path has a name longer than 255 bytes")
		}
	}
	return strings.Join(parts, "/"), nil
}

func split(path string) (dir, base string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// whiteoutName judges the reserved prefix: what AUFS left is skipped, whiteouts that name nothing or what is
// not below their directory are refused.
func whiteoutName(dir, base string) (skip bool, err error) {
	for part := range strings.SplitSeq(dir, "/") {
		if strings.HasPrefix(part, whiteoutMeta) {
			return true, nil
		}
		if strings.HasPrefix(part, whiteoutPrefix) {
			return false, errors.New("a whiteout is used as a directory")
		}
	}
	if base == whiteoutOpaque {
		return false, nil
	}
	if strings.HasPrefix(base, whiteoutMeta) {
		return true, nil
	}
	switch strings.TrimPrefix(base, whiteoutPrefix) {
	case "", ".", "..":
		return false, errors.New("whiteout of no name")
	}
	return false, nil
}

// place resolves the directory of an entry, makes what is missing of it, and opens it.
func (u *unpacker) place(dir, base string) (place, error) {
	dir, err := u.t.resolve(dir, u.cfg.MaxDepth)
	if err != nil {
		return place{}, err
	}
	fd, err := u.open(dir)
	if err != nil {
		return place{}, err
	}
	return place{fd: fd, base: base, path: join(dir, base)}, nil
}

func join(dir, base string) string {
	if dir == "" {
		return base
	}
	return dir + "/" + base
}

// open opens a directory that has just been resolved, and makes what is missing of its path.
func (u *unpacker) open(dir string) (fd int, err error) {
	own := u.t.dir // what there is of it
	fd = u.t.fd
	for _, base := range splitPath(dir[len(own):]) {
		path := join(own, base)
		m, err := u.implied(path)
		if err != nil {
			return -1, err
		}
		if _, err := u.newDir(place{fd: fd, base: base, path: path}, m); err != nil {
			return -1, err
		}
		if fd, err = u.t.open(path); err != nil {
			return -1, fmt.Errorf("open %q: %w", path, err)
		}
		own = path
	}
	return fd, nil
}

// implied is what a directory gets that no entry speaks of: the owner and mode it has in the layers below. A layer that
// holds only tmp/x must not take the sticky bit from /tmp.
func (u *unpacker) implied(dir string) (meta, error) {
	m := meta{mode: 0o755}
	if len(u.t.lower) == 0 {
		return m, nil
	}
	s, err := u.t.look(dir)
	if err != nil {
		return m, fmt.Errorf("look at %q: %w", dir, err)
	}
	if s.found && kind(&s.st) == unix.S_IFDIR {
		m = metaOf(&s.st)
	}
	return m, nil
}
