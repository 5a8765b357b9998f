package images

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Meter tells what a store has done since it was opened.
type Meter interface {
	Counts() Counts
}

// Counts is what a store has done since it was opened.
type Counts struct {
	Pulls     []PullCount // that ended well, by the size of the image; sizes that there were none of are left out
	Failed    int         // pulls that did not; one that was called off is neither
	Bytes     int64       // downloaded
	Collected Collected
}

// PullCount is how long pulls of images of one size took.
type PullCount struct {
	Size   string // as a kubelet calls it: "10MB-100MB"
	Within []int  // how many took no longer than each of PullDurations
	Count  int
	Took   time.Duration // all of them together
}

// PullDurations are the steps of PullCount, those of a kubelet.
var PullDurations = []time.Duration{1 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
	2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute, 8 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	20 * time.Minute, 30 * time.Minute, 45 * time.Minute, time.Hour}

// sizes of images as a kubelet tells them apart, from so many MiB on.
var sizes = []struct {
	from int64
	name string
}{{0, "0-10MB"}, {10, "10MB-100MB"}, {100, "100MB-500MB"}, {500, "500MB-1GB"}, {1 << 10, "1GB-5GB"}, {5 << 10, "5GB-10GB"},
	{10 << 10, "10GB-20GB"}, {20 << 10, "20GB-30GB"}, {30 << 10, "30GB-40GB"}, {40 << 10, "40GB-60GB"}, {60 << 10, "60GB-100GB"},
	{100 << 10, "GT100GB"}}

// Tally counts for a store. The zero value is ready.
type Tally struct {
	mu     sync.Mutex
	bySize map[int]PullCount // by place in sizes
	counts Counts            // without Pulls
}

// Pulled counts a pull that ended well.
func (t *Tally) Pulled(p Pulled) {
	at := len(sizes) - 1
	for at > 0 && p.Image.Size < sizes[at].from<<20 {
		at--
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Bytes += p.Bytes
	c, ok := t.bySize[at]
	if !ok {
		c = PullCount{Size: sizes[at].name, Within: make([]int, len(PullDurations))}
	}
	for i, most := range PullDurations {
		if p.Took <= most {
			c.Within[i]++
		}
	}
	c.Count, c.Took = c.Count+1, c.Took+p.Took
	if t.bySize == nil {
		t.bySize = map[int]PullCount{}
	}
	t.bySize[at] = c
}

// Failed counts a pull that went wrong after so many bytes; wanted: nobody called it off.
func (t *Tally) Failed(bytes int64, wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Bytes += bytes
	if wanted {
		t.counts.Failed++
	}
}

// Collected counts what was removed.
func (t *Tally) Collected(c Collected) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Collected.add(c)
}

// Counts implements Meter for the store that has the tally.
func (t *Tally) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.counts
	for _, at := range slices.Sorted(maps.Keys(t.bySize)) {
		c := t.bySize[at]
		c.Within = slices.Clone(c.Within)
		out.Pulls = append(out.Pulls, c)
	}
	return out
}
