package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

const maxArchiveFiles = 20_000

// spool holds the files of an archive on disk while it is read: they come in any order, and what they are is said
// by another of them. It is the Archive that Resolve looks at.
type spool struct {
	dir   string
	n     int
	files map[string]spooled
	links map[string]string // docker save writes a repeated layer as a link
}

type spooled struct {
	path   string
	digest string
	size   int64
}

// newSpool reads an archive of at most limit bytes to the ingest directory. Nothing is synced: what turns out to be wanted will be.
func newSpool(ctx context.Context, h *home, work Layers, r io.Reader, limit int64) (*spool, error) {
	dir, err := os.MkdirTemp(h.root(ingestDir), "")
	if err != nil {
		return nil, err
	}
	s := &spool{dir: dir, files: map[string]spooled{}, links: map[string]string{}}
	plain, err := work.Decompress(&ctxReader{ctx, r})
	if err == nil {
		err = s.read(plain, limit)
		_ = plain.Close()
	}
	if err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

func (s *spool) read(r io.Reader, limit int64) error {
	left := limit
	tr := tar.NewReader(r)
	buf := make([]byte, 256<<10)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not a whole image archive (a tar of an OCI layout, or what docker save wrote): %w", err)
		}
		if s.n+len(s.links) >= maxArchiveFiles {
			return fmt.Errorf("archive has more than %d files", maxArchiveFiles)
		}
		if left -= hdr.Size; left < 0 {
			return fmt.Errorf("archive holds more than %d bytes", limit)
		}
		if err := s.entry(hdr, tr, buf); err != nil {
			return fmt.Errorf("archive entry %.200q: %w", hdr.Name, err)
		}
	}
}

func (s *spool) discard() error { return os.RemoveAll(s.dir) }

func (s *spool) entry(hdr *tar.Header, r io.Reader, buf []byte) error {
	name := cleanName(hdr.Name)
	switch hdr.Typeflag {
	case tar.TypeSymlink:
		s.links[name] = cleanName(path.Join(path.Dir(name), hdr.Linkname))
	case tar.TypeLink:
		s.links[name] = cleanName(hdr.Linkname)
	case tar.TypeReg:
		f, err := s.write(r, buf)
		if err != nil {
			return err
		}
		// One name, two contents: whoever checks and whoever uses might see different ones.
		if old, ok := s.files[name]; ok && old.digest != f.digest {
			return errors.New("is there twice, with different content")
		}
		if dir, hex := path.Split(name); dir == "blobs/sha256/" && f.digest != "sha256:"+hex {
			return fmt.Errorf("content has the digest %s", f.digest)
		}
		s.files[name] = f
	}
	return nil
}

// cleanName makes names comparable. They only ever name entries of the archive, never files of ours.
func cleanName(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (s *spool) write(r io.Reader, buf []byte) (spooled, error) {
	s.n++
	f, err := os.OpenFile(filepath.Join(s.dir, strconv.Itoa(s.n)), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return spooled{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(f, h)}, r, buf)
	if err != nil {
		return spooled{}, err
	}
	return spooled{f.Name(), "sha256:" + hex.EncodeToString(h.Sum(nil)), n}, f.Close()
}

func (s *spool) find(name string) (spooled, bool) {
	for range 8 {
		if f, ok := s.files[name]; ok {
			return f, true
		}
		next, ok := s.links[name]
		if !ok {
			break
		}
		name = next
	}
	return spooled{}, false
}

// Stat implements Archive.
func (s *spool) Stat(name string) (digest string, size int64, ok bool) {
	f, ok := s.find(name)
	return f.digest, f.size, ok
}

// Read implements Archive.
func (s *spool) Read(name string) ([]byte, error) {
	f, ok := s.find(name)
	if !ok {
		return nil, fmt.Errorf("archive has no %s: %w", name, fs.ErrNotExist)
	}
	if f.size > MaxDocument {
		return nil, fmt.Errorf("%s has %d bytes, more than a document may have", name, f.size)
	}
	return os.ReadFile(f.path)
}

// byDigest gives the spooled file of a digest.
func (s *spool) byDigest() map[string]spooled {
	m := make(map[string]spooled, len(s.files))
	for _, f := range s.files {
		m[f.digest] = f
	}
	return m
}

// ctxReader ends a long read when nobody wants it any more.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
