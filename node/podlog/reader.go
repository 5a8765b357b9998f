package podlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ledge/api"
)

// reader turns CRI log lines back into what the container wrote: all that is kept of an attempt, oldest file
// first, and with Follow what comes after it. It reads files it has opened, never names, for a full log is renamed
// under its hands.
type reader struct {
	ctx   context.Context
	opts  api.LogOptions
	path  string      // the file that is being written
	ended func() bool // the container does not run any more
	// next gives the log of the container's next instance, or "" while there is none; more is false when there will be
	// none. Nil: this instance only.
	next func() (path string, more bool)

	f    *os.File
	then []*os.File // to be read after f, oldest first
	in   *bufio.Reader
	part []byte // a line that is not complete yet
	out  bytes.Buffer
	left *int64 // LimitBytes
	drop int64  // lines to skip, for TailLines
	mid  bool   // in the middle of a line that was written in pieces
	last bool   // the container had ended before the last look
}

// open takes hold of what there is. A tail is counted here, once: what comes later is new.
func (r *reader) open() (err error) {
	if r.opts.LimitBytes != nil {
		n := *r.opts.LimitBytes
		r.left = &n
	}
	if r.then, err = openLogs(r.path); err != nil {
		return err
	}
	if r.opts.TailLines == nil {
		return nil
	}
	var lines int64
	// One line more than asked for: it shows where the first one begins, which may be in an older file.
	for i := len(r.then) - 1; i >= 0; i-- {
		n, open := countLines(r.then[i], r.opts.Since)
		if lines += n; open && i == len(r.then)-1 {
			lines++ // the last one has no end: not yet, or never
		}
		if _, err := r.then[i].Seek(0, io.SeekStart); err != nil {
			return errors.Join(api.NewInternal("read log: %v", err), r.Close())
		}
		if lines > *r.opts.TailLines {
			closeAll(r.then[:i])
			r.then = r.then[i:]
			break
		}
	}
	r.drop = max(0, lines-*r.opts.TailLines)
	return nil
}

// openLogs opens all files of a log, oldest first. The current file is opened before the older ones are listed: if it
// is renamed meanwhile it is found twice, which can be seen, and never missed.
func openLogs(path string) (out []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(out)
			out, err = nil, api.NewInternal("open log: %v", err)
		}
	}()
	present, err := os.Open(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	defer func() {
		if present != nil {
			out = append(out, present)
		}
	}()
	first, last, err := numbersOf(path)
	if err != nil {
		return nil, err
	}
	for n := first; ; n++ {
		f, err := os.Open(path + "." + strconv.Itoa(n))
		switch {
		case errors.Is(err, os.ErrNotExist) && n > last:
			return out, nil
		case errors.Is(err, os.ErrNotExist):
			continue // too old by now
		case err != nil:
			return out, err
		}
		out = append(out, f)
		if present != nil && sameFile(f, present) {
			_ = present.Close()
			present = nil
		}
	}
}

// numbersOf gives the numbers of a log's oldest and newest full files. A directory that changes while it is read may
// hide any new name, so these only say where to look.
func numbersOf(path string) (first, last int, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, err
	}
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		n, err := strconv.Atoi(suffix)
		if !ok || err != nil {
			continue
		}
		if last = max(last, n); first == 0 {
			first = n
		}
		first = min(first, n)
	}
	return max(first, 1), last, nil
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(x, y)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// countLines also says whether the last line is only part of one.
func countLines(f io.Reader, since time.Time) (n int64, open bool) {
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return n, open
		}
		l, ok := parseLine(line)
		switch {
		case !ok || l.at.Before(since):
		case l.partial:
			open = true
		default:
			n, open = n+1, false
		}
	}
}

