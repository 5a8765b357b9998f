package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"ledge/api/board"
	"ledge/host"
	"ledge/shutdown"
)

// TestShutdownShown: what a board says of its lock, on its Node and to doctor (N-5.39, N-5.44).
func TestShutdownShown(t *testing.T) {
	for _, tt := range []struct {
		report    string
		systemd   bool
		condition string // status, reason and message
		doctor    string // error or detail, and a part of the remedy
	}{
		{`{"sources":["signals","logind"],"lock":{"unit":true,"held":true,"grantedSeconds":30,"wantedSeconds":30}}`, true,
			"True LogindWaits logind holds up a shutdown for 30 seconds; shutdowns are heard of from: signals, logind",
			"logind waits 30s; shutdowns are heard of from: signals, logind -> "},
		{`{"sources":["logind"],"lock":{"unit":true,"held":true,"grantedSeconds":5,"wantedSeconds":30}}`, true,
			"True TooLittleTime logind holds up a shutdown for 5 of 30 seconds; 'ledge doctor' says why; shutdowns are heard of from: logind",
			"logind waits 5s, 30s are wanted: the lowest priorities get no time -> remove InhibitDelayMaxSec from /etc/x.conf, which beats"},
		{`{"sources":["signals"],"lock":{"unit":true,"wantedSeconds":30,"error":"no bus"}}`, true,
			"False NoLogind logind does not hold up a shutdown: no bus; shutdowns are heard of from: signals",
			"logind does not hold up a shutdown: no bus -> install and start it"},
		{`{"sources":["signals"],"lock":{"unit":true,"held":true,"grantedSeconds":30,"wantedSeconds":30,"error":"logind went away"}}`, true,
			"False NoLogind logind does not hold up a shutdown: logind went away; shutdowns are heard of from: signals",
			"logind does not hold up a shutdown: logind went away -> install and start it"},
		{`{"sources":["signals"],"lock":{"wantedSeconds":30,"error":"by hand"}}`, true,
			"False NoLogind logind does not hold up a shutdown: by hand; shutdowns are heard of from: signals",
			"the node was not started by systemd: a shutdown does not wait for its pods -> start it by its unit"},
		{`{"sources":["signals","power key"],"lock":{"wantedSeconds":30,"error":"none"}}`, false,
			"False NoLogind logind does not hold up a shutdown: none; shutdowns are heard of from: signals, power key",
			"no systemd; shutdowns are heard of from: signals, power key -> "},
		{`{"sources":["signals"],"lock":{"unit":true}}`, true,
			"False NotConfigured shutdownGracePeriod is 0: a shutdown does not wait for the pods; shutdowns are heard of from: signals",
			"a shutdown does not wait for the pods: shutdownGracePeriod is 0 -> set shutdownGracePeriod"},
	} {
		var r board.Shutdown
		must(t, json.Unmarshal([]byte(tt.report), &r))
		c := lockCondition(r)
		if got := string(c.Status) + " " + c.Reason + " " + c.Message; got != tt.condition || c.Type != shutdownInhibited {
			t.Errorf("%s:\n%s, want\n%s", tt.report, got, tt.condition)
		}
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
	for sag, want := range map[shutdown.Sag]string{shutdown.NoSensor: "", shutdown.Steady: "False", shutdown.Low: "True"} {
		if c := voltageCondition(sag); string(c.Status) != want || c.Type != lowVoltage {
			t.Errorf("%v: %+v", sag, c)
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
