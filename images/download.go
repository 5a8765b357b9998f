package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	partSuffix = ".part" // ingest/<hex>.part: a blob as far as it has come
	markSuffix = ".mark" // beside it: how much of it is safely on disk

	// A long download is synced now and then, so that a power cut does not cost all of it. A short one is not: it
	// would only wear the card.
	markEvery = 30 * time.Second
	markBytes = 4 << 20

	copyBuffer  = 256 << 10
	mostRetries = 6 // in a row, without a byte between them
)

// loader has what all downloads share.
type loader struct {
	home       *home
	registry   Registry
	parts      *parts
	retryPause time.Duration
	markEvery  time.Duration
}

// download is one blob on its way to the disk. One goroutine writes it, and an unpacker may read behind.
type download struct {
	from *loader
	req  BlobRequest
	size int64
	path string // of the file that holds it: in ingest/, or the blob that is here already
	// marked means that the download took so long that part of it was synced. Only the downloading goroutine may
	// touch it, or anyone after that goroutine has ended.
	marked bool

	mu      sync.Mutex
	file    *os.File // at path, for followers; set before n grows
	grown   *sync.Cond
	n       int64 // bytes there, from the start
	life    int   // grows when it starts again because the content was wrong
	fetched int64 // bytes that came now
	ready   bool  // unpacked
	trouble error // why nothing comes at the moment
	over    bool
	err     error
}

func (l *loader) download(req BlobRequest, size int64) *download {
	f := &download{from: l, req: req, size: size, path: l.home.partPath(req.Digest)}
	f.grown = sync.NewCond(&f.mu)
	return f
}

// run brings the blob here, whole and with the right digest, or says why not. What has come stays on disk.
func (f *download) run(ctx context.Context) error {
	for tries := 0; ; tries++ {
		err := f.fetch(ctx)
		if errors.Is(err, errRestart) && tries < 3 {
			f.restart(err)
			continue
		}
		if err != nil {
			err = fmt.Errorf("blob %s: %w", f.req.Digest, err)
		}
		f.mu.Lock()
		f.over, f.err = true, err
		f.mu.Unlock()
		f.grown.Broadcast()
		return err
	}
}

// restart takes back all that followers have read.
func (f *download) restart(why error) {
	f.mu.Lock()
	f.n, f.life, f.trouble = 0, f.life+1, why
	f.mu.Unlock()
	f.grown.Broadcast()
}

// outcome waits until one life of the download has ended: again says that another has begun.
func (f *download) outcome(ctx context.Context, life int) (again bool, err error) {
	defer context.AfterFunc(ctx, f.wake)()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.over && f.life == life && ctx.Err() == nil {
		f.grown.Wait()
	}
	if f.life != life {
		return true, nil
	}
	if f.over {
		return false, f.err
	}
	return false, ctx.Err()
}

func (f *download) fetch(ctx context.Context) error {
	// Another pull may be at the same blob; it is done when the lock is ours.
	defer f.from.parts.locks.lock(f.req.Digest)()
	if f.fromBlob(ctx) {
		return nil
	}
	if err := f.open(); err != nil {
		return err
	}
	err := f.fill(ctx)
	if err != nil && f.n == 0 {
		err = errors.Join(err, removeFile(f.path))
	}
	return err
}

// fromBlob uses a blob that another image keeps, if its content has the right digest.
func (f *download) fromBlob(ctx context.Context) bool {
	path := f.from.home.blobPath(f.req.Digest)
	fi, err := os.Lstat(path)
	if err != nil || fi.Size() != f.size {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	h := sha256.New()
	if _, err := io.Copy(h, &ctxReader{ctx, file}); err != nil || "sha256:"+hex.EncodeToString(h.Sum(nil)) != f.req.Digest {
		_ = file.Close()
		return false
	}
	f.mu.Lock()
	f.file = file
	f.mu.Unlock()
	f.add(int(f.size), false)
	return true
}

// open makes the part file, or opens that of an earlier try.
func (f *download) open() error {
	f.close()
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.file = file
	return nil
}

// close lets go of the file. Nobody follows any more.
func (f *download) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}

