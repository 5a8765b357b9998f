package layers

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ledge/images"
)

// Verify implements images.Layers.
func (o *Overlay) Verify(ctx context.Context, dir, manifest string, full bool) error {
	f, err := os.Open(filepath.Join(dir, images.ManifestFile))
	if err != nil {
		return fmt.Errorf("verify layer: %w: %w", images.ErrDamaged, err)
	}
	defer f.Close()
	root, err := openPathDir(filepath.Join(dir, treeDir))
	if err != nil {
		return fmt.Errorf("verify layer: %w: %w", images.ErrDamaged, err)
	}
	defer unix.Close(root)
	c := &checker{root: root, full: full}
	if full {
		c.buf = make([]byte, 128<<10)
	}
	digest, err := readManifest(f, func(r record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return c.check(&r)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if err == nil && digest != manifest {
		err = fmt.Errorf("manifest has the digest %s, not %s", digest, manifest)
	}
	if err != nil {
		return fmt.Errorf("verify layer %s: %w: %w", filepath.Base(dir), images.ErrDamaged, err)
	}
	return nil
}

type checker struct {
	root int
	full bool
	buf  []byte
}

var kindBits = map[byte]uint32{'f': unix.S_IFREG, 'd': unix.S_IFDIR, 'l': unix.S_IFLNK, 'p': unix.S_IFIFO,
	'w': unix.S_IFCHR, 'o': unix.S_IFDIR}

func (c *checker) check(r *record) error {
	st, ok, err := statAt(c.root, r.path)
	if err != nil {
		return fmt.Errorf("%q: %w", r.path, err)
	}
	if !ok {
		return fmt.Errorf("%q is missing", r.path)
	}
	if want, ok := kindBits[r.kind]; ok && kind(&st) != want {
		return fmt.Errorf("%q is of another kind", r.path)
	}
	switch r.kind {
	case 'x':
		return nil
	case 'w':
		if !isWhiteout(&st) {
			return fmt.Errorf("%q is not a whiteout", r.path)
		}
		return nil
	case 'o':
		if !isOpaque(c.root, r.path) {
			return fmt.Errorf("%q is not opaque", r.path)
		}
		return nil
	case 'l':
		target, err := readlinkAt(c.root, r.path)
		if err != nil || crc32.Checksum([]byte(target), castagnoli) != r.crc {
			return fmt.Errorf("link %q points elsewhere", r.path)
		}
		return nil
	}
	if st.Mode&0o7777 != r.mode || st.Uid != r.uid || st.Gid != r.gid {
		return fmt.Errorf("%q has another mode or owner", r.path)
	}
	if r.kind != 'f' && r.kind != 'h' {
		return nil
	}
	if st.Size != r.size {
		return fmt.Errorf("%q has %d bytes, not %d", r.path, st.Size, r.size)
	}
	// The content of a further name is checked under the first.
	if !c.full || r.kind == 'h' {
		return nil
	}
	return c.content(r)
}

func (c *checker) content(r *record) error {
	// O_NOATIME: checking must not write to the card.
	fd, err := openAt(c.root, r.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME)
	if err != nil {
		return fmt.Errorf("%q: %w", r.path, err)
	}
	f := os.NewFile(uintptr(fd), r.path)
	defer f.Close()
	var crc uint32
	for {
		n, err := f.Read(c.buf)
		crc = crc32.Update(crc, castagnoli, c.buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %q: %w", r.path, err)
		}
	}
	// Nobody will ask for it again soon; leave the cache to the pods.
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	if crc != r.crc {
		return fmt.Errorf("%q has other content", r.path)
	}
	return nil
}
