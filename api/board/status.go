package board

import (
	"time"

	"ledge/node/pressure"
)

// Status is the answer of GET /ledge/v1/status.
type Status struct {
	Pressure pressure.Report `json:"pressure"`
	Writes   Writes          `json:"writes"`
	Claims   []Claim         `json:"claims,omitempty"` // whose volumes lie on this board
	Disks    []Disk          `json:"disks,omitempty"`  // of its configuration, beside the card
	Devices  []Device        `json:"devices,omitempty"`
	Found    *Found          `json:"found,omitempty"` // nil: it is not meant to be
	Machine  Machine         `json:"machine"`
}

// Machine is the board itself.
type Machine struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	// Celsius is the temperature of its processor; nil: it does not tell.
	Celsius *float64 `json:"celsius,omitempty"`
	// Throttled is why it is slower than it could be, or was since its boot, in words; nothing on boards that do not tell.
	Throttled     []string `json:"throttled,omitempty"`
	ClockBelieved bool     `json:"clockBelieved"`
	Unclean       bool     `json:"unclean"` // the boot before this one ended without an orderly end
}

// Found is how the board is found on its own networks.
type Found struct {
	Names   []string `json:"names"`        // its own first, then those of Services; none yet: somebody is asked whether they are free
	By      string   `json:"by,omitempty"` // another program announces it
	Trouble string   `json:"trouble,omitempty"`
}

// Claim is one of them, and what of its volume is taken.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Volume    string `json:"volume"`
	Size      int64  `json:"size"` // bytes
	// Used is in bytes, and so many files; nil: the disk holds no claim to its size, and does not count them.
	Used  *int64 `json:"used,omitempty"`
	Files int64  `json:"files,omitempty"`
	// Written is in bytes: what the pods that had it have written to its disk since the boot, into it or beside it; nil: nobody counts.
	Written *int64 `json:"written,omitempty"`
}

// Disk is one beside the card that holds claims.
type Disk struct {
	Name    string `json:"name"`
	Label   string `json:"label"`
	Device  string `json:"device,omitempty"`  // empty: it is not there
	Trouble string `json:"trouble,omitempty"` // why not
	Unsized string `json:"unsized,omitempty"` // why it holds no claim to its size
}

// Device is one that is plugged in and that pods may have.
type Device struct {
	Class string   `json:"class"` // pods ask for it as ledge.local/CLASS
	Path  string   `json:"path"`
	ID    string   `json:"id"`             // which stays the same after a boot
	Share int      `json:"share"`          // how many containers may have it at a time
	Pods  []string `json:"pods,omitempty"` // that have it: namespace/name
}

// Writes says who has written how much to the disk that the data directory is on.
type Writes struct {
	Disk    string    `json:"disk,omitempty"` // empty: it is not on one disk that the kernel names
	Wear    *Wear     `json:"wear,omitempty"` // nil: the disk does not tell
	Today   time.Time `json:"today,omitzero"` // when it began to count; zero: nobody knows
	Boot    time.Time `json:"boot,omitzero"`  // likewise
	Writers []Writer  `json:"writers"`
}

// Since says when counting began. A board whose clock was wrong at its boot has that right once the clock is.
func (r *Writes) Since(now time.Time, up time.Duration) {
	r.Boot = now.Add(-up).Truncate(time.Second)
	if r.Today = time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location()); r.Boot.After(r.Today) {
		r.Today = r.Boot
	}
}

// Writer is one of those who write to that disk.
type Writer struct {
	Name      string `json:"name"`
	What      string `json:"what"`
	Today     int64  `json:"today"`     // bytes since midnight, or since the boot if that was later
	SinceBoot int64  `json:"sinceBoot"` // bytes
}

// Wear is what a disk tells of its wear.
type Wear struct {
	// UsedPercent of its life, at most: it is told in tenths. 100 and Exceeded: more than it was made for.
	UsedPercent int    `json:"usedPercent"`
	Exceeded    bool   `json:"exceeded,omitempty"`
	Reserve     string `json:"reserve,omitempty"` // of spare blocks: normal, low (80 % are used), urgent (90 %)
}
