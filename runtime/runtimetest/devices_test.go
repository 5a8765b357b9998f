package runtimetest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// TestGivenDevice: who was given a device opens it, whoever runs in the container, and no other, made by itself or not.
func TestGivenDevice(t *testing.T) {
	s := inProcess(t)
	given := nodeOf(t, "/dev/net/tun", "/dev/fuse", "/dev/vsock")
	other := nodeOf(t, "/dev/userfaultfd", "/dev/hwrng", "/dev/loop-control", "/dev/kmsg")
	p := s.Pod(t)
	c := s.NewContainer(t, p, "opennodes", "/dev/ledge/x", "/dev/bus/a/x", "/dev/other="+other)
	var d runtime.Device
	if _, err := fmt.Sscanf(given, "%d:%d", &d.Major, &d.Minor); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/ledge/x", "/dev/bus/a/x"} {
		d.Path = path
		c.Devices = append(c.Devices, d)
	}
	c.Capabilities = usualCaps
	has(t, output(t, s, c), "/dev/ledge/x read ok", "/dev/ledge/x write ok", "/dev/bus/a/x write ok", "/dev/other mknod ok", "/dev/other read EPERM",
		"/dev/other write EPERM")
	nobody := s.NewContainer(t, p, "opennodes", "/dev/ledge/x", "/dev/null")
	nobody.User, nobody.NoNewPrivs, nobody.Devices, nobody.ReadonlyRootfs = runtime.User{UID: 4711, GID: 4711}, true, c.Devices, true
	has(t, output(t, s, nobody), "/dev/ledge/x read ok", "/dev/ledge/x write ok")
	reader := s.NewContainer(t, p, "opennodes", "/dev/ledge/x")
	d.Path, d.ReadOnly = "/dev/ledge/x", true
	reader.Capabilities, reader.Devices = usualCaps, []runtime.Device{d}
	has(t, output(t, s, reader), "/dev/ledge/x read ok", "/dev/ledge/x write EPERM")
	without := s.NewContainer(t, p, "opennodes", "/dev/x="+given)
	without.Capabilities = usualCaps
	has(t, output(t, s, without), "/dev/x mknod ok", "/dev/x read EPERM")
}

// TestGivenBlock: who was given a block device opens that, and no other, nor a character device with its numbers.
func TestGivenBlock(t *testing.T) { // N-13.18
	s := inProcess(t)
	img := filepath.Join(t.TempDir(), "img")
	if err := errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 1<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", img).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices here: %v %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	d := runtime.Device{Path: "/dev/data", Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	p := s.Pod(t)
	c := s.NewContainer(t, p, "opennodes", "/dev/data", fmt.Sprintf("/dev/char=%d:%d", d.Major, d.Minor))
	c.Capabilities, c.Blocks = usualCaps, []runtime.Device{d}
	has(t, output(t, s, c), "/dev/data read ok", "/dev/data write ok", "/dev/char mknod ok", "/dev/char read EPERM")
	nobody := s.NewContainer(t, p, "opennodes", "/dev/data")
	nobody.User, nobody.NoNewPrivs, nobody.Blocks, nobody.ReadonlyRootfs = runtime.User{UID: 4711, GID: 4711}, true, c.Blocks, true
	has(t, output(t, s, nobody), "/dev/data read ok", "/dev/data write ok")
	d.ReadOnly = true
	reader := s.NewContainer(t, p, "opennodes", "/dev/data")
	reader.Capabilities, reader.Blocks = usualCaps, []runtime.Device{d}
	has(t, output(t, s, reader), "/dev/data read ok", "/dev/data write EPERM")
	d.Path = ""
	mounted := s.NewContainer(t, p, "opennodes", "/data")
	mounted.Capabilities, mounted.Blocks, mounted.Mounts = usualCaps, []runtime.Device{d}, []runtime.Mount{{Source: device, Target: "/data"}}
	has(t, output(t, s, mounted), "/data read ok", "/data write EPERM")
	without := s.NewContainer(t, p, "opennodes", "/data")
	without.Capabilities, without.Mounts = usualCaps, mounted.Mounts
	has(t, output(t, s, without), "/data read EPERM")
}

// TestDeviceRefused: what would make nodes elsewhere, or could not make them, does not start.
func TestDeviceRefused(t *testing.T) {
	s := inProcess(t)
	p := s.Pod(t)
	for _, path := range []string{"/etc/x", "/dev/../etc/x", "dev/x", "/dev/"} {
		c := s.NewContainer(t, p, "exit", "0")
		c.Devices = []runtime.Device{{Path: path, Major: 1, Minor: 3}}
		if _, err := s.Engine.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "below /dev") {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, list := range [][]runtime.Device{{{Path: "/dev/tty", Major: 188}}, {{Path: "/dev/ptmx", Major: 188}},
		{{Path: "/dev/ledge/x", Major: 188}, {Path: "/dev/ledge/x", Major: 188, Minor: 1}}} {
		c := s.NewContainer(t, p, "exit", "0")
		c.Devices = list
		if _, err := s.Engine.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "something else is at "+list[0].Path) {
			t.Errorf("%v: %v", list, err)
		}
	}
	c := s.NewContainer(t, p, "exit", "0")
	c.Devices = make([]runtime.Device, 257)
	if _, err := s.Engine.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "more than 256") {
		t.Error(err)
	}
}

// nodeOf is the numbers, as 10:200, of the first of these devices that this machine has and lets us open.
func nodeOf(t *testing.T, paths ...string) string {
	t.Helper()
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			continue
		}
		_ = f.Close()
		return fmt.Sprintf("%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
	}
	t.Skipf("none of %v can be opened here", paths)
	return ""
}
