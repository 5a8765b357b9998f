package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDisks: a claim of a disk that is known by its label waits for it by name, lies on it, and is there again when the brain was killed.
func TestDisks(t *testing.T) { // N-13.17
	if testing.Short() {
		t.Skip("a file system is made")
	}
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	label := fmt.Sprintf("d%d", os.Getpid())
	img := filepath.Join(t.TempDir(), "img")
	must(t, errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 160<<20)))
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-L", label, img).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.WriteFile(b.config, []byte(boardConfig+"disks: [{name: usb, label: "+label+"}]\n"), 0o600))
	b.serve()
	b.eventually("there is a class of the disk", func() error { return contains(b.ledge("get", "sc"), "usb") })
	b.apply(strings.Replace(claim, "spec:\n", "spec:\n  storageClassName: usb\n", 1))
	b.apply(fmt.Sprintf(claimant, "first"))
	b.eventually("the claim says which disk it waits for", func() error {
		return contains(b.ledge("get", "events"), "disk usb (label "+label+")")
	})
	if out, _ := b.try("doctor"); !strings.Contains(out, "label "+label) {
		t.Errorf("doctor does not name it: %s", out)
	}
	out, err := exec.Command("losetup", "-f", "--show", img).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices here: %v %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	place := filepath.Join(b.runDir, "disks", "usb")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.try("get", "events"))
			t.Log(b.try("status"))
		}
		b.finish()
		b.over = true
		if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	first := b.running("first")
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/root/data/row", first), []byte("1"), 0o600))
	if list, _ := filepath.Glob(filepath.Join(place, "ledge-claims.*", "pvc-*", "row")); len(list) != 1 {
		t.Errorf("on the disk lies %v", list)
	}
	if list, _ := filepath.Glob(filepath.Join(b.data, "claims", "*")); len(list) != 0 {
		t.Errorf("on the card lies %v", list)
	}
	if err := contains(b.ledge("status"), device); err != nil {
		t.Error(err)
	}
	if line := mountedAt(t, place); !strings.Contains(line, "nosuid,nodev,noatime") || !strings.Contains(line, "errors=remount-ro") {
		t.Errorf("mounted as %q", line)
	}
	b.ledge("delete", "pod", "first")
	b.unmounted(place)
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.apply(fmt.Sprintf(claimant, "second"))
	if got := inside(b.running("second"), "/data/row"); got != "1" {
		t.Errorf("the second pod reads %q", got)
	}
	b.ledge("delete", "pod", "second")
	b.ledge("delete", "pvc", "data")
	b.eventually("the directory goes", func() error {
		if list, _ := filepath.Glob(filepath.Join(place, "ledge-claims.*", "pvc-*")); len(list) > 0 {
			return fmt.Errorf("%v is left", list)
		}
		return contains(b.ledge("get", "pv"), "No resources found")
	})
	b.withoutDisk(place)
}

// withoutDisk starts the board again without the disk in its configuration.
func (b *testBoard) withoutDisk(place string) {
	b.t.Helper()
	must(b.t, os.WriteFile(b.config, []byte(boardConfig), 0o600))
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.eventually("what the configuration does not have any more is unmounted, and its class goes", func() error {
		if line := mountedAt(b.t, place); line != "" {
			return errors.New(line)
		}
		if classes := b.ledge("get", "sc"); strings.Contains(classes, "usb") {
			return errors.New(classes)
		}
		return nil
	})
}

// mountedAt is the line of what is mounted at a place; empty: nothing is.
func mountedAt(t *testing.T, place string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " "+place+" ") {
			return line
		}
	}
	return ""
}

// unmounted unmounts a disk by hand.
func (b *testBoard) unmounted(place string) {
	b.t.Helper()
	must(b.t, syscall.Unmount(place, syscall.MNT_DETACH))
	b.eventually("it is mounted again", func() error {
		if mountedAt(b.t, place) == "" {
			return errors.New("nothing is mounted at " + place)
		}
		return nil
	})
}
