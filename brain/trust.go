package brain

import (
	"sync/atomic"
	"time"
)

// clockPatience is how long a clock that nobody keeps is doubted after a start: until then a time server would have answered.
const clockPatience = 2 * time.Minute

// trust says whether the clock is right, as far as a board can know (decision 107). One that was behind the floor at the start is
// only set by who knows the time; one that was not may be kept by a battery.
type trust struct {
	floor, began time.Time
	behind       bool        // at the start
	known        atomic.Bool // something that knows the time has set it since
	synced       func() (bool, error)
}

// newTrust begins to look at the clock; call it before somebody sets that to the floor.
func newTrust(floor time.Time, synced func() (bool, error)) *trust {
	now := time.Now()
	return &trust{floor: floor, began: now, behind: now.Before(floor), synced: synced}
}

// believed is asked by several loops.
func (t *trust) believed() bool {
	if time.Now().Before(t.floor) {
		return false
	}
	if !t.known.Load() {
		if ok, err := t.synced(); err == nil && ok { // a kernel that does not say is one that nobody sets
			t.known.Store(true)
		}
	}
	return t.known.Load() || !t.behind && time.Since(t.began) >= clockPatience
}
