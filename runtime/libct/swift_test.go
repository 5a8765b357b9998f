package libct

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestSwift: the moves go on as long as pods are made ready, one row for all of them, and then end.
func TestSwift(t *testing.T) {
	procs := filepath.Join(t.TempDir(), "cgroup.procs")
	if err := os.WriteFile(procs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := func() string { return procs }
	moves := func() int {
		data, err := os.ReadFile(procs)
		if err != nil {
			t.Fatal(err)
		}
		return len(data)
	}
	synctest.Test(t, func(t *testing.T) { // a goroutine that is left would fail it
		var s swift
		s.begin(own)
		time.Sleep(swiftFor / 2)
		s.begin(own)
		time.Sleep(time.Second)
		if n, want := moves(), int(swiftFor+swiftFor/2)/int(swiftEvery); n != want {
			t.Errorf("%d moves, want %d", n, want)
		}
		if err := os.Truncate(procs, 0); err != nil {
			t.Fatal(err)
		}
		s.begin(own)
		time.Sleep(time.Second)
		if n, want := moves(), int(swiftFor)/int(swiftEvery); n != want {
			t.Errorf("%d moves for another start, want %d", n, want)
		}
		s.begin(func() string { return filepath.Join(procs, "is no directory") })
		time.Sleep(time.Millisecond)
		if s.begin(own); s.until.IsZero() {
			t.Error("an error ends the moves for ever")
		}
		time.Sleep(time.Second)
	})
}

// TestOwnProcs: this process may move itself to where it is.
func TestOwnProcs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.tree.ownProcs(), []byte("0"), 0); err != nil {
		t.Error(err)
	}
}
