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

	"ledge/packaging/image/names"
)

// image is a file that is a whole disk, compressed or not.
type image struct {
	path string
	size int64 // unpacked
	data io.Reader
	end  func() error // tells whether all of it could be unpacked
	file *os.File
	said string // what the comparison with the checksum beside it gave
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
	if err := im.whole(); err != nil {
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

// whole compares a download with its checksum, where there is one: by the name that packaging/image gives it, or by the one that people
// give it who make one themselves.
func (im *image) whole() error {
	im.said = "there is no checksum beside it, so nobody knows whether the download is whole"
	for _, name := range []string{names.Checksum(im.path), im.path + ".sha256"} {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		want, others := checksum(string(b), filepath.Base(im.path))
		switch {
		case want == "" && !others:
			return fmt.Errorf("%s holds no checksum: download it again, or remove it", filepath.Base(name))
		case want == "":
			im.said = filepath.Base(name) + " tells nothing about it, so nobody knows whether the download is whole"
			continue
		}
		h := sha256.New()
		if _, err := io.Copy(h, im.file); err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != want {
			return fmt.Errorf("%s says %s, the image is %s: download it again", filepath.Base(name), want, got)
		}
		im.said = "whole, as " + filepath.Base(name) + " says"
		return nil
	}
	return nil
}

// checksum finds that of a file in what sha256sum has written. others says that there are only ones of other files, as of the
// packed image beside one that somebody has unpacked.
func checksum(text, file string) (sum string, others bool) {
	for line := range strings.Lines(text) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		sum, name = strings.ToLower(sum), strings.TrimLeft(name, " *")
		switch b, err := hex.DecodeString(sum); {
		case err != nil || len(b) != sha256.Size:
		case name == "" || filepath.Base(name) == file:
			return sum, false
		default:
			others = true
		}
	}
	return "", others
}

// words are the last output of a command that failed.
func words(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return ": " + strings.TrimSpace(string(e.Stderr))
	}
	return ""
}
