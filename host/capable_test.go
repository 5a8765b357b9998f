package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOverlayTriedOnce: a start that finds what an earlier one of this life of the machine wrote does not try again; a reboot, another
// file system, a failure, and a note that cannot be read do.
func TestOverlayTriedOnce(t *testing.T) {
	proc, note := t.TempDir(), filepath.Join(t.TempDir(), "overlay")
	boot := filepath.Join(proc, "sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(boot), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(boot, []byte("first\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tries, fails := 0, errors.New("no overlay")
	start := func(dir string, with error, want int) {
		t.Helper()
		h := Overlays{File: note, proc: proc, try: func(string) error { tries++; return with }}
		before := tries
		if err := h.Capable(dir); tries > before && err != with || tries == before && err != nil {
			t.Errorf("%v, want what the try said: %v", err, with)
		}
		if err := h.Remember(); err != nil {
			t.Error(err)
		}
		if tries != want {
			t.Errorf("%d tries so far, want %d", tries, want)
		}
	}
	dir := t.TempDir()
	start(dir, fails, 1)
	start(dir, nil, 2)
	start(dir, fails, 2) // it is not asked
	start("/proc", fails, 3)
	if err := os.WriteFile(boot, []byte("second\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(dir, nil, 4)
	start(dir, nil, 4)
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(dir, nil, 5)
	if err := os.Remove(boot); err != nil {
		t.Fatal(err)
	}
	start(dir, nil, 6)
	start(dir, nil, 7)
}
