package cli

import (
	"encoding/json"
	"errors"
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

// toldBy is what doctor prints of a probe.
func toldBy(p host.Probe) string {
	if p.Err != nil {
		return p.Err.Error() + " -> " + p.Remedy
	}
	return p.Detail + " -> " + p.Remedy
}
