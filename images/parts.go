package images

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// partsStay is how long a download stays that nobody goes on with.
const partsStay = 14 * 24 * time.Hour

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
	if time.Since(w.marked) > w.f.from.markEvery && w.f.n-w.safe >= markBytes {
		if err := w.mark(); err != nil {
			return 0, fmt.Errorf("%w: %w", errStorage, err)
		}
	}
	return len(p), nil
}

// mark makes what has come durable first, and then says so.
func (w *partWriter) mark() error {
	h := w.f.from.home
	if err := h.durable.SyncFile(w.f.path); err != nil {
		return h.note(err)
	}
	if err := h.writeJSON(h.markPath(w.f.req.Digest), w.f.n); err != nil {
		return h.note(err)
	}
	w.marked, w.safe, w.f.marked = time.Now(), w.f.n, true
	return nil
}

// parts are the downloads that are on disk, done or not.
type parts struct {
	home  *home
	work  Layers
	pulls *pulls
	locks keyLocks // by digest: who downloads it
}

// keep clears ingest at Open but for what a download can go on from. After a power cut only as much of it is
// believed as was synced.
func (p *parts) keep(suspect bool) error {
	list, err := os.ReadDir(p.home.root(ingestDir))
	if err != nil {
		return err
	}
	for _, e := range list {
		hex, isPart := strings.CutSuffix(e.Name(), partSuffix)
		hex, isMark := strings.CutSuffix(hex, markSuffix)
		path := p.home.root(ingestDir, e.Name())
		switch {
		case !isHex(hex, 64) || !e.Type().IsRegular():
			err = p.work.Remove(path)
		case isPart && suspect:
			err = trimPart(path, readMark(p.home.root(ingestDir, hex+markSuffix)))
		case isMark:
			if _, serr := os.Lstat(p.home.root(ingestDir, hex+partSuffix)); serr != nil {
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
func (p *parts) dropDone(rows []*imageRow) error {
	var errs []error
	for _, row := range rows {
		for _, l := range row.Layers {
			if l.From != "" {
				errs = append(errs, p.remove(l.From))
			}
		}
	}
	return errors.Join(errs...)
}

// dropOld removes unfinished downloads: the old ones, or all that no pull works on.
func (p *parts) dropOld(all bool) (bytes int64, err error) {
	list, err := os.ReadDir(p.home.root(ingestDir))
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range list {
		hex, ok := strings.CutSuffix(e.Name(), partSuffix)
		fi, err := e.Info()
		// Who holds the lock of a part must not be waited for here.
		if !ok || err != nil || !all && time.Since(fi.ModTime()) < partsStay || p.pulls.loading("sha256:"+hex, nil) {
			continue
		}
		if err := p.drop(nil, "sha256:"+hex); err != nil {
			errs = append(errs, err)
			continue
		}
		bytes += fi.Size()
	}
	return bytes, errors.Join(errs...)
}

// drop forgets a part that a pull is done with, unless another is at it. Who begins with it meanwhile waits for the lock.
func (p *parts) drop(own *pull, digest string) error {
	defer p.locks.lock(digest)()
	if p.pulls.loading(digest, own) {
		return nil
	}
	return p.remove(digest)
}

func (p *parts) remove(digest string) error {
	return errors.Join(removeFile(p.home.partPath(digest)), removeFile(p.home.markPath(digest)))
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

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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
