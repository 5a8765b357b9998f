package brain

import (
	"encoding/json"
	"testing"

	"ledge/api/board"
	"ledge/shutdown"
)

// TestShutdownShown: what a board says of its lock, on its Node and to doctor (N-5.39, N-5.44).
func TestShutdownShown(t *testing.T) {
	for _, tt := range []struct {
		report    string
		condition string // status, reason and message
	}{
		{`{"sources":["signals","logind"],"lock":{"unit":true,"held":true,"grantedSeconds":30,"wantedSeconds":30}}`,
			"True LogindWaits logind holds up a shutdown for 30 seconds; shutdowns are heard of from: signals, logind"},
		{`{"sources":["logind"],"lock":{"unit":true,"held":true,"grantedSeconds":5,"wantedSeconds":30}}`,
			"True TooLittleTime logind holds up a shutdown for 5 of 30 seconds; 'ledge doctor' says why; shutdowns are heard of from: logind"},
		{`{"sources":["signals"],"lock":{"unit":true,"wantedSeconds":30,"error":"no bus"}}`,
			"False NoLogind logind does not hold up a shutdown: no bus; shutdowns are heard of from: signals"},
		{`{"sources":["signals"],"lock":{"unit":true,"held":true,"grantedSeconds":30,"wantedSeconds":30,"error":"logind went away"}}`,
			"False NoLogind logind does not hold up a shutdown: logind went away; shutdowns are heard of from: signals"},
		{`{"sources":["signals"],"lock":{"wantedSeconds":30,"error":"by hand"}}`,
			"False NoLogind logind does not hold up a shutdown: by hand; shutdowns are heard of from: signals"},
		{`{"sources":["signals","power key"],"lock":{"wantedSeconds":30,"error":"none"}}`,
			"False NoLogind logind does not hold up a shutdown: none; shutdowns are heard of from: signals, power key"},
		{`{"sources":["signals"],"lock":{"unit":true}}`,
			"False NotConfigured shutdownGracePeriod is 0: a shutdown does not wait for the pods; shutdowns are heard of from: signals"},
	} {
		var r board.Shutdown
		must(t, json.Unmarshal([]byte(tt.report), &r))
		c := lockCondition(r)
		if got := string(c.Status) + " " + c.Reason + " " + c.Message; got != tt.condition || c.Type != shutdownInhibited {
			t.Errorf("%s:\n%s, want\n%s", tt.report, got, tt.condition)
		}
	}
	for sag, want := range map[shutdown.Sag]string{shutdown.NoSensor: "", shutdown.Steady: "False", shutdown.Low: "True"} {
		if c := voltageCondition(sag); string(c.Status) != want || c.Type != lowVoltage {
			t.Errorf("%v: %+v", sag, c)
		}
	}
}
