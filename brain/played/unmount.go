package played

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Unmount takes off what agents have mounted below a directory, the newest first: volumes of pods, and files that they made for them.
func Unmount(dir string) error {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			below = append(below, f[1])
		}
	}
	for _, m := range slices.Backward(below) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return nil
}
