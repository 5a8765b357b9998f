package brain

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
