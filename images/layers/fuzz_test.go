package layers

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"ledge/images"
	it "ledge/images/imagestest"
)

// FuzzUnpack: whatever the archive, nothing outside the layer changes, and what is taken verifies.
func FuzzUnpack(f *testing.F) {
	needRoot(f)
	f.Add(it.Layer(it.File("a/b", "x"), it.Symlink("l", "a"), it.File("l/c", "y"), it.Hardlink("h", "/a/b"), it.File(".wh.z", ""),
		it.File("a/.wh..wh..opq", "")))
	for _, c := range corpus {
		if b := c.archive("/nowhere"); len(b) < 8192 {
			f.Add(b)
		}
	}
	base := f.TempDir()
	outside := filepath.Join(base, "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		f.Fatal(err)
	}
	before := listTree(f, outside)
	o := New(Config{MaxBytes: 1 << 20, MaxEntries: 200, MaxDepth: 32, MaxRatio: 50, RatioSlack: 64 << 10})
	low := filepath.Join(base, "low")
	if err := os.Mkdir(low, 0o700); err != nil {
		f.Fatal(err)
	}
	if _, err := o.Unpack(context.Background(), low, images.LayerArchive{Tar: bytes.NewReader(
		it.Layer(it.Symlink("a", "../outside"), it.File("z", "low"), it.File("l/x", "low")))}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir, err := os.MkdirTemp(base, "l-")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := o.Remove(dir); err != nil {
				t.Error(err)
			}
		}()
		u, err := o.Unpack(context.Background(), dir, images.LayerArchive{Tar: bytes.NewReader(b), Lower: []string{low}})
		if err == nil {
			if err := o.Verify(context.Background(), dir, u.Manifest, true); err != nil {
				t.Error(err)
			}
		}
		if after := listTree(t, outside); after != before {
			t.Errorf("changed outside:\n%s", after)
		}
	})
}
