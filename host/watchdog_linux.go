package host

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watchdog is a hardware watchdog that is armed: it resets the machine unless Alive is called within Timeout, again and
// again, until Disarm.
type Watchdog struct {
	f       *os.File
	timeout time.Duration
}

// OpenWatchdog arms the watchdog of a device, with the timeout wanted or what it can do instead.
func OpenWatchdog(device string, want time.Duration) (*Watchdog, error) {
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("arm the watchdog: %w: somebody else feeds it, systemd by RuntimeWatchdogSec for instance", err)
	}
	if err != nil {
		return nil, fmt.Errorf("arm the watchdog: %w", err)
	}
	fd := int(f.Fd())
	// Drivers with one fixed timeout, or a lower limit, refuse; what counts is what they say then.
	_ = unix.IoctlSetPointerInt(fd, unix.WDIOC_SETTIMEOUT, int(want.Seconds()))
	seconds, err := unix.IoctlGetInt(fd, unix.WDIOC_GETTIMEOUT)
	if err == nil && want > 15*time.Second && seconds < 15 {
		_ = unix.IoctlSetPointerInt(fd, unix.WDIOC_SETTIMEOUT, 15) // the most a Raspberry Pi's can do
		seconds, err = unix.IoctlGetInt(fd, unix.WDIOC_GETTIMEOUT)
	}
	w := &Watchdog{f: f, timeout: time.Duration(seconds) * time.Second}
	if err == nil && seconds <= 0 {
		err = fmt.Errorf("its timeout is %d s", seconds)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("arm the watchdog %s: %w", device, err), w.Disarm())
	}
	return w, nil
}

// Timeout is how long the watchdog waits for Alive.
func (w *Watchdog) Timeout() time.Duration { return w.timeout }

// Alive keeps the watchdog from resetting the machine for another Timeout.
func (w *Watchdog) Alive() error {
	if _, err := w.f.Write([]byte{0}); err != nil {
		return fmt.Errorf("feed the watchdog: %w", err)
	}
	return nil
}

// Disarm lets go of the watchdog without a reset; a kernel with NOWAYOUT does not let it.
func (w *Watchdog) Disarm() error {
	_, err := w.f.WriteString("V") // the magic word before a close that is meant
	if err := errors.Join(err, w.f.Close()); err != nil {
		return fmt.Errorf("disarm the watchdog: %w", err)
	}
	return nil
}
