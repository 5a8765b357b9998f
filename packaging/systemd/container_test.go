package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/internal/nspawn"
)

// inContainer is set where TestUnitsUnderSystemd has a container for itself.
const inContainer = "LEDGE_NSPAWN"

// The machine that the sources are tested on may forbid its packages to start anything, and its disk may be as full as the node calls
// short; nspawn leaves cgroup v1 read-only.
const containerScript = `exec >/out/log 2>&1
rm -f /usr/sbin/policy-rc.d
for h in /sys/fs/cgroup/*/; do mount -o remount,bind,rw "$h"; done
cp -a /var/lib /run/lib && mount -t tmpfs -o mode=755 lib /var/lib && cp -a /run/lib/. /var/lib
cd /out && ` + inContainer + `=1 LEDGE_DEBS=/out ./tests -test.v -test.run '^TestUnitsUnderSystemd$'
echo "end $?"
`

// TestPackageInContainer runs TestUnitsUnderSystemd in a container with systemd, cgroup v1 and a Debian's package manager: what
// the guest does with cgroup v2.
func TestPackageInContainer(t *testing.T) {
	if os.Getenv("LEDGE_VM") != "" {
		t.Skip("the guest runs TestUnitsUnderSystemd itself")
	}
	ledge := os.Getenv("LEDGE_BIN")
	if ledge == "" {
		t.Skip("LEDGE_BIN names no built ledge: make test does")
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	packages, programs := t.TempDir(), map[string]string{"tests": own}
	for _, version := range []string{"v0.0.1", "v0.0.2"} {
		pack := exec.Command("../deb/build.sh", "amd64", ledge, packages)
		pack.Env = append(os.Environ(), "VERSION="+version, "COMPRESS=gzip", "LEDGE_BIN="+ledge)
		if out, err := pack.CombinedOutput(); err != nil {
			t.Fatalf("pack ledge: %v\n%s", err, out)
		}
		file := deb(t, packages, strings.TrimPrefix(version, "v"))
		programs[filepath.Base(file)] = file
	}
	out, _ := nspawn.Machine{Name: "ledge-package", Target: "test.target", Whole: true, Limit: 5 * time.Minute, Programs: programs,
		Files: map[string]string{
			"etc/systemd/system/test.target":  "[Unit]\nRequires=basic.target dbus.service\nAfter=basic.target dbus.service\nWants=test.service\n",
			"etc/systemd/system/test.service": "[Unit]\nAfter=dbus.service\n[Service]\nType=oneshot\nExecStart=/bin/sh /out/test.sh\nExecStopPost=systemctl poweroff\n",
			"var/lib/dpkg/status":             run(t, "dpkg-query", "-s", "init-system-helpers"),
			"var/lib/dpkg/available":          "", "var/lib/dpkg/info/.keep": "", "var/lib/dpkg/updates/.keep": "",
			"var/lib/dpkg/triggers/.keep": "",
		},
		Out: map[string]string{"test.sh": containerScript}}.Boot(t)
	log := words(t, out, "log")
	if !strings.HasSuffix(log, "end 0\n") || !strings.Contains(log, "--- PASS: TestUnitsUnderSystemd") {
		t.Error(log)
	}
}
