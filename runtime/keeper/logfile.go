package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ledge/runtime"
)

const (
	defaultLogBytes = 10 << 20
	defaultLogFiles = 5
)

// logFile is the log of one container, shared by its streams. When it is full it is renamed to <path>.N, N counting
// up, and a new file begins. There is only one rename, so that a reader who has a name or an open file can tell which
// file comes next. A log that cannot be written loses lines; it never stops the container.
type logFile struct {
	path   string
	max    int64
	keep   int
	limit  limiter
	budget *budget // nil: unbounded
	log    *slog.Logger

	mu   sync.Mutex
	f    *os.File
	size int64
	last int // number of the newest full file, once known
	lost int // writes lost since the last one that worked
}

func openLog(c runtime.Container, b *budget, log *slog.Logger) *logFile {
	l := &logFile{path: c.LogPath, max: c.LogBytes, keep: c.LogFiles, budget: b, log: log.With("container", c.ID)}
	l.limit.rate = c.LogRate
	if l.max <= 0 {
		l.max = defaultLogBytes
	}
	if l.keep <= 0 {
		l.keep = defaultLogFiles
	}
	b.open(l)
	return l
}

// put appends whole lines of one stream, unless they come too fast. It says how long the stream should rest before
// it reads on.
func (l *logFile) put(stream string, now time.Time, lines []byte) time.Duration {
	if l.path == "" || len(lines) == 0 {
		return 0
	}
	lines, rest := l.limit.pass(stream, now, lines)
	l.write(lines)
	return rest
}

// write appends whole lines.
func (l *logFile) write(b []byte) {
	if l.path == "" || len(b) == 0 {
		return
	}
	l.writeLocked(b)
	l.budget.add(int64(len(b)))
}

func (l *logFile) writeLocked(b []byte) {
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
	if l.keep == 1 {
		return os.Remove(l.path)
	}
	full, err := fullLogs(l.path)
	if err != nil {
		return err
	}
	if len(full) > 0 {
		l.last = max(l.last, full[len(full)-1])
	}
	l.last++
	if err := os.Rename(l.path, fullLog(l.path, l.last)); err != nil {
		return err
	}
	for _, n := range append(full, l.last)[:max(0, len(full)+2-l.keep)] {
		if err := os.Remove(fullLog(l.path, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func fullLog(path string, n int) string { return path + "." + strconv.Itoa(n) }

// fullLogs are the numbers of a log's full files, oldest first.
func fullLogs(path string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if n, err := strconv.Atoi(suffix); ok && err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// drop throws the present file away; the next line begins a new one.
func (l *logFile) drop() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
		l.f, l.size = nil, 0
	}
	return os.Remove(l.path)
}

func (l *logFile) close() {
	l.write(l.limit.end(time.Now()))
	l.budget.close(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}
