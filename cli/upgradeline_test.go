package cli

import (
	"testing"

	"ledge/upgrade"
)

func TestUpgradeLine(t *testing.T) {
	s := upgrade.State{Base: upgrade.Stamp{Version: "v1.0.0"}}
	if got := upgradeLine(s); got != "" {
		t.Errorf("nothing to say: %q", got)
	}
	s.Pending = &upgrade.Trial{Name: "ledge-v2-x", Tries: 2, Wants: "the Node: is not ready"}
	if got := upgradeLine(s); got != "upgrade: ledge-v2-x is on trial, start 2 of 3; the last one ended: the Node: is not ready" {
		t.Error(got)
	}
	s.Pending, s.Last = nil, &upgrade.Outcome{Name: "ledge-v2-x", Back: upgrade.Base, Why: "it was not well after 3 starts"}
	if got := upgradeLine(s); got != "upgrade: ledge-v2-x does not stay: it was not well after 3 starts; v1.0.0 (as installed) runs" {
		t.Error(got)
	}
	s.Last = &upgrade.Outcome{Name: "ledge-v2-x"}
	if got := upgradeLine(s); got != "" {
		t.Errorf("an upgrade that is well: %q", got)
	}
}
