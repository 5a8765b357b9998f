package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/api/board"
	"ledge/host"
)

// TestShutdownProbe: what doctor says of how the board stands with shutdowns.
func TestShutdownProbe(t *testing.T) {
	for _, tt := range []struct {
		report  string
		systemd bool
		doctor  string // error or detail, and a part of the remedy
	}{
		{`{"sources":["signals","logind"],"lock":{"unit":true,"held":true,"grantedSeconds":30,"wantedSeconds":30}}`, true,
			"logind waits 30s; shutdowns are heard of from: signals, logind -> "},
		{`{"sources":["logind"],"lock":{"unit":true,"held":true,"grantedSeconds":5,"wantedSeconds":30}}`, true,
			"logind waits 5s, 30s are wanted: the lowest priorities get no time -> remove InhibitDelayMaxSec from /etc/x.conf, which beats"},
		{`{"sources":["signals"],"lock":{"unit":true,"wantedSeconds":30,"error":"no bus"}}`, true,
			"logind does not hold up a shutdown: no bus -> install and start it"},
		{`{"sources":["signals"],"lock":{"unit":true,"held":true,"grantedSeconds":30,"wantedSeconds":30,"error":"logind went away"}}`, true,
			"logind does not hold up a shutdown: logind went away -> install and start it"},
		{`{"sources":["signals"],"lock":{"wantedSeconds":30,"error":"by hand"}}`, true,
			"the node was not started by systemd: a shutdown does not wait for its pods -> start it by its unit"},
		{`{"sources":["signals","power key"],"lock":{"wantedSeconds":30,"error":"none"}}`, false,
			"no systemd; shutdowns are heard of from: signals, power key -> "},
		{`{"sources":["signals"],"lock":{"unit":true}}`, true,
			"a shutdown does not wait for the pods: shutdownGracePeriod is 0 -> set shutdownGracePeriod"},
	} {
		var r board.Shutdown
		must(t, json.Unmarshal([]byte(tt.report), &r))
		if got := toldBy(judgeLock(r, tt.systemd, "/etc/x.conf")); !strings.HasPrefix(got, tt.doctor) {
			t.Errorf("%s:\n%s, want\n%s", tt.report, got, tt.doctor)
		}
	}
	for want, p := range map[string]host.Probe{
		"logind waits 5s; a node raises that to what it needs -> ":                       judgeLogind(5*time.Second, nil)(true),
		"no logind: gone -> install":                                                     judgeLogind(0, errors.New("gone"))(true),
		"no logind: pods are stopped by 'ledge shutdown', the power key and SIGTERM -> ": judgeLogind(0, errors.New("gone"))(false),
	} {
		if got := toldBy(p); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestAsideProbe: doctor names what restores have put aside, what it takes up and how to be rid of it; claims it does not name.
func TestAsideProbe(t *testing.T) {
	shelf := shelfOf(t.TempDir())
	if got := asideProbe(shelf); got != nil {
		t.Errorf("no claims: %+v", got)
	}
	must(t, os.MkdirAll(shelf.Path("pvc-1"), 0o700))
	if got := asideProbe(shelf); got != nil {
		t.Errorf("a claim: %+v", got)
	}
	for _, name := range []string{"pvc-1", "pvc-2"} {
		old := shelf.Path(".old-" + name + "-20261127T120000")
		must(t, os.MkdirAll(filepath.Join(old, "in"), 0o700))
		must(t, os.WriteFile(filepath.Join(old, "in", "row"), make([]byte, 2_600_000), 0o600))
		must(t, os.Link(filepath.Join(old, "in", "row"), filepath.Join(old, "same")))
	}
	want := "a restore has put aside what was in the place of 2 claims, 5.2 MB in all: .old-pvc-1-20261127T120000 (2.6 MB), " +
		".old-pvc-2-20261127T120000 (2.6 MB) -> when nobody needs it any more: rm -r " + shelf.Path("") + "/.old-*"
	if got := asideProbe(shelf); len(got) != 1 || toldBy(got[0]) != want {
		t.Errorf("%+v, want\n%s", got, want)
	}
	must(t, os.WriteFile(shelf.Path(".restoring"), nil, 0o600))
	if got := asideProbe(shelf); len(got) != 1 || !got[0].Fatal || !strings.Contains(toldBy(got[0]), "restore FILE --claims' again") {
		t.Errorf("of a restore that was cut: %+v", got)
	}
}

// toldBy is what doctor prints of a probe.
func toldBy(p host.Probe) string {
	if p.Err != nil {
		return p.Err.Error() + " -> " + p.Remedy
	}
	return p.Detail + " -> " + p.Remedy
}

// TestDiskProbes: a disk that is not there, and one that holds no claim to its size, have a line with the remedy.
func TestDiskProbes(t *testing.T) {
	list := judgeDisks([]board.Disk{{Name: "usb", Label: "DATA", Device: "/dev/sda1"}, {Name: "ssd", Label: "S", Trouble: "no disk has it"},
		{Name: "old", Label: "O", Device: "/dev/sdb1", Unsized: "no quotas"}})
	if len(list) != 3 || list[0].Err != nil || list[0].Detail != "label DATA, /dev/sda1" {
		t.Fatalf("%+v", list)
	}
	for i, want := range map[int]string{1: "label S: no disk has it", 2: "claims on /dev/sdb1 may outgrow their sizes: no quotas"} {
		if p := list[i]; p.Err == nil || p.Err.Error() != want || p.Remedy == "" || p.Fatal {
			t.Errorf("%+v", p)
		}
	}
}
