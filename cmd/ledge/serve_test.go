package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ledge/config"
)

// TestSocketHeldByChild: a socket that a child holds for a moment after its ledge was killed is no ledge; one that goes on is.
func TestSocketHeldByChild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledge.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	if !servedAt(t.Context(), path) {
		t.Error("nobody answers where one listens")
	}
	f, err := l.File()
	must(t, err)
	child := exec.CommandContext(t.Context(), "sleep", "0.3")
	child.ExtraFiles = []*os.File{f}
	must(t, child.Start())
	must(t, f.Close())
	must(t, l.Close())
	if servedAt(t.Context(), path) {
		t.Error("a child that is gone answers")
	}
	must(t, child.Wait())
}

func TestCheckPlaces(t *testing.T) {
	long := "/" + strings.Repeat("x", longestRunDir-1)
	for _, tc := range []struct{ run, data, want string }{
		{config.DefaultRunDir, config.DefaultDataDir, ""},
		{long, "/d", ""},
		{long + "x", "/d", "give a shorter one"},
		{"/r", "", "--data-dir is empty"},
		{"/r", "/r", "in the run directory"},
		{"/r", "/r/data", "in the run directory"},
		{"/r", "/r-data", ""},
		{"/d/run", "/d", ""},
	} {
		if err := checkPlaces(tc.run, tc.data); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	path := socketPath(long) + ".4194304"
	if len(path) != 107 {
		t.Errorf("a path of %d bytes", len(path))
	}
}

// TestHoldRunDir: one holds a run directory, whatever programs that one has started; one that a reset has removed holds nobody off.
func TestHoldRunDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	must(t, os.Mkdir(dir, 0o700))
	first, err := holdRunDir(t.Context(), dir)
	must(t, err)
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	must(t, child.Start())
	defer child.Wait()
	defer child.Process.Kill()
	if _, err := holdRunDir(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "another ledge runs there") {
		t.Error("held twice:", err)
	}
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o700))
	second, err := holdRunDir(t.Context(), dir)
	must(t, err)
	must(t, first.Close())
	must(t, second.Close())
	third, err := holdRunDir(t.Context(), dir)
	must(t, err)
	must(t, third.Close())
}
