package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ledge/internal/durable"
)

// Boards without a battery-backed clock start in 1970. Two moments are known to have passed: the build of this program,
// and the clock saved when it was last known to be right. Nothing else counts: a time that an object or a
// certificate carries may be anybody's invention.

// Floor is the latest moment known to have passed. A saved clock that is decades behind or ahead of the build is
// damage, and taken for none.
func Floor(build, saved time.Time) time.Time {
	const life = 30 * 365 * 24 * time.Hour // no binary is in use for longer
	if saved.After(build) && saved.Sub(build) < life {
		return saved
	}
	return build
}

// Believable is the clock's time, or the floor while the clock is behind it.
func Believable(now, floor time.Time) time.Time {
	if now.Before(floor) {
		return floor
	}
	return now
}

// ClockSynced tells whether the kernel's clock is kept by something that knows the time (NTP).
func (h *Host) ClockSynced() (bool, error) { return h.cfg.ClockSynced() }

func kernelClockSynced() (bool, error) {
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	if err != nil {
		return false, fmt.Errorf("ask for the state of the clock: %w", err)
	}
	const timeError = 5 // TIME_ERROR
	return state != timeError && tx.Status&unix.STA_UNSYNC == 0, nil
}

// SavedClock reads what SaveClock wrote; zero when there is nothing, or nothing that can be read: a torn file must not
// keep a board from starting.
func SavedClock(path string) (time.Time, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read saved clock: %w", err)
	}
	t, err := time.Parse(time.RFC3339, strings.TrimSpace(string(data)))
	if err != nil {
		return time.Time{}, nil
	}
	return t, nil
}

// SaveClock saves the time. The caller knows that it is right (ClockSynced) and calls rarely: each call costs the
// flash a block.
func SaveClock(path string, now time.Time) error {
	err := durable.Replace(path, []byte(now.UTC().Format(time.RFC3339)+"\n"), 0o600)
	if err != nil {
		return fmt.Errorf("save clock: %w", err)
	}
	return nil
}
