package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"ledge/runtime"
)

const (
	defaultLogBytes = 10 << 20
	defaultLogFiles = 5
)

// logFile is the log of one container, shared by its streams. When it is full it becomes <path>.1, that <path>.2
// and so on, and a new one begins. A log that cannot be written loses lines; it never stops the container.
type logFile struct {
	path string
	max  int64
	keep int
	log  *slog.Logger

	mu   sync.Mutex
	f    *os.File
	size int64
	lost int // writes lost since the last one that worked
}

func openLog(c runtime.Container, log *slog.Logger) *logFile {
	l := &logFile{path: c.LogPath, max: c.LogBytes, keep: c.LogFiles, log: log.With("container", c.ID)}
	if l.max <= 0 {
		l.max = defaultLogBytes
	}
	if l.keep <= 0 {
		l.keep = defaultLogFiles
	}
	return l
}

// write appends whole lines.
func (l *logFile) write(b []byte) {
	if l.path == "" || len(b) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.append(b); err != nil {
		if l.lost++; l.lost == 1 {
			l.log.Warn("container log cannot be written; its lines are lost until it can", "path", l.path, "err", err)
		}
		return
	}
	if l.lost > 0 {
		l.log.Info("container log is written again", "path", l.path, "lost", l.lost)
		l.lost = 0
	}
}

func (l *logFile) append(b []byte) error {
	if l.f != nil && l.size > 0 && l.size+int64(len(b)) > l.max {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.f == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	n, err := l.f.Write(b)
	if err != nil {
		// Half a line on a full disk would run into the next one.
		if n > 0 && l.f.Truncate(l.size) != nil {
			l.size += int64(n)
		}
		return err
	}
	l.size += int64(n)
	return nil
}

func (l *logFile) open() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if !st.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s is not a regular file", l.path), f.Close())
	}
	l.f, l.size = f, st.Size()
	return l.mend()
}

// mend cuts off half a line at the end: an earlier keeper was killed in the middle of a write.
func (l *logFile) mend() error {
	const most = 4 * maxLine // one write is shorter
	r, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer r.Close()
	from := max(0, l.size-most)
	tail := make([]byte, l.size-from)
	if _, err := r.ReadAt(tail, from); err != nil {
		return err
	}
	if len(tail) == 0 || tail[len(tail)-1] == '\n' {
		return nil
	}
	whole := from + int64(bytes.LastIndexByte(tail, '\n')+1)
	if err := l.f.Truncate(whole); err != nil {
		return err
	}
	l.size = whole
	return nil
}

func (l *logFile) rotate() error {
	err := l.f.Close()
	l.f, l.size = nil, 0
	if err != nil {
		return err
	}
	name := func(n int) string {
		if n == 0 {
			return l.path
		}
		return l.path + "." + strconv.Itoa(n)
	}
	if l.keep == 1 {
		return os.Remove(l.path)
	}
	for n := l.keep - 1; n > 0; n-- {
		if err := os.Rename(name(n-1), name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}
