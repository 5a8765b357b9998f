package layers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is what RFC 8878 asks every decoder to support, and more than any default level uses. A larger
// window lets a few bytes claim gigabytes of memory.
const maxWindow = 8 << 20

// decompress looks at the first bytes, not at what the manifest says.
func decompress(r io.Reader) (rc io.ReadCloser, packed bool, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	magic, err := br.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		rc, err = gzip.NewReader(br)
		return rc, true, err
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}),
		len(magic) >= 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:4], []byte{0x2a, 0x4d, 0x18}):
		d, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, true, err
		}
		return d.IOReadCloser(), true, nil
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z'}), bytes.HasPrefix(magic, []byte("BZh")):
		return nil, true, errors.New("xz and bzip2 are not supported; use gzip, zstd or none")
	}
	return io.NopCloser(br), false, nil
}

// meter counts what a reader gave and ends it when the context does.
type meter struct {
	r   io.Reader
	ctx context.Context
	n   int64
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.r.Read(p)
	m.n += int64(n)
	return n, err
}

// budget bounds what may come out of an archive, both absolutely and against what went in.
type budget struct {
	in    *meter
	cfg   *Config
	spent int64
}

// spend takes n bytes of file content.
func (b *budget) spend(n int64) error {
	b.spent += n
	if b.spent > b.cfg.MaxBytes {
		return fmt.Errorf("layer holds more than %d bytes", b.cfg.MaxBytes)
	}
	return b.ratio(b.spent)
}

func (b *budget) ratio(out int64) error {
	if out > b.cfg.RatioSlack+b.cfg.MaxRatio*b.in.n {
		return fmt.Errorf("layer expands more than %d times (decompression bomb)", b.cfg.MaxRatio)
	}
	return nil
}

// stream is the decompressed archive under the same bounds: headers and padding can be a bomb too.
type stream struct {
	r io.Reader
	b *budget
	n int64
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	// Headers of all entries beside the content.
	if s.n > s.b.cfg.MaxBytes+int64(s.b.cfg.MaxEntries)*4096 {
		return n, fmt.Errorf("layer archive is longer than %d bytes", s.b.cfg.MaxBytes)
	}
	if rerr := s.b.ratio(s.n); rerr != nil {
		return n, rerr
	}
	return n, err
}
