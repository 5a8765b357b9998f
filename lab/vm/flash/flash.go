// Package flash is a disk that forgets: what is written stays in a volatile cache until the disk is told to flush, and a
// power cut drops any part of the cache. QEMU reaches it over NBD. Killing QEMU alone loses nothing that its guest wrote,
// whatever the drive's cache mode says.
package flash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

const sector = 512

// Disk is one disk. Its lasting part is a file.
type Disk struct {
	mu      sync.Mutex
	file    *os.File
	size    int64
	pending map[int64][][]byte // by sector number: what was written there since the last flush, oldest first
	off     bool
	lies    bool
	flushes int
	largest int              // flush, in sectors
	before  map[int64][]byte // by sector number: what was there when the disk was switched on, where that has changed
	flushed chan struct{}    // AwaitFlush listens
	least   int              // for flushes of so many sectors
	doing   string           // what its server is at
	since   time.Time
	slowest string // what it was at for the longest time since the disk was switched on
	took    time.Duration
}

// Open makes a disk of a file. Its size must be a multiple of 512.
func Open(path string) (*Disk, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (info.Size() == 0 || info.Size()%sector != 0) {
		err = fmt.Errorf("%s: %d bytes are no disk of sectors of %d", path, info.Size(), sector)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Disk{file: f, size: info.Size(), pending: map[int64][][]byte{}, before: map[int64][]byte{}}, nil
}

// Close lets go of the file. What has not been flushed is lost.
func (d *Disk) Close() error { return d.file.Close() }

// Lie makes a disk that says it has flushed and has not. It shows that a test can fail.
func (d *Disk) Lie() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lies = true
}

// read returns the bytes that the disk would answer now.
func (d *Disk) read(p []byte, at int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.file.ReadAt(p, at); err != nil {
		return err
	}
	for i := int64(0); i < int64(len(p)); i += sector {
		if w := d.pending[(at+i)/sector]; len(w) > 0 {
			copy(p[i:], w[len(w)-1])
		}
	}
	return nil
}

// write keeps p in the cache. With fua it is made to last before write returns, and nothing else is.
func (d *Disk) write(p []byte, at int64, fua bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return nil // nobody is told: see serve
	}
	if fua && !d.lies {
		for i := range int64(len(p)) / sector {
			delete(d.pending, at/sector+i)
		}
		return d.last(p, at)
	}
	p = slices.Clone(p)
	for i := int64(0); i < int64(len(p)); i += sector {
		d.pending[(at+i)/sector] = append(d.pending[(at+i)/sector], p[i:i+sector])
	}
	return nil
}

// last makes p last.
func (d *Disk) last(p []byte, at int64) error {
	for n := at / sector; n < (at+int64(len(p)))/sector; n++ {
		if d.before[n] != nil {
			continue
		}
		old := make([]byte, sector)
		if _, err := d.file.ReadAt(old, n*sector); err != nil {
			return err
		}
		d.before[n] = old
	}
	_, err := d.file.WriteAt(p, at)
	return err
}

func (d *Disk) flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushes++
	d.largest = max(d.largest, len(d.pending))
	if d.flushed != nil && len(d.pending) >= d.least {
		close(d.flushed)
		d.flushed, d.off = nil, true
	}
	if d.off || d.lies {
		return nil
	}
	for n, writes := range d.pending {
		if err := d.last(writes[len(writes)-1], n*sector); err != nil {
			return err
		}
	}
	clear(d.pending)
	return nil
}

// Loss is what a cut found in the cache and what it took.
type Loss struct {
	Pending int `json:"pendingSectors"`
	Lost    int `json:"lostSectors"` // where not the last write got there
	Flushes int `json:"flushes"`     // since the disk was switched on
	Largest int `json:"largestFlush"`
}

// Cut is the moment the power goes. Each sector of the cache holds afterwards what it held before any of the writes to it
// that were not flushed, independently of all others: a disk writes in any order. From now on nothing is answered.
func (d *Disk) Cut(r *rand.Rand) (Loss, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	loss := Loss{Pending: len(d.pending), Flushes: d.flushes, Largest: d.largest}
	kept := []float64{0, 0.1, 0.5, 0.9, 1}[r.IntN(5)] // the share of the cache that got there
	if d.lies {
		kept = 0
	}
	for _, n := range slices.Sorted(maps.Keys(d.pending)) { // sorted: a seed decides alike each time
		writes := d.pending[n]
		if r.Float64() >= kept {
			loss.Lost++
			continue
		}
		which := len(writes) - 1
		if kept < 1 {
			which = r.IntN(len(writes))
		}
		if which < len(writes)-1 {
			loss.Lost++
		}
		if err := d.last(writes[which], n*sector); err != nil {
			return loss, err
		}
	}
	clear(d.pending)
	return loss, nil
}

// On switches the disk on again after a cut.
func (d *Disk) On() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.pending) // a cache is empty then
	clear(d.before)
	d.off, d.flushes, d.largest, d.flushed = false, 0, 0, nil
	d.slowest, d.took, d.since = "", 0, time.Now()
}

// Rewind restores the disk as it was when it was switched on, and leaves it off: a failed boot can be repeated.
func (d *Disk) Rewind() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	clear(d.pending)
	for n, old := range d.before {
		if _, err := d.file.WriteAt(old, n*sector); err != nil {
			return err
		}
	}
	clear(d.before)
	return nil
}

// AwaitFlush lets the disk work until it is told to flush at least so many sectors (and one) of its cache, or for the time,
// and not a moment longer: a Cut that follows finds them in the cache.
func (d *Disk) AwaitFlush(least int, most time.Duration) {
	told := make(chan struct{})
	d.mu.Lock()
	d.flushed, d.least = told, max(least, 1)
	d.mu.Unlock()
	select {
	case <-told:
	case <-time.After(most):
	}
	d.mu.Lock()
	d.flushed = nil
	d.mu.Unlock()
}

// State names the slowest step of the server of the disk. It tells whether a guest waited for the disk.
func (d *Disk) State() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("the disk, off: %v, was %s for %s", d.off, d.slowest, d.took.Round(time.Millisecond))
}

// at notes the step that the server begins now.
func (d *Disk) at(what string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if took := now.Sub(d.since); took > d.took {
		d.slowest, d.took = d.doing, took
	}
	d.doing, d.since = fmt.Sprintf(what, args...), now
}

func (d *Disk) dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}
