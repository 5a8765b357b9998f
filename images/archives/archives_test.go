package archives

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ledge/images"
	"ledge/images/fake"
	it "ledge/images/imagestest"
)

// rowsOf is a table in memory.
type rowsOf map[string][]byte

func (r rowsOf) Put(k string, v []byte) error              { r[k] = v; return nil }
func (r rowsOf) Delete(k string) error                     { delete(r, k); return nil }
func (r rowsOf) All() (map[string][]byte, []string, error) { return maps.Clone(r), nil, nil }

// Without a word in the configuration archives are looked for on the boot partition.
func TestArchiveDir(t *testing.T) {
	root := t.TempDir()
	check := func(configured, want string) {
		t.Helper()
		if got := Find(configured, root); got != want {
			t.Errorf("archives of %q are in %q, not in %q", configured, got, want)
		}
	}
	check("", "")
	old, today := filepath.Join(root, "boot/images"), filepath.Join(root, "boot/firmware/images")
	must(t, os.MkdirAll(filepath.Dir(today), 0o700))
	must(t, os.WriteFile(today, nil, 0o600))
	check("", "")
	must(t, os.Mkdir(old, 0o700))
	check("", old)
	must(t, os.Remove(today))
	must(t, os.Mkdir(today, 0o700))
	check("", today)
	check("/else", "/else")
}

// Archives of a directory are imported once, and again when they have changed; one that is broken stops no other.
func TestArchives(t *testing.T) {
	dir := t.TempDir()
	s := &fake.Store{}
	loads := 0
	a := &Dir{Path: dir, Rows: rowsOf{}, Load: func(ctx context.Context, r io.Reader) ([]images.Image, error) {
		loads++
		return s.Import(ctx, r)
	}}
	put := func(name string, data []byte) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	put("a.tar", it.OCI(it.Sample("a:1")))
	put("b.tar.gz", it.Gzip(it.Docker(it.Sample("b:1"))))
	put("broken.TAR", []byte("no archive"))
	put("readme.txt", it.OCI(it.Sample("c:1")))
	put(".hidden.tar", it.OCI(it.Sample("d:1")))
	if err := a.scan(t.Context()); err == nil {
		t.Error("nothing said of the broken one")
	}
	names := func() []string {
		list, err := s.List(t.Context())
		must(t, err)
		var out []string
		for _, img := range list {
			out = append(out, img.Names...)
			if !img.Pinned {
				t.Errorf("%v is not pinned", img.Names)
			}
		}
		return out
	}
	want := []string{"docker.io/library/a:1", "docker.io/library/b:1"}
	if got := names(); !slices.Equal(got, want) || loads != 3 {
		t.Errorf("%q after %d imports", got, loads)
	}
	// The next start: only the broken one is tried, and what was removed stays so.
	must(t, s.Remove(t.Context(), "a:1"))
	must(t, a.Run(t.Context()))
	if got := names(); !slices.Equal(got, want[1:]) || loads != 4 {
		t.Errorf("%q after %d imports", got, loads)
	}
	put("a.tar", it.OCI(it.Sample("a:2")))
	must(t, os.Chtimes(filepath.Join(dir, "a.tar"), time.Time{}, time.Now().Add(time.Hour)))
	must(t, os.Remove(filepath.Join(dir, "broken.TAR")))
	must(t, a.scan(t.Context()))
	if got := names(); !slices.Equal(got, []string{"docker.io/library/a:2", "docker.io/library/b:1"}) || loads != 5 {
		t.Errorf("%q after %d imports", got, loads)
	}
	a.Path = filepath.Join(dir, "none")
	must(t, a.scan(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.Path, a.Rows = dir, rowsOf{}
	if err := a.scan(ctx); err != nil && !errors.Is(err, context.Canceled) || loads != 5 {
		t.Errorf("%v after %d imports", err, loads)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
