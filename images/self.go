package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// SelfName is the image that ledge makes of itself: its own binary and a few harmless applets.
const SelfName = builtInDomain + "self:latest"

// selfBinary is where the binary lies in it.
const selfBinary = "ledge"

// Applets are the programs of the self image; /bin has each as a link to the binary.
var Applets = []string{"echo", "httpd", "pause", "sleep"}

// selfMaker makes the image of ledge's own binary.
type selfMaker struct {
	home     *home
	shelf    *shelf
	stock    *stock
	platform Platform

	mu     sync.Mutex
	binary string // what Self was last asked for
}

// Self makes the built-in image of the given binary (/proc/self/exe), or finds that it is there already. The
// binary's content is shared with the file it came from where the file system can do that. An image of another
// binary loses its name and goes when no container stands on it.
func (d *Disk) Self(ctx context.Context, binary string) (Image, error) {
	err := d.self.have(ctx, binary)
	var img Image
	if err == nil {
		img, err = d.Get(ctx, SelfName)
	}
	if err != nil {
		return Image{}, fmt.Errorf("make image %s: %w", SelfName, err)
	}
	return img, nil
}

// have sees to it that the image is there.
func (m *selfMaker) have(ctx context.Context, binary string) error {
	f, err := os.Open(binary)
	if err != nil {
		return err
	}
	defer f.Close()
	src, err := sourceOf(f)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.binary = binary
	m.mu.Unlock()
	if row := m.row(); row == nil || *row.Source != src || !m.sound(ctx, row) {
		if err := m.make(ctx, f, src); err != nil {
			return err
		}
	}
	return m.dropOld()
}

func sourceOf(f *os.File) (source, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return source{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return source{}, errors.New("the binary is not a file")
	}
	return source{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, MTime: st.Mtim.Nano()}, nil
}

func (m *selfMaker) row() *imageRow {
	row, err := m.stock.catalog.find(SelfName)
	if err != nil || row.Source == nil {
		return nil
	}
	return row
}

// sound looks at the one layer however clean the boot was: it may be the very file that somebody overwrote.
func (m *selfMaker) sound(ctx context.Context, row *imageRow) bool {
	m.shelf.doubt([]*imageRow{row})
	ok, err := m.shelf.chainsSound(ctx, row.chains())
	return ok && err == nil
}

func (m *selfMaker) make(ctx context.Context, f *os.File, src source) error {
	head, tail, err := selfLayer(src.Size)
	if err != nil {
		return err
	}
	archive := func() io.Reader {
		return io.MultiReader(bytes.NewReader(head), io.NewSectionReader(f, 0, src.Size), bytes.NewReader(tail))
	}
	h := sha256.New()
	if _, err := io.Copy(h, archive()); err != nil {
		return err
	}
	diffID := "sha256:" + hex.EncodeToString(h.Sum(nil))
	config, cfg, err := selfConfig(m.platform, diffID)
	if err != nil {
		return err
	}
	blob, err := m.spool(config)
	if err != nil {
		return err
	}
	row := &imageRow{V: rowVersion, ID: blob.digest, Names: []string{SelfName}, Documents: []string{blob.digest},
		Layers: []layerRef{{Chain: diffID, DiffID: diffID}}, Pinned: true, Source: &src, CreatedAt: time.Now().UTC(), Config: cfg}
	err = m.stock.bring(ctx, []*imageRow{row}, map[string]spooled{blob.digest: blob}, func(layerRef) (LayerArchive, io.Closer, error) {
		return LayerArchive{Tar: archive(), Same: map[string]*os.File{selfBinary: f}}, io.NopCloser(nil), nil
	})
	return errors.Join(err, os.RemoveAll(filepath.Dir(blob.path)))
}

// spool puts a document of our own where those of an archive would be.
func (m *selfMaker) spool(data []byte) (spooled, error) {
	dir, err := os.MkdirTemp(m.home.root(ingestDir), "")
	if err != nil {
		return spooled{}, err
	}
	h := sha256.Sum256(data)
	s := spooled{path: filepath.Join(dir, "config"), digest: "sha256:" + hex.EncodeToString(h[:]), size: int64(len(data))}
	return s, os.WriteFile(s.path, data, 0o600)
}

// selfLayer returns the layer's archive without the binary's bytes, which go between head and tail. It depends only
// on those bytes, so that the same binary gives the same image everywhere.
func selfLayer(size int64) (head, tail []byte, err error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, body string) {
		h.Size = int64(len(body))
		if h.Name == selfBinary {
			h.Size = size
		}
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil && body != "" {
			_, err = io.WriteString(w, body)
		}
	}
	for _, dir := range []string{"./", "bin/", "dev/", "etc/", "proc/", "sys/", "root/"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, "")
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, "")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644},
		"root:x:0:0:root:/root:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, "root:x:0:\nnogroup:x:65534:\n")
	for _, a := range Applets {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "/" + selfBinary, Mode: 0o777}, "")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: selfBinary, Mode: 0o755}, "")
	if err != nil {
		return nil, nil, err
	}
	// The writer is left with the binary owing: its bytes, padding and the end mark follow by hand.
	return buf.Bytes(), make([]byte, (512-size%512)%512+1024), nil
}

func selfConfig(p Platform, diffID string) ([]byte, Config, error) {
	c := v1.Image{
		Platform: v1.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant},
		Config: v1.ImageConfig{
			Entrypoint: []string{"/" + selfBinary, "applet"},
			Cmd:        []string{"pause"},
			Env:        []string{"PATH=/bin"},
			WorkingDir: "/",
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.Digest(diffID)}},
	}
	data, err := json.Marshal(c)
	return data, configOf(c.Config), err
}

// dropOld forgets images of binaries that were replaced, as soon as nothing runs from them.
func (m *selfMaker) dropOld() error {
	return m.stock.alone(func() error {
		for _, row := range m.stock.catalog.rows() {
			if row.Source != nil && len(row.Names) == 0 && !m.stock.roots.use(row.ID) {
				if err := m.stock.forget(row); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// heal makes a damaged built-in image again from the binary, if that is still the one it was made of.
func (m *selfMaker) heal(ctx context.Context, row *imageRow) error {
	m.mu.Lock()
	binary := m.binary
	m.mu.Unlock()
	if binary == "" {
		return fmt.Errorf("image %s: %w", SelfName, ErrDamaged)
	}
	if err := m.have(ctx, binary); err != nil {
		return fmt.Errorf("make image %s: %w", SelfName, err)
	}
	if !m.sound(ctx, row) {
		return fmt.Errorf("%w: %s was of another binary", ErrNotFound, row.ID)
	}
	return nil
}
