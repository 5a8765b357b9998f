package pressure

import (
	"slices"
	"time"
)

// What a board remembers of the amounts that it had: a point every half a minute, for an hour. It costs some kilobytes of memory and
// nothing on the disk.
const (
	HistoryEvery  = 30 * time.Second
	HistoryPoints = 120
)

// History is that for people and programs to read.
type History struct {
	Until        time.Time `json:"until"` // the newest point
	EverySeconds float64   `json:"everySeconds"`
	Signals      []Past    `json:"signals"`
}

// Past is one signal.
type Past struct {
	Signal Signal  `json:"signal"`
	Points []int64 `json:"points"` // what was available, oldest first; -1: not known
}

// Of are the points of a signal; nil: there are none.
func (h History) Of(s Signal) []int64 {
	i := slices.IndexFunc(h.Signals, func(p Past) bool { return p.Signal == s })
	if i < 0 {
		return nil
	}
	return h.Signals[i].Points
}

// Diary keeps a History.
type Diary struct {
	until time.Time
	past  map[Signal][]int64
}

// Note enters what a look has seen, unless the last point is younger than a step. Steps that nobody has looked at are not known.
func (d *Diary) Note(seen Readings, now time.Time) {
	steps := HistoryPoints
	if !d.until.IsZero() {
		steps = min(int(now.Sub(d.until)/HistoryEvery), HistoryPoints)
	}
	if steps <= 0 {
		return
	}
	if d.past == nil {
		d.past = map[Signal][]int64{}
		steps = 1
	}
	length := 0
	for _, points := range d.past {
		length = len(points)
	}
	for s := range seen {
		if _, ok := d.past[s]; !ok {
			d.past[s] = unknownPoints(length)
		}
	}
	for s, points := range d.past {
		points = append(points, unknownPoints(steps-1)...)
		n := int64(-1)
		if r, ok := seen[s]; ok {
			n = r.Available
		}
		points = append(points, n)
		d.past[s] = slices.Clone(points[max(0, len(points)-HistoryPoints):])
	}
	d.until = now
}

func unknownPoints(n int) []int64 { return slices.Repeat([]int64{-1}, n) }

// History is what stands in it.
func (d *Diary) History() History {
	out := History{Until: d.until, EverySeconds: HistoryEvery.Seconds(), Signals: []Past{}}
	for _, s := range Signals {
		if points, ok := d.past[s]; ok {
			out.Signals = append(out.Signals, Past{s, slices.Clone(points)})
		}
	}
	return out
}
