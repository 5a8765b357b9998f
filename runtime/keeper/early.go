package keeper

import (
	"sync/atomic"
	"time"
)

// A client that creates a container and then attaches to it, as `kubectl run -i` does, misses the first output of a
// quick program. So the early output of a container with StdinOnce, which such clients set, is kept for the first
// attacher.
const (
	earlyBytes = 32 << 10    // of a stream; one that says more keeps nothing, since a gap would be worse than a late beginning
	earlyTime  = time.Minute // after which nobody is expected any more
	earlyTotal = 1 << 20     // of all streams
)

// earlyRoom counts what all streams keep.
type earlyRoom struct{ used atomic.Int64 }

// early is what one stream keeps. It is guarded by the mutex of its taps.
type early struct {
	room *earlyRoom
	kept []byte
}

// keep adds output of the container, or returns false if there is no room for it.
func (e *early) keep(b []byte) bool {
	n := int64(len(b))
	if len(e.kept)+len(b) > earlyBytes {
		return false
	}
	if e.room.used.Add(n) > earlyTotal {
		e.room.used.Add(-n)
		return false
	}
	e.kept = append(e.kept, b...)
	return true
}

// expect keeps what is said from now on, until somebody attaches or nobody is expected any more.
func (t *taps) expect(room *earlyRoom) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.early = &early{room: room}
	time.AfterFunc(earlyTime, t.forget)
}

// forget drops what was kept.
func (t *taps) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takeEarly()
}

// takeEarly returns what was kept and keeps no more. It is called with taps.mu held.
func (t *taps) takeEarly() []byte {
	if t.early == nil {
		return nil
	}
	kept := t.early.kept
	t.early.room.used.Add(-int64(len(kept)))
	t.early = nil
	return kept
}
