package shutdown

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// SensorsRoot is where the kernel shows what hardware monitors measure.
const SensorsRoot = "/sys/class/hwmon"

// Voltage watches the alarms by which a board says that its supply sags, such as a Raspberry Pi's (rpi_volt). It is a
// warning of power cuts to come and asks for no shutdown: the usual cause is a weak supply or a thin cable.
type Voltage struct {
	Root string // empty is SensorsRoot
	// Changed is called when the supply begins to sag, and when it has not for a while.
	Changed func(low bool)

	mu    sync.Mutex
	state voltageState
}

// Sag is what Voltage knows.
type Sag int

// No board without a sensor is called sound.
const (
	NoSensor Sag = iota
	Steady
	Low
)

type voltageState struct {
	sag  Sag
	last time.Time // of the last alarm
}

const (
	voltageLook   = 5 * time.Second
	voltageRescan = time.Minute // a module may come late
	// voltageHold is how long the last dip is remembered: dips are short, and each change is written to the card.
	voltageHold = 5 * time.Minute
)

// Now is how the supply stands.
func (v *Voltage) Now() Sag {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.sag
}

// Run looks until ctx ends. It is a Source that tells nothing.
func (v *Voltage) Run(ctx context.Context, _ func(Event)) error {
	var alarms []string
	var scanned time.Time
	for {
		if scanned.IsZero() || time.Since(scanned) >= voltageRescan {
			alarms, scanned = v.alarms(), time.Now()
		}
		v.look(alarms, time.Now())
		rest := voltageLook
		if len(alarms) == 0 {
			rest = voltageRescan
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// alarms finds the alarms of voltages that are critically low. Those of mere limits are left out: on many boards the
// limits are not set, and such an alarm is always on.
func (v *Voltage) alarms() []string {
	root := v.Root
	if root == "" {
		root = SensorsRoot
	}
	found, err := filepath.Glob(filepath.Join(root, "hwmon*", "in*_lcrit_alarm"))
	if err != nil { // only for a bad pattern
		return nil
	}
	return found
}

func (v *Voltage) look(alarms []string, now time.Time) {
	seen := Steady
	if len(alarms) == 0 {
		seen = NoSensor
	}
	if slices.ContainsFunc(alarms, raised) {
		seen = Low
	}
	v.mu.Lock()
	before := v.state
	v.state = before.next(seen, now)
	after := v.state.sag
	v.mu.Unlock()
	if (after == Low) != (before.sag == Low) && v.Changed != nil {
		v.Changed(after == Low)
	}
}

// next takes one look in.
func (s voltageState) next(seen Sag, now time.Time) voltageState {
	switch {
	case seen == Low:
		return voltageState{Low, now}
	case s.sag == Low && now.Sub(s.last) < voltageHold:
		return s
	}
	return voltageState{sag: seen}
}

func raised(alarm string) bool {
	data, err := os.ReadFile(alarm)
	return err == nil && strings.TrimSpace(string(data)) == "1"
}
