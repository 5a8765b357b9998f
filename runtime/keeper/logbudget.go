package keeper

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"ledge/runtime"
)

// budgets bound what logs take up, by the directory they stand below.
type budgets struct {
	log  *slog.Logger
	mu   sync.Mutex
	root map[string]*budget
}

// of gives the budget of a container's log; nil if it has none. The latest word on the total counts.
func (b *budgets) of(c runtime.Container) *budget {
	if c.LogRoot == "" || c.LogTotal <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root == nil {
		b.root = map[string]*budget{}
	}
	it := b.root[c.LogRoot]
	if it == nil {
		it = &budget{root: c.LogRoot, log: b.log, live: map[string]*logFile{}}
		it.used.Store(sum(scanLogs(c.LogRoot, nil)))
		b.root[c.LogRoot] = it
	}
	it.total.Store(c.LogTotal)
	return it
}

// budget keeps all logs below a directory within a total. It counts what is written and looks at the files only when
// that would be too much: others may have removed some.
type budget struct {
	root  string
	log   *slog.Logger
	total atomic.Int64
	used  atomic.Int64 // at least what there is

	trimming sync.Mutex
	mu       sync.Mutex
	live     map[string]*logFile // by path; guarded by mu
}

func (b *budget) open(l *logFile) {
	if b == nil || l.path == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live[l.path] = l
}

func (b *budget) close(l *logFile) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[l.path] == l {
		delete(b.live, l.path)
	}
}

// add counts what was written, and makes room when it was too much. The caller holds no lock of a logFile.
func (b *budget) add(n int64) {
	if b == nil || b.used.Add(n) <= b.total.Load() || !b.trimming.TryLock() {
		return
	}
	defer b.trimming.Unlock()
	b.mu.Lock()
	live := make(map[string]*logFile, len(b.live))
	for path, l := range b.live {
		live[path] = l
	}
	b.mu.Unlock()
	counted := b.used.Load()
	files := scanLogs(b.root, live)
	there := sum(files)
	// Some room beyond the need, so that the files are not looked at again at once.
	for _, f := range tooMuch(files, b.total.Load()*9/10) {
		var err error
		if l := live[f.path]; l != nil {
			err = l.drop()
		} else {
			err = os.Remove(f.path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.log.Warn("a log that is too much cannot be removed", "path", f.path, "err", err)
			continue
		}
		there -= f.size
	}
	b.used.Add(there - counted)
}

// logInfo is one file of a log.
type logInfo struct {
	path   string
	holder string // the directory: one container's logs
	size   int64
	at     time.Time
	live   bool // being written
}

func scanLogs(root string, live map[string]*logFile) (out []logInfo) {
	// What vanishes while we look, or cannot be read, is not there.
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if st, err := d.Info(); err == nil {
			out = append(out, logInfo{path: path, holder: filepath.Dir(path), size: st.Size(), at: st.ModTime(), live: live[path] != nil})
		}
		return nil
	})
	return out
}

func sum(files []logInfo) (n int64) {
	for _, f := range files {
		n += f.size
	}
	return n
}

// tooMuch chooses the files to delete until at most goal is left: each time the oldest file of the container with the
// most logs, so that a flood costs its own author. A file that is still written to goes only when its container has
// no other.
func tooMuch(files []logInfo, goal int64) (out []logInfo) {
	held, left := map[string][]logInfo{}, map[string]int64{}
	for _, f := range files {
		held[f.holder] = append(held[f.holder], f)
		left[f.holder] += f.size
	}
	var names []string
	for name, fs := range held {
		names = append(names, name)
		sort.Slice(fs, func(i, j int) bool {
			a, b := fs[i], fs[j]
			if a.live != b.live {
				return b.live
			}
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.path, b.path)) < 0
		})
	}
	slices.Sort(names)
	for all := sum(files); all > goal; {
		most := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(left[a], left[b]) })
		f := held[most][0]
		held[most] = held[most][1:]
		left[most] -= f.size
		if len(held[most]) == 0 {
			left[most] = -1
		}
		all -= f.size
		out = append(out, f)
	}
	return out
}