// errRestart means that the bytes read so far had the wrong content and were thrown away.
var errRestart = errors.New("wrong content, starting again")

// fill takes up what an earlier try left and gets the rest.
func (f *download) fill(ctx context.Context) error {
	h := sha256.New()
	if err := f.resume(ctx, h); err != nil {
		return err
	}
	w := &partWriter{f: f, file: f.file, hash: h, marked: time.Now(), resumed: f.n > 0}
	for tries := 0; ; {
		if f.n == f.size {
			return f.finish(h, w)
		}
		before := f.n
		err := f.get(ctx, w)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errStorage) || permanent(err):
			return err
		}
		if tries++; f.n > before {
			tries = 1
		}
		if tries > mostRetries {
			return err
		}
		f.say(err)
		if err := pause(ctx, max(f.from.retryPause<<(tries-1), retryAfter(err))); err != nil {
			return err
		}
	}
}

// resume hashes what is there already. A file that is too long is nobody's.
func (f *download) resume(ctx context.Context, h hash.Hash) error {
	if fi, err := f.file.Stat(); err != nil {
		return err
	} else if fi.Size() > f.size {
		return f.file.Truncate(0)
	}
	buf := make([]byte, copyBuffer)
	for {
		n, err := f.file.Read(buf)
		h.Write(buf[:n])
		f.add(n, false)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}

// get reads one stream as far as it goes.
func (f *download) get(ctx context.Context, w *partWriter) error {
	req := f.req
	req.Offset = f.n
	s, err := f.from.registry.Blob(ctx, req)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.From != 0 && s.From != req.Offset || s.From > req.Offset {
		return fmt.Errorf("%s sent bytes from %d when asked for those from %d", s.Place, s.From, req.Offset)
	}
	w.place = s.Place
	// What is here already is skipped when the registry cannot begin in the middle.
	if _, err := io.CopyN(io.Discard, s, req.Offset-s.From); err != nil {
		return fmt.Errorf("read from %s: %w", s.Place, unexpected(err))
	}
	f.say(nil)
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(struct{ io.Reader }{s}, f.size-f.n), make([]byte, copyBuffer))
	switch {
	case err != nil:
		return fmt.Errorf("read from %s: %w", s.Place, err)
	case f.n < f.size:
		return fmt.Errorf("read from %s: %d bytes are missing: %w", s.Place, f.size-req.Offset-n, io.ErrUnexpectedEOF)
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// finish holds the whole against its digest. Wrong content goes, and whoever gave all of it is not asked again.
func (f *download) finish(h hash.Hash, w *partWriter) error {
	got := "sha256:" + hex.EncodeToString(h.Sum(nil))
	if got == f.req.Digest {
		return nil
	}
	if !w.resumed {
		f.req.Avoid = append(slices.Clone(f.req.Avoid), w.place)
	}
	err := errors.Join(os.Remove(f.path), removeFile(f.from.home.markPath(f.req.Digest)))
	return errors.Join(fmt.Errorf("content from %s has the digest %s: %w", w.place, got, errRestart), err)
}

func (f *download) add(n int, now bool) {
	f.mu.Lock()
	f.n += int64(n)
	if now {
		f.fetched += int64(n)
	}
	f.mu.Unlock()
	f.grown.Broadcast()
}

func (f *download) say(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble = err
}

func (f *download) current() (life int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.life
}

func (f *download) unpacked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = true
}

func (f *download) status() LayerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := LayerStatus{Digest: f.req.Digest, Size: f.size, Fetched: f.n, Ready: f.ready}
	if f.trouble != nil {
		st.Trouble = f.trouble.Error()
	}
	return st
}
