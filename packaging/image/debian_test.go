package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigure: units that packages enable are off, ours are on, programs can be run, and what the card is mounted on is there.
func TestConfigure(t *testing.T) {
	root := t.TempDir()
	units := filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(filepath.Join(units, "getty.target.wants"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/lib/systemd/system/getty@.service", filepath.Join(units, "getty.target.wants/getty@tty1.service")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := configure(root, []string{"overlay", "evdev"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"getty.target.wants/getty@tty1.service": "", "getty@.service": "/dev/null",
		"multi-user.target.wants/ledge-firstboot.service": "/lib/systemd/system/ledge-firstboot.service",
	} {
		if to, _ := os.Readlink(filepath.Join(units, name)); to != want {
			t.Errorf("%s leads to %q, want %q", name, to, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(root, "etc/modules-load.d/ledge.conf")); err != nil || string(text) != "overlay\nevdev\n" {
		t.Errorf("%q, %v", text, err)
	}
	if st, err := os.Stat(filepath.Join(root, "usr/libexec/ledge-host-key")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
	for _, dir := range []string{"boot/firmware", "var/lib/ledge"} {
		if st, err := os.Stat(filepath.Join(root, dir)); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestScripts: a shell reads them.
func TestScripts(t *testing.T) {
	for _, script := range []string{string(startScript), hostKeyScript} {
		sh := exec.Command("sh", "-n")
		sh.Stdin = strings.NewReader(script)
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestDiskOfCommandLine: the kernel is told the number that is in the first sector, and start.sh looks for it under this word.
func TestDiskOfCommandLine(t *testing.T) {
	im := &image{board: boards["generic-amd64"], flavour: debian, ids: ids{disk: 0x00c0ffee}}
	if line := im.commandLine(); !strings.Contains(line, " ledge.disk=00c0ffee net.ifnames=0 ") || strings.Contains(line, "ledge.data") ||
		strings.Contains(line, " -- ") {
		t.Errorf("%q", line)
	}
	if !strings.Contains(string(startScript), "ledge.disk=*)") {
		t.Error("start.sh reads another word")
	}
	im.flavour = appliance
	if line := im.commandLine(); !strings.Contains(line, " ledge.data=LABEL=ledge-data -- serve ") {
		t.Errorf("%q", line)
	}
}
