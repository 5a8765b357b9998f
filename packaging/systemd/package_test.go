package systemd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ledge/upgrade/upgradetest"
)

var units = []string{"ledge-keeper.service", "ledge.service"}

// deb is the package of a version.
func deb(t *testing.T, dir, version string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "ledge_"+version+"_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages of version %s in %s: %v, %v", version, dir, found, err)
	}
	return found[0]
}

// dpkg runs it as unattended upgrades do: nobody is there to be asked.
func dpkg(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, "dpkg", append([]string{"--force-unsafe-io"}, args...)...)
}

// install installs the package, which starts the node. The units' own watchdogs are waited for: with one time for both, a
// keeper that hangs would take the brain along, and the fourth death in a row ends in safe mode.
func (m machine) install() {
	t := m.t
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(output("journalctl", "--no-pager", "-q", "-n", "80", "-u", "ledge.service", "-u", "ledge-keeper.service"))
			t.Log(output("systemctl", "status", "--no-pager", "ledge.service", "ledge-keeper.service"))
			t.Log(output("dpkg", "--purge", "ledge"))
		}
	})
	dpkg(t, "-i", deb(t, os.Getenv("LEDGE_DEBS"), "0.0.1"))
	for _, unit := range units {
		if err := m.active(unit); err != nil {
			t.Fatalf("after the install %s: %v", unit, err)
		}
		if state := output("systemctl", "is-enabled", unit); state != "enabled\n" {
			t.Errorf("after the install %s is %s", unit, state)
		}
		pid, err := m.mainPID(unit)
		group := strings.TrimSpace(run(t, "systemctl", "show", "-P", "ControlGroup", unit))
		own, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err := errors.Join(err, rerr); err != nil || !strings.Contains(string(own), ":"+group+"\n") {
			t.Errorf("after the install process %d of %s is not in its cgroup %s: %v\n%s", pid, unit, group, err, own)
		}
	}
	// It would make files of whatever lies at /boot/firmware the board's configuration.
	if state := output("systemctl", "is-enabled", "ledge-firstboot.service"); !strings.HasPrefix(state, "disabled\n") {
		t.Errorf("after the install ledge-firstboot.service is %s", state)
	}
	newer := regexp.MustCompile(`(?m)^.*Unknown key (name )?'(RestartSteps|RestartMaxDelaySec)' in section ['\[]Service['\]], ignoring\.\n`)
	const at = "/lib/systemd/system/" // bare names would be those of the sources, if these are where the test runs
	if out := newer.ReplaceAllString(run(t, "systemd-analyze", "verify", "--man=no", at+units[0], at+units[1]), ""); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	if out := run(t, "dpkg", "--verify", "ledge"); strings.Contains(out, "/usr/bin") || strings.Contains(out, "/etc") {
		t.Errorf("dpkg --verify: %s", out) // the guest leaves documentation out
	}
}

