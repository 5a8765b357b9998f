package keeper

import (
	"log/slog"
	"maps"
	"os"
	"sync"
)

// lot is the parking lot: descriptors that a second process must hold too, so that containers keep them when the
// keeper dies. Each goes to systemd's FD store, if there is one, and to every brain that has asked.
type lot struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	files   map[string]*os.File
	holders map[*holder]bool
}

// holder is one connected brain: the names that changed since it was last told.
type holder struct {
	dirty map[string]bool
	wake  chan struct{}
}

func newLot(cfg Config) *lot {
	return &lot{cfg: cfg, log: cfg.log(), files: map[string]*os.File{}, holders: map[*holder]bool{}}
}

// add parks a file. The lot does not own it: remove must come before it is closed. held says that the FD store has
// it already.
func (l *lot) add(name string, f *os.File, held bool) {
	l.mu.Lock()
	l.files[name] = f
	l.mark(name)
	l.mu.Unlock()
	if l.cfg.Park != nil && !held {
		if err := l.cfg.Park(name, f); err != nil {
			l.log.Warn("a file of a container could not be parked", "name", name, "err", err)
		}
	}
}

// remove takes a file out; its last copy elsewhere is dropped.
func (l *lot) remove(name string) {
	l.mu.Lock()
	_, there := l.files[name]
	delete(l.files, name)
	l.mark(name)
	l.mu.Unlock()
	if l.cfg.Unpark != nil && there {
		if err := l.cfg.Unpark(name); err != nil {
			l.log.Warn("a parked file of a container could not be taken back", "name", name, "err", err)
		}
	}
}

// mark is called with the lock held.
func (l *lot) mark(name string) {
	for h := range l.holders {
		h.dirty[name] = true
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// join adds a brain, which has everything to learn.
func (l *lot) join() *holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &holder{dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
	for name := range l.files {
		h.dirty[name] = true
	}
	l.holders[h] = true
	return h
}

func (l *lot) quit(h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holders, h)
}

// take gives what changed for a brain: a copy of each file, to be closed, or nil if it is gone.
func (l *lot) take(h *holder) map[string]*os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes := map[string]*os.File{}
	for name := range maps.Keys(h.dirty) {
		changes[name] = nil
		if f := l.files[name]; f != nil {
			if dup, err := dupFile(f); err == nil {
				changes[name] = dup
			}
		}
	}
	h.dirty = map[string]bool{}
	return changes
}
