package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// image is a file that is a whole disk, compressed or not.
type image struct {
	path string
	size int64 // unpacked
	data io.Reader
	end  func() error // tells whether all of it could be unpacked
	file *os.File
}

// openImage checks the file against the checksum beside it and unpacks it on the way.
func openImage(ctx context.Context, path string) (*image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	im := &image{path: path, file: f}
	if err = im.open(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return im, nil
}

func (im *image) open(ctx context.Context) error {
	if err := whole(im.file, im.path+".sha256"); err != nil {
		return err
	}
	if _, err := im.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if !strings.HasSuffix(im.path, ".xz") {
		info, err := im.file.Stat()
		if err != nil {
			return err
		}
		im.size, im.data, im.end = info.Size(), im.file, func() error { return nil }
		return im.plausible()
	}
	out, err := exec.CommandContext(ctx, "xz", "--robot", "--list", im.path).Output()
	if err != nil {
		return fmt.Errorf("%s is not an image, or its download is not whole: xz --list: %w%s", im.path, err, words(err))
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == "totals" {
			im.size, err = strconv.ParseInt(f[4], 10, 64)
		}
	}
	if err != nil {
		return fmt.Errorf("size of %s: %w", im.path, err)
	}
	xz := exec.CommandContext(ctx, "xz", "-dc", "-T0")
	var said strings.Builder
	xz.Stdin, xz.Stderr = im.file, &said
	if im.data, err = xz.StdoutPipe(); err != nil {
		return err
	}
	if err := xz.Start(); err != nil {
		return fmt.Errorf("unpack %s: %w", im.path, err)
	}
	im.end = func() error {
		if err := xz.Wait(); err != nil {
			return fmt.Errorf("unpack: %w: %s", err, strings.TrimSpace(said.String()))
		}
		return nil
	}
	return im.plausible()
}

// plausible keeps a picture or a half of an image from being written over a card.
func (im *image) plausible() error {
	if im.size == 0 || im.size%512 != 0 {
		return fmt.Errorf("%s is not the image of a disk: %d bytes", im.path, im.size)
	}
	return nil
}

// Close ends the unpacking too: its pipe breaks.
func (im *image) Close() error {
	if c, ok := im.data.(io.Closer); ok {
		c.Close()
	}
	return im.file.Close()
}

// whole compares a download with its checksum, where there is one.
func whole(f io.Reader, sumFile string) error {
	b, err := os.ReadFile(sumFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	want, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s says %s, the image is %s: download it again", filepath.Base(sumFile), want, got)
	}
	return nil
}

// words are what a command said before it failed.
func words(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return ": " + strings.TrimSpace(string(e.Stderr))
	}
	return ""
}
