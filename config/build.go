package config

import (
	"log/slog"
	"path/filepath"
	"time"

	"ledge/host"
	"ledge/storage"
	"ledge/upgrade"
)

// Build says what was built, and when. The build stamps it into package main.
type Build struct {
	Version, Commit string
	Time            string // RFC 3339
}

// Stamp is what this program says of itself to others that may take its place.
func (b Build) Stamp() upgrade.Stamp {
	return upgrade.Stamp{Version: b.Version, Built: b.Time, Store: storage.Schema}
}

// Floor is when this binary was made: no clock is believed before that (architecture: Observer's clock).
func (b Build) Floor() time.Time {
	t, err := time.Parse(time.RFC3339, b.Time)
	if err != nil || t.Year() < 2026 { // not stamped: a build by hand
		return time.Time{}
	}
	return t
}

// ClockFloor is a moment known to have passed: this program was built, and the clock was right when it was saved.
func (b Build) ClockFloor(dataDir string) time.Time {
	saved, err := host.SavedClock(ClockFile(dataDir))
	if err != nil {
		slog.Warn("the saved clock cannot be read", "err", err)
	}
	return host.Floor(b.Floor(), saved)
}

// ClockFile is where the clock is saved while it is right.
func ClockFile(dataDir string) string { return filepath.Join(dataDir, "clock") }
