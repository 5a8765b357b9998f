// Package deb_test checks the Debian packages: what is in them, anywhere; what they do, under systemd (packaging/systemd).
package deb_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build packs a file that stands for the binary, beside the words of the real one.
func build(t *testing.T, dest string, env ...string) (path, listing string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ledge")
	if err := os.WriteFile(binary, []byte("no program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("./build.sh", "arm64", binary, dest)
	cmd.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000"), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	path = strings.TrimSpace(string(out))
	return path, tell(t, "dpkg-deb", "-c", path)
}

func tell(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestPackages(t *testing.T) {
	if os.Getenv("LEDGE_BIN") == "" {
		t.Skip("LEDGE_BIN names no built ledge: make test does")
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg here")
	}
	path, listing := build(t, t.TempDir(), "VERSION=v1.2.3-rc1-4-gabcdef0-dirty")
	if want := "ledge_1.2.3~rc1+4.gabcdef0+dirty_arm64.deb"; filepath.Base(path) != want {
		t.Errorf("the package is %s, want %s", filepath.Base(path), want)
	}
	for _, want := range []string{
		"-rwxr-xr-x root/root        11 2023-11-14 22:13 ./usr/bin/ledge", "./usr/lib/systemd/system/ledge.service",
		"./usr/lib/systemd/system/ledge-keeper.service",
		"./usr/lib/systemd/system/ledge-firstboot.service",
		"./usr/share/man/man8/ledge.8.gz", "./usr/share/man/man8/ledge-shutdown.8.gz", "./usr/share/man/man8/ledge-keeper.8.gz",
		"./usr/share/man/man5/ledge-config.5.gz",
		"./usr/share/bash-completion/completions/ledge", "./usr/share/zsh/vendor-completions/_ledge",
		"./usr/share/fish/vendor_completions.d/ledge.fish",
		"./etc/ledge/config.yaml", "./usr/share/doc/ledge/copyright", "./usr/share/doc/ledge/manual/README.md", "./usr/share/doc/ledge/NOTICE.gz",
	} {
		if !strings.Contains(listing, want) {
			t.Errorf("no %s in\n%s", want, listing)
		}
	}
	if got := tell(t, "dpkg-deb", "-I", path, "conffiles"); got != "/etc/ledge/config.yaml\n" {
		t.Errorf("conffiles: %q", got)
	}
	root := t.TempDir()
	tell(t, "dpkg-deb", "-x", path, root)
	for unit, start := range map[string]string{"ledge.service": "serve", "ledge-keeper.service": "keeper --cgroup-root=/",
		"ledge-firstboot.service": "firstboot"} {
		text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", unit))
		if err != nil || !bytes.Contains(text, []byte("\nExecStart=/usr/bin/ledge "+start+"\n")) || bytes.Contains(text, []byte("/usr/local")) {
			t.Errorf("%s: %v\n%s", unit, err, text)
		}
	}
	service, err := os.ReadFile(filepath.Join(root, "usr/share/doc/ledge/openrc/ledge"))
	if err != nil || !bytes.Contains(service, []byte("{LEDGE:-/usr/bin/ledge}")) {
		t.Errorf("OpenRC's service: %v\n%s", err, service)
	}
	page := tell(t, "gzip", "-dc", filepath.Join(root, "usr/share/man/man8/ledge-shutdown.8.gz"))
	if !strings.Contains(page, "2023-11-14") || !strings.Contains(page, `\fB\-\-plan\fR`) {
		t.Errorf("the page of ledge shutdown: %s", page)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		tell(t, "sh", "-n", script)
		if got := tell(t, "dpkg-deb", "-I", path, script); !strings.HasPrefix(got, "#!/bin/sh") {
			t.Errorf("%s: %s", script, got)
		}
	}

	again, _ := build(t, t.TempDir(), "VERSION=v1.2.3-rc1-4-gabcdef0-dirty", "TZ=Asia/Tokyo", "LC_ALL=C")
	one, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := os.ReadFile(again); err != nil || !bytes.Equal(one, two) {
		t.Errorf("two packages of the same commit differ: %v", err)
	}
}
