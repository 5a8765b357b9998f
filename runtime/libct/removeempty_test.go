package libct

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRemoveEmpty: what is needed to kill the processes of a cgroup is there as long as there are any, in whatever hierarchy.
func TestRemoveEmpty(t *testing.T) {
	for _, tt := range []struct {
		busy string
		left []string
	}{
		{"none", nil},
		{"memory", []string{"", "devices", "freezer", "memory"}},
		{"devices", []string{"", "devices", "freezer"}}, // whichever of the three is first
	} {
		top, all := t.TempDir(), map[string]string{"gone": "/nowhere/at/all"}
		for _, controller := range []string{"", "cpu", "devices", "freezer", "memory", "pids"} {
			all[controller] = filepath.Join(top, "h"+controller)
			inner := all[controller]
			if controller == tt.busy {
				inner = filepath.Join(inner, "child")
			}
			if err := os.MkdirAll(inner, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		left := removeEmpty(all)
		if tt.busy == "none" && len(left) > 0 || tt.busy != "none" && !slices.Contains(left, all[tt.busy]) {
			t.Errorf("%s: left %q", tt.busy, left)
		}
		for controller, p := range all {
			_, err := os.Lstat(p)
			if there := err == nil; there != slices.Contains(left, p) || there && !slices.Contains(tt.left, controller) {
				t.Errorf("%s: %q is there: %v; left %q", tt.busy, controller, there, left)
			}
		}
		if tt.busy == "memory" && len(left) != len(tt.left) {
			t.Errorf("left %q", left)
		}
	}
}