// upgrade: the brain is the new one, the pod and the keeper are the old ones, and what the administrator wrote counts.
func (m machine) upgrade(pid int) {
	t := m.t
	t.Helper()
	const config = "/etc/ledge/config.yaml"
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	mine := string(text) + "maxPods: 42\n"
	if err := os.WriteFile(config, []byte(mine), 0o644); err != nil {
		t.Fatal(err)
	}
	processes := func() (brain, hands int) {
		t.Helper()
		brain, err := m.mainPID("ledge.service")
		hands, err2 := m.mainPID("ledge-keeper.service")
		if err := errors.Join(err, err2); err != nil || brain == 0 || hands == 0 {
			t.Fatalf("the brain is process %d, the keeper %d, %v", brain, hands, err)
		}
		return brain, hands
	}
	if os.Getenv("LEDGE_LONG") != "" {
		m.signed(pid, processes)
	}
	brain, hands := processes()
	dpkg(t, "-i", deb(t, os.Getenv("LEDGE_DEBS"), "0.0.2"))
	m.steadyPod("upgrade", pid)
	now, keeper := processes()
	if keeper != hands {
		t.Errorf("the upgrade has replaced the keeper: process %d, was %d", keeper, hands)
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", now))
	if now == brain || err != nil || exe != "/usr/bin/ledge" {
		t.Errorf("after the upgrade the brain is process %d (was %d) of %s, %v", now, brain, exe, err)
	}
	if text, err := os.ReadFile(config); err != nil || string(text) != mine {
		t.Errorf("the changed configuration is now %q, %v", text, err)
	}
	eventually(t, "the changed configuration counts", func() error {
		return contains(output("ledge", "get", "nodes", "-o", "yaml"), `pods: "42"`)
	})
	// The old keeper starts containers for the new brain, from a program that is no more.
	later := strings.NewReplacer("name: units", "name: later", marker, "86398").Replace(pod)
	if err := os.WriteFile("/tmp/later.yaml", []byte(later), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "ledge", "apply", "-f", "/tmp/later.yaml")
	eventually(t, "a pod starts after the upgrade", func() error { return contains(output("ledge", "get", "pod", "later"), "Running") })
}

// signed: a signed version takes the brain's place in its unit, and goes again; systemd has not started anything meanwhile. The
// package that comes then is newer than what runs.
func (m machine) signed(pid int, processes func() (brain, hands int)) {
	t := m.t
	t.Helper()
	s := upgradetest.NewSigner(t)
	var own struct{ Version string }
	if err := json.Unmarshal([]byte(run(t, "ledge", "version", "-o", "json")), &own); err != nil {
		t.Fatal(err)
	}
	file, version := s.Another("/usr/bin/ledge", own.Version, "9")
	brain, hands := processes()
	for _, c := range []struct{ name, want, exe string }{
		{file, version, "/var/lib/ledge/versions/ledge-" + version},
		{"--rollback", own.Version, "/usr/bin/ledge"},
	} {
		if out := run(t, "ledge", "upgrade", "--keys", s.Keys, c.name); !strings.Contains(out, "is well and stays") {
			t.Errorf("ledge upgrade %s: %s", c.name, out)
		}
		m.steadyPod("ledge upgrade "+c.name, pid)
		if b, h := processes(); b != brain || h != hands {
			t.Errorf("ledge upgrade %s: the brain is process %d (was %d), the keeper %d (was %d)", c.name, b, brain, h, hands)
		}
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", brain)); err != nil || !strings.HasPrefix(exe, c.exe) {
			t.Errorf("ledge upgrade %s: the brain runs %s, %v; want %s", c.name, exe, err, c.exe)
		}
		eventually(t, "the node is "+c.want, func() error { return contains(output("ledge", "get", "nodes"), c.want) })
	}
}

// removeAndInstall: a removal stops the pods in order and leaves nothing running, and the node's data; another install gives
// the pods back.
func removeAndInstall(t *testing.T, pid int) {
	t.Helper()
	if out := dpkg(t, "-r", "ledge"); !strings.Contains(out, "stopping the pods in order") ||
		!strings.Contains(out, "stays in /var/lib/ledge") {
		t.Errorf("the removal does not say what it does: %s", out)
	}
	noProcess(t)
	if err := contains(output("journalctl", "--no-pager", "-q", "-o", "cat", "-u", "ledge.service"), "shutdown stage over"); err != nil {
		t.Errorf("the pods were not stopped in order: %v", err)
	}
	for _, left := range []string{"/usr/bin/ledge", "/run/ledge", "/sys/class/net/ledge0", "/run/systemd/system/ledge.service.d"} {
		if _, err := os.Lstat(left); err == nil {
			t.Errorf("%s is left after the removal", left)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), "ledge") {
		t.Errorf("mounts are left after the removal: %s %v", mounts, err)
	}
	for _, stays := range []string{"/var/lib/ledge/store/state.db", "/etc/ledge/config.yaml"} {
		if _, err := os.Stat(stays); err != nil {
			t.Errorf("after the removal: %v", err)
		}
	}
	dpkg(t, "-i", deb(t, os.Getenv("LEDGE_DEBS"), "0.0.2"))
	eventually(t, "the pod is back", func() error {
		switch got, err := podProcess(); {
		case err != nil:
			return err
		case got == pid:
			return fmt.Errorf("process %d has never ended", pid)
		}
		return running()
	})
}

// purge: the node's data goes, and the output says so.
func purge(t *testing.T) {
	t.Helper()
	if out := dpkg(t, "--purge", "ledge"); !strings.Contains(out, "removing /var/lib/ledge") {
		t.Errorf("the purge does not say what it removes: %s", out)
	}
	noProcess(t)
	left, err := filepath.Glob("/etc/systemd/system/*.wants/ledge*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(left, "/var/lib/ledge", "/etc/ledge") {
		_ = filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				t.Errorf("%s is left after the purge", path)
			}
			return nil
		})
	}
}

func noProcess(t *testing.T) {
	t.Helper()
	if got, err := podProcess(); err == nil {
		t.Errorf("the pod's process %d is left", got)
	}
}
