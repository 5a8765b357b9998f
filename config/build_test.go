package config

import (
	"os"
	"testing"
	"time"

	"ledge/host"
)

// TestClockFloor: no clock is believed before this program was built, or before the moment that was saved while it was right.
func TestClockFloor(t *testing.T) {
	build := Build{Time: "2026-06-01T12:00:00Z"}
	built := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	for i, step := range []struct{ saved, want time.Time }{
		{want: built},
		{saved: built.Add(100 * 24 * time.Hour), want: built.Add(100 * 24 * time.Hour)},
		{saved: built.Add(-time.Hour), want: built},                // of an older program
		{saved: built.Add(31 * 365 * 24 * time.Hour), want: built}, // a clock that was wrong
	} {
		if !step.saved.IsZero() {
			must(t, host.SaveClock(ClockFile(dir), step.saved))
		}
		if got := build.ClockFloor(dir); !got.Equal(step.want) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	must(t, os.WriteFile(ClockFile(dir), []byte("rubbish"), 0o600))
	if got := build.ClockFloor(dir); !got.Equal(built) {
		t.Errorf("with a damaged file: %s", got)
	}
	if got := (Build{Time: "1970-01-01T00:00:00Z"}).Floor(); !got.IsZero() {
		t.Errorf("a build by hand: %s", got)
	}
}
