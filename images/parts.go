package images

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errStorage marks failures of our own disk: no registry can mend them.
var errStorage = errors.New("cannot keep what was downloaded")

// partWriter appends to a part file and notes from time to time how much of it is safe.
type partWriter struct {
	f       *download
	file    *os.File
	hash    hash.Hash
	place   string // who sends
	resumed bool   // the beginning is of an earlier time
	marked  time.Time
	safe    int64
}

func (w *partWriter) Write(p []byte) (int, error) {
	if _, err := w.file.WriteAt(p, w.f.n); err != nil {
		return 0, fmt.Errorf("%w: %w", errStorage, err)
	}
	w.hash.Write(p)
	w.f.add(len(p), true)
	if time.Since(w.marked) > w.f.d.cfg.MarkEvery && w.f.n-w.safe >= markBytes {
		if err := w.mark(); err != nil {
			return 0, fmt.Errorf("%w: %w", errStorage, err)
		}
	}
	return len(p), nil
}

// mark makes what has come durable first, and then says so.
func (w *partWriter) mark() error {
	d := w.f.d
	if err := d.durable.SyncFile(w.f.path); err != nil {
		return d.note(err)
	}
	if err := d.writeJSON(d.markPath(w.f.req.Digest), w.f.n); err != nil {
		return d.note(err)
	}
	w.marked, w.safe, w.f.marked = time.Now(), w.f.n, true
	return nil
}

// keepParts clears ingest at Open but for what a download can go on from. After a power cut only as much of it is
// believed as was synced.
func (d *Disk) keepParts(suspect bool) error {
	list, err := os.ReadDir(d.root(ingestDir))
	if err != nil {
		return err
	}
	for _, e := range list {
		hex, isPart := strings.CutSuffix(e.Name(), partSuffix)
		hex, isMark := strings.CutSuffix(hex, markSuffix)
		path := d.root(ingestDir, e.Name())
		switch {
		case !isHex(hex, 64) || !e.Type().IsRegular():
			err = d.cfg.Layers.Remove(path)
		case isPart && suspect:
			err = trimPart(path, readMark(d.root(ingestDir, hex+markSuffix)))
		case isMark:
			if _, serr := os.Lstat(d.root(ingestDir, hex+partSuffix)); serr != nil {
				err = removeFile(path)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropDone forgets parts of images that are READY: the last process ended between the two.
func (d *Disk) dropDone() error {
	var errs []error
	for _, row := range d.rows() {
		for _, l := range row.Layers {
			if l.From != "" {
				errs = append(errs, removeFile(d.partPath(l.From)), removeFile(d.markPath(l.From)))
			}
		}
	}
	return errors.Join(errs...)
}

func readMark(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func trimPart(path string, size int64) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if size <= 0 || fi.Size() < size {
		return errors.Join(os.Remove(path), removeFile(strings.TrimSuffix(path, partSuffix)+markSuffix))
	}
	return os.Truncate(path, size)
}

// dropPart forgets a part that a pull is done with, unless another is at it.
func (d *Disk) dropPart(p *pull, digest string) error {
	defer d.parts.lock(digest)()
	d.mu.Lock()
	defer d.mu.Unlock()
	for other := range d.pulls {
		if other != p && slices.ContainsFunc(other.loads, func(f *download) bool { return f.req.Digest == digest }) {
			return nil
		}
	}
	return errors.Join(removeFile(d.partPath(digest)), removeFile(d.markPath(digest)))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// room says whether that many bytes more fit on the disk. If not, what nobody uses has to go.
func (d *Disk) room(ctx context.Context, bytes int64) error {
	_, free, err := d.space()
	if err != nil || bytes <= free {
		return err
	}
	if _, err := d.Collect(ctx, true); err != nil {
		return err
	}
	if _, free, err = d.space(); err != nil || bytes <= free {
		return err
	}
	return fmt.Errorf("%d MB are to be downloaded and only %d MB are free on the disk of %s: %w", bytes>>20, free>>20,
		filepath.Clean(d.cfg.Root), unix.ENOSPC)
}

// space is how large the disk is and what is free of it.
func (d *Disk) space() (capacity, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(d.cfg.Root, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: d.cfg.Root, Err: err}
	}
	if d.cfg.Statfs != nil {
		d.cfg.Statfs(&st)
	}
	return int64(st.Blocks) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize), nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
