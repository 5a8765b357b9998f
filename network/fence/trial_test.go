package fence

import (
	"os"
	"testing"
)

// TestTry: what the doctor tries, this kernel can.
func TestTry(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, x := range Try() {
		if x.Err != nil {
			t.Errorf("%s: %v", x.Name, x.Err)
		}
	}
}
