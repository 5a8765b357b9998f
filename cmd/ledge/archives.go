package main

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

// archives imports the image archives of a directory, such as one on a boot partition: each once, and again when the
// file has changed. What a person removed afterwards stays removed.
type archives struct {
	dir  string
	rows images.Index // which files have been imported: size and time of each
	load func(context.Context, io.Reader) ([]images.Image, error)

	failed func(name string, err error) // is told of each that could not be; nil: nobody is
}

// Run imports what is new and ends: a directory on a boot partition changes while the board is off.
func (a *archives) Run(ctx context.Context) error {
	if err := a.scan(ctx); err != nil && ctx.Err() == nil {
		slog.Warn("image archives could not all be imported; the next start tries again", "dir", a.dir, "err", err)
	}
	return nil
}

func (a *archives) scan(ctx context.Context) error {
	list, err := os.ReadDir(a.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	done, _, err := a.rows.All()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		if !isArchive(e.Name()) || e.IsDir() || ctx.Err() != nil {
			continue
		}
		if err := a.file(ctx, e.Name(), string(done[e.Name()])); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Name(), err))
			if a.failed != nil && ctx.Err() == nil {
				a.failed(e.Name(), err)
			}
		}
	}
	return errors.Join(errs...)
}

func (a *archives) file(ctx context.Context, name, known string) error {
	f, err := os.Open(filepath.Join(a.dir, name))
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
	list, err := a.load(ctx, f)
	if err != nil {
		return err
	}
	for _, img := range list {
		slog.Info("image imported", "file", name, "names", img.Names)
	}
	return a.rows.Put(name, []byte(mark))
}

// isArchive goes by the name: other things lie on a boot partition too.
func isArchive(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst"}, func(s string) bool {
		return strings.HasSuffix(strings.ToLower(name), s)
	})
}

// archiveDir is where archives lie: as configured, else the folder images/ of a boot partition, which every computer with a
// card reader can write, if there is one. Boot partitions are mounted at either of these.
func archiveDir(configured, root string) string {
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

// importArchives is archives for this board.
func (b *brain) importArchives(ctx context.Context, dir string, failed func(name string, err error)) error {
	a := &archives{dir: dir, failed: failed, rows: b.store.Table("archives"), load: func(ctx context.Context, r io.Reader) ([]images.Image, error) {
		list, err := b.images.Import(ctx, r)
		if err == nil {
			b.agent.ImagesChanged()
		}
		return list, err
	}}
	return a.Run(ctx)
}
