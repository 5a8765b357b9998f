// Package heap keeps the memory of a process that runs for months at what it needs.
package heap

import (
	"context"
	"log/slog"
	"math"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"ledge/host"
)

// every is how often memory is given back, and First how soon after a start. It costs some 10 ms of CPU time.
const (
	First = 15 * time.Second
	every = time.Minute
)

// How far the heap may grow before garbage is collected and returned at once: busyRoom above the live heap of quiet
// times, and leastRoom in any case. With a large live heap the room is a fraction of it, so that collecting stays
// cheap. The budget for growth under abuse is 32 MB.
const (
	busyRoom  = 20 << 20
	leastRoom = 6 << 20
)

// collector lets the collector's limit follow what is alive, anew after each collection: a store that grows raises it, a flood
// of requests does not. Without it freed memory stays with the process until the next quiet minute.
type collector struct {
	mu    sync.Mutex
	rest  uint64 // bytes that were always alive in the minute before this one
	least uint64 // that were so far in this one
	limit int64  // as set last
}

func (c *collector) bound() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	live, beside := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	for _, s := range samples[2:] {
		beside -= s.Value.Uint64()
	}
	// In steps: to set it stops the world.
	const step = 2 << 20
	if limit := int64((beside + c.heap(live) + step - 1) / step * step); limit != c.limit {
		c.limit = limit
		debug.SetMemoryLimit(limit)
	}
	goruntime.AddCleanup(&collected{}, func(c *collector) { c.bound() }, c)
}

// heap is the size to which the heap may grow, given the size of what is alive.
func (c *collector) heap(live uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.least = min(c.least, live)
	return max(c.rest+busyRoom, live+max(live/8, leastRoom))
}

// minute begins a new minute.
func (c *collector) minute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.least < math.MaxUint64 {
		c.rest, c.least = c.least, math.MaxUint64
	}
}

// collected is garbage from the start: the next collection finds it. It holds a pointer so that it is not put into one
// block with other small things.
type collected struct{ _ *collected }

// Hurry has garbage wait for a minute: where fifty pods end at once, a sixth of the time went into collecting it, and their
// own memory is coming free. What collector allows the heap still holds, and this process has to take it back.
func Hurry() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// Start has a process collect garbage at 8 MB while it starts, where the default is 4: one or two collections less, each of some
// milliseconds. Run ends it.
func Start() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// Run keeps the memory of a process that runs for months, and does nothing most of that time, at what it needs: what
// a start or a busy hour took does not stay.
func Run(ctx context.Context) {
	garbage := &collector{least: math.MaxUint64}
	garbage.bound()
	for wait := First; ; wait = every {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if os.Getenv("GOGC") == "" {
			// With 1 or 2 MB alive the default lets garbage pile up to 4 MB.
			debug.SetGCPercent(50)
		}
		garbage.minute()
		debug.FreeOSMemory()
		if _, err := host.GiveBack(); err != nil {
			slog.Debug("memory was not given back", "err", err) // a kernel without smaps
			return
		}
	}
}