// Read gives the next bytes. Without Follow it ends at the end of what there was; with it, when the container has
// ended for good and everything it wrote has been read, or ctx ends.
func (r *reader) Read(p []byte) (int, error) {
	if r.left != nil {
		if *r.left <= 0 {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), *r.left)]
	}
	for r.out.Len() == 0 {
		more, err := r.fill()
		if err != nil {
			return 0, err
		}
		if !more {
			if done, err := r.pause(); done {
				return 0, err
			}
		}
	}
	n, err := r.out.Read(p)
	if r.left != nil {
		*r.left -= int64(n)
	}
	return n, err
}

// pause goes on to the next file, or waits for more to be written. A look at the files comes after the look at the
// container, so that nothing written before its end is missed.
func (r *reader) pause() (done bool, err error) {
	if r.use() {
		return false, nil
	}
	if !r.opts.Follow {
		return true, io.EOF
	}
	moved, err := r.advance()
	switch {
	case moved || err != nil:
		return err != nil, err
	case !r.last:
		r.last = r.ended()
		if r.last {
			return false, nil
		}
	default:
		path, more := "", false
		if r.next != nil {
			path, more = r.next()
		}
		switch {
		case path != "":
			return false, r.restart(path)
		case !more:
			return true, io.EOF
		}
	}
	select {
	case <-r.ctx.Done():
		return true, io.EOF
	case <-time.After(200 * time.Millisecond):
		return false, nil
	}
}

// use begins with the next open file.
func (r *reader) use() bool {
	if len(r.then) == 0 {
		return false
	}
	if r.f != nil {
		_ = r.f.Close()
	}
	r.f, r.then = r.then[0], r.then[1:]
	r.in, r.part = bufio.NewReader(r.f), r.part[:0]
	return true
}

// restart goes on with another instance of the container: everything it has written is new.
func (r *reader) restart(path string) error {
	if r.f != nil {
		_ = r.f.Close()
	}
	r.f, r.in, r.path, r.last, r.drop = nil, nil, path, false, 0
	if r.mid { // what the last one did not finish
		r.mid = false
		r.out.WriteByte('\n')
	}
	return nil
}

// advance opens the files that are newer than the open one, if there are any.
func (r *reader) advance() (bool, error) {
	if r.f != nil {
		have, err := r.f.Stat()
		if err != nil {
			return false, api.NewInternal("read log: %v", err)
		}
		now, err := os.Stat(r.path)
		if err != nil || os.SameFile(now, have) {
			return false, nil //nolint:nilerr // between rename and create: look again
		}
		for more := true; more; { // what was written between our last look and the rotation
			if more, err = r.fill(); err != nil {
				return false, err
			}
		}
	}
	all, err := openLogs(r.path)
	if err != nil {
		return false, err
	}
	if r.f != nil {
		// Not among them: it was the oldest, and has been removed. What is left is newer.
		if i := slices.IndexFunc(all, func(f *os.File) bool { return sameFile(f, r.f) }); i >= 0 {
			closeAll(all[:i+1])
			all = all[i+1:]
		}
	}
	r.then = all
	return r.use(), nil
}

func (r *reader) fill() (bool, error) {
	if r.in == nil {
		return false, nil
	}
	chunk, err := r.in.ReadBytes('\n')
	r.part = append(r.part, chunk...)
	if err == io.EOF {
		return false, nil
	}
	if err != nil {
		return false, api.NewInternal("read log: %v", err)
	}
	line, ok := parseLine(r.part)
	if ok {
		r.emit(line)
	}
	r.part = r.part[:0]
	return true, nil
}

func (r *reader) emit(l line) {
	switch {
	case l.at.Before(r.opts.Since):
		return
	case r.drop > 0:
		if !l.partial {
			r.drop--
		}
		return
	}
	if r.opts.Timestamps && !r.mid {
		r.out.WriteString(l.stamp)
		r.out.WriteByte(' ')
	}
	r.out.Write(l.text)
	if r.mid = l.partial; !r.mid {
		r.out.WriteByte('\n')
	}
}

// Close releases the files.
func (r *reader) Close() error {
	closeAll(r.then)
	r.then = nil
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}
