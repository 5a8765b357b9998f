// Package systemd_test checks the units: their text anywhere, their behaviour under a real systemd (make test-vm).
package systemd_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// settings reads a unit file: section.key -> values.
func settings(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("%s: %q is no setting", file, line)
		}
		found[section+"."+key] = append(found[section+"."+key], value)
	}
	return found
}

func TestUnitFiles(t *testing.T) {
	both := map[string]string{
		"Unit.StartLimitIntervalSec":       "0",
		"Service.Type":                     "notify",
		"Service.Restart":                  "always",
		"Service.TimeoutStartSec":          "5min", // 90 s would end a slow board's start again and again
		"Service.KillMode":                 "process",
		"Service.OOMPolicy":                "continue",
		"Service.OOMScoreAdjust":           "-999",
		"Service.TasksMax":                 "infinity",
		"Service.Slice":                    "-.slice", // below another that protects nothing MemoryMin is void (docs/decisions/0066)
		"Service.RuntimeDirectory":         "ledge",
		"Service.RuntimeDirectoryPreserve": "yes",
	}
	for file, own := range map[string]map[string]string{
		"ledge-keeper.service": {"Service.ExecStart": "/usr/local/bin/ledge keeper --cgroup-root=/", "Service.Delegate": "yes"},
		"ledge.service": {"Service.ExecStart": "/usr/local/bin/ledge serve", "Unit.Wants": "ledge-keeper.service",
			"Service.StateDirectory": "ledge"},
	} {
		have := settings(t, file)
		for _, wanted := range []map[string]string{both, own} {
			for key, value := range wanted {
				if !slices.Equal(have[key], []string{value}) {
					t.Errorf("%s: %s is %q, want %q", file, key, have[key], value)
				}
			}
		}
		if m := have["Service.MemoryMin"]; len(m) != 1 || m[0] == "0" {
			t.Errorf("%s: MemoryMin is %q: under pressure it would be paged out before the pods", file, m)
		}
		if len(have["Service.RestartSec"]) != 1 {
			t.Errorf("%s: no RestartSec: systemd's 100 ms would spin", file)
		}
		if w := have["Service.WatchdogSec"]; len(w) != 1 {
			t.Errorf("%s: no WatchdogSec: what hangs would hang for ever", file)
		}
		for key := range have {
			// Each of these gives the process a mount namespace of its own, where the pods' mounts would be invisible.
			for _, prefix := range []string{"Private", "Protect", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths",
				"BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "MountFlags", "RootDirectory", "RootImage", "DynamicUser"} {
				if strings.HasPrefix(key, "Service."+prefix) {
					t.Errorf("%s: %s makes a mount namespace", file, key)
				}
			}
		}
	}
	first := settings(t, "ledge-firstboot.service")
	before := strings.Fields(strings.Join(first["Unit.Before"], " "))
	for _, unit := range []string{"network-pre.target", "ssh.service", "ledge-keeper.service", "ledge.service"} {
		if !slices.Contains(before, unit) {
			t.Errorf("the first boot is not before %s", unit)
		}
	}
	for key := range first { // what may fail must not take anything with it
		if strings.HasPrefix(key, "Unit.Require") || key == "Unit.BindsTo" || key == "Install.RequiredBy" {
			t.Errorf("the first boot has %s", key)
		}
	}
	if max := settings(t, "ledge-keeper.service")["Service.FileDescriptorStoreMax"]; len(max) != 1 || max[0] == "0" {
		t.Error("the keeper has no FD store: a writer would see EPIPE while it restarts")
	}
	// What is started first is stopped last.
	after := strings.Fields(strings.Join(settings(t, "ledge.service")["Unit.After"], " "))
	for _, unit := range []string{"ledge-keeper.service", "network.target", "dbus.service", "systemd-logind.service"} {
		if !slices.Contains(after, unit) {
			t.Errorf("ledge.service is not ordered after %s: at power-off the pods would lose it first", unit)
		}
	}
	// The shutdown of the first configuration and 15 seconds; the brain asks for more where it is configured to need it.
	const least = 30 + 15
	stop := settings(t, "ledge.service")["Service.TimeoutStopSec"]
	if n, err := strconv.Atoi(strings.Join(stop, " ")); err != nil || n < least {
		t.Errorf("TimeoutStopSec is %q, want %d at least", stop, least)
	}
}
