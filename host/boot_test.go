package host

import (
	"slices"
	"testing"
)

func TestDiskFileSystems(t *testing.T) {
	got := diskFileSystems("nodev\tsysfs\nnodev\ttmpfs\n\text3\n\text2\n\text4\n\tvfat\n")
	if want := []string{"ext4", "vfat", "ext3", "ext2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestIsInit: neither an ordinary process nor the first of a container is a machine's first.
func TestIsInit(t *testing.T) {
	if IsInit() {
		t.Error("this test takes itself for the first process of a machine")
	}
}
