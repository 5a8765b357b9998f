// Package archives imports image archives that lie in a directory, such as one on a boot partition.
package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ledge/images"
)

// Dir imports the image archives of a directory, such as one on a boot partition: each once, and again when the
// file has changed. What a person removed afterwards stays removed.
type Dir struct {
	Path string
	Rows images.Index // which files have been imported: size and time of each
	Load func(context.Context, io.Reader) ([]images.Image, error)

	Failed func(name string, err error) // is told of each that could not be; nil: nobody is
}

// Run imports what is new and ends: a directory on a boot partition changes while the board is off.
func (a *Dir) Run(ctx context.Context) error {
	if err := a.scan(ctx); err != nil && ctx.Err() == nil {
		slog.Warn("image archives could not all be imported; the next start tries again", "dir", a.Path, "err", err)
	}
	return nil
}

func (a *Dir) scan(ctx context.Context) error {
	list, err := os.ReadDir(a.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	done, _, err := a.Rows.All()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		if !Is(e.Name()) || e.IsDir() || ctx.Err() != nil {
			continue
		}
		if err := a.file(ctx, e.Name(), string(done[e.Name()])); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Name(), err))
			if a.Failed != nil && ctx.Err() == nil {
				a.Failed(e.Name(), err)
			}
		}
	}
	return errors.Join(errs...)
}

func (a *Dir) file(ctx context.Context, name, known string) error {
	f, err := os.Open(filepath.Join(a.Path, name))
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	mark := fmt.Sprintf("%d %d", fi.Size(), fi.ModTime().Unix())
	if mark == known {
		return nil
	}
	list, err := a.Load(ctx, f)
	if err != nil {
		return err
	}
	for _, img := range list {
		slog.Info("image imported", "file", name, "names", img.Names)
	}
	return a.Rows.Put(name, []byte(mark))
}

// Is goes by the name: other things lie on a boot partition too.
func Is(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst"}, func(s string) bool {
		return strings.HasSuffix(strings.ToLower(name), s)
	})
}

// Find is where archives lie: as configured, else the folder images/ of a boot partition, which every computer with a
// card reader can write, if there is one. Boot partitions are mounted at either of these.
func Find(configured, root string) string {
	if configured != "" {
		return configured
	}
	for _, boot := range []string{"boot/firmware", "boot"} {
		dir := filepath.Join(root, boot, "images")
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}
