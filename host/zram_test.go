package host

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSwapHeader: it is what mkswap writes, but for the identity, which nobody looks for. That a kernel takes it is seen where
// ledge is process 1.
func TestSwapHeader(t *testing.T) {
	const size = 1 << 20
	file := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/usr/sbin/mkswap", "-q", file).CombinedOutput()
	if err != nil {
		t.Fatalf("mkswap: %v: %s", err, out)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	want = want[:page]
	clear(want[1036:1068]) // its UUID, and the name
	if got := swapHeader(size, page); string(got) != string(want) {
		t.Errorf("\n%s, want\n%s", hex.Dump(got), hex.Dump(want))
	}
}
