package pressure_test

import (
	"slices"
	"testing"
	"time"

	"ledge/node/pressure"
)

func TestDiary(t *testing.T) {
	var d pressure.Diary
	if h := d.History(); len(h.Signals) != 0 || h.Of(pressure.MemoryAvailable) != nil {
		t.Fatalf("an empty one says %+v", h)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	note := func(after time.Duration, n int64) {
		at = at.Add(after)
		d.Note(pressure.Readings{pressure.MemoryAvailable: {Available: n, Capacity: 100}}, at)
	}
	want := func(points ...int64) {
		t.Helper()
		if got := d.History().Of(pressure.MemoryAvailable); !slices.Equal(got, points) {
			t.Fatalf("%v, not %v", got, points)
		}
	}
	note(0, 1)
	want(1)
	note(10*time.Second, 2) // too early
	want(1)
	note(20*time.Second, 3)
	want(1, 3)
	note(95*time.Second, 4) // three steps, two of which nobody has seen
	want(1, 3, -1, -1, 4)
	at = at.Add(pressure.HistoryEvery)
	d.Note(pressure.Readings{pressure.PIDAvailable: {Available: 7, Capacity: 9}}, at) // memory cannot be read, another signal can be by now
	want(1, 3, -1, -1, 4, -1)
	if got := d.History().Of(pressure.PIDAvailable); !slices.Equal(got, []int64{-1, -1, -1, -1, -1, 7}) {
		t.Fatal(got)
	}
	note(-time.Hour, 5) // a clock that goes back waits
	want(1, 3, -1, -1, 4, -1)
	note(48*time.Hour, 6)
	got := d.History().Of(pressure.MemoryAvailable)
	if len(got) != pressure.HistoryPoints || got[len(got)-1] != 6 || got[0] != -1 {
		t.Fatalf("%d points: %v", len(got), got)
	}
	for range 3 * pressure.HistoryPoints {
		note(pressure.HistoryEvery, 8)
	}
	if got := d.History().Of(pressure.MemoryAvailable); len(got) != pressure.HistoryPoints || got[0] != 8 {
		t.Fatalf("%d points: %v", len(got), got)
	}
}
