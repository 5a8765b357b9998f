package testrun

import (
	"strings"
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 1, "1": 1, "0": 1, "-2": 1, "x": 1, "5": 5} {
		t.Setenv("LEDGE_PATIENCE", value)
		if got := Patience(time.Second); got != want*time.Second {
			t.Errorf("LEDGE_PATIENCE=%q: %v, want %v s", value, got, int(want))
		}
	}
}

func TestOnHost(t *testing.T) {
	for _, tc := range []struct {
		emulated, whole string
		skipped         bool
	}{{"", "", false}, {"1", "", true}, {"1", "1", false}, {"", "1", false}} {
		t.Setenv("LEDGE_EMULATED", tc.emulated)
		t.Setenv("LEDGE_WHOLE", tc.whole)
		skipped := false
		t.Run("asks", func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			OnHost(t)
		})
		if skipped != tc.skipped {
			t.Errorf("%+v: skipped is %v", tc, skipped)
		}
	}
}

func TestMark(t *testing.T) {
	for _, run := range []string{"", "ltz9z9"} { // as long as scripts/test.sh makes it
		t.Setenv("LEDGE_RUN", run)
		if m := Mark(); !strings.HasPrefix(m, run) || len(m) > 11 || len(m) == len(run) {
			t.Errorf("LEDGE_RUN=%q: %q", run, m)
		}
	}
}
