package machine_test

import (
	"errors"
	"testing"
	"time"

	"ledge/node/machine"
	"ledge/node/machine/fake"
	"ledge/node/pressure"
)

// TestReadings: what cannot be read is left out, not reported as nought (N-6.7).
func TestReadings(t *testing.T) {
	s := fake.Board("n")
	s.ImageFS = machine.Filesystem{}
	s.NodeFS.Inodes = 0 // btrfs and others have none to count
	now := time.Unix(5, 0)
	got := s.Readings(pressure.Default(), now)
	for sig, want := range map[pressure.Signal]pressure.Reading{
		pressure.MemoryAvailable: {Available: 3 << 30, Capacity: 4 << 30}, pressure.NodeFSAvailable: {Available: 20 << 30, Capacity: 32 << 30},
		pressure.PIDAvailable: {Available: 32568, Capacity: 32768}} {
		if want.At = now; got[sig] != want {
			t.Errorf("%s: %+v, want %+v", sig, got[sig], want)
		}
	}
	if len(got) != 4 || got[pressure.ContainerFSAvailable] != got[pressure.NodeFSAvailable] { // N-6.16
		t.Errorf("%v", got)
	}
}

// TestMemoryUnknown: memory whose total is known, but not how much of it is available, is not used up.
func TestMemoryUnknown(t *testing.T) { // N-6.7
	s := fake.Board("n")
	s.MemoryAvailable, s.MemoryUnknown, s.Unread = 0, true, errors.New("no memory controller")
	seen := s.Readings(pressure.Default(), time.Now())
	if _, ok := seen[pressure.MemoryAvailable]; ok || len(seen) == 0 {
		t.Errorf("%+v", seen)
	}
}

// TestSince: a Node has not less because a file cannot be read, and there is none of a machine that has never been read.
func TestSince(t *testing.T) {
	before := fake.Board("n")
	blind := machine.Sample{CPUs: 4, Unread: errors.New("input/output error")}
	got, err := blind.Since(before)
	if err != nil || got.MemoryTotal != before.MemoryTotal || got.NodeFS.Capacity != before.NodeFS.Capacity || got.PIDMax != before.PIDMax {
		t.Errorf("%+v, %v", got, err)
	}
	if got.NodeFS.Available != 0 || got.MemoryAvailable != 0 {
		t.Errorf("what is left is taken for what was: %+v", got)
	}
	if _, err := blind.Since(machine.Sample{}); !errors.Is(err, blind.Unread) {
		t.Errorf("a machine of which nothing is known: %v", err)
	}
}
