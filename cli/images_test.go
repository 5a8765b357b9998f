package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ledge/images/fake"
	it "ledge/images/imagestest"
)

// What is imported may be an archive, or an OCI layout as other programs leave it: a directory.
func TestOpenArchive(t *testing.T) {
	archive := it.OCI(it.Sample("a:1"))
	dir := t.TempDir()
	file, layout := filepath.Join(dir, "a.tar"), filepath.Join(dir, "layout")
	must(t, os.WriteFile(file, archive, 0o600))
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		path := filepath.Join(layout, hdr.Name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, data, 0o600))
	}
	for _, path := range []string{file, layout} {
		r, err := openArchive(path)
		must(t, err)
		list, err := (&fake.Store{}).Import(t.Context(), r)
		if err != nil || len(list) != 1 || !slices.Equal(list[0].Names, []string{"docker.io/library/a:1"}) {
			t.Errorf("%s: %+v, %v", path, list, err)
		}
		must(t, r.Close())
	}
	if _, err := openArchive(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	if _, err := openArchive(filepath.Join(dir, "empty")); err == nil || !strings.Contains(err.Error(), "is no image") {
		t.Errorf("an empty directory: %v", err)
	}
}
