package testrun

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorded is a test whose failure is looked at.
type recorded struct {
	testing.TB
	said string
}

func (*recorded) Helper()                        {}
func (r *recorded) Fatalf(f string, args ...any) { r.said = fmt.Sprintf(f, args...) }

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, asked := time.Now(), 0
		Until(t, time.Minute, "a second passes", func() bool { asked++; return time.Since(start) >= time.Second })
		if d := time.Since(start); d > 1050*time.Millisecond || asked > 60 {
			t.Errorf("it was seen after %s and %d questions", d, asked)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, start := &recorded{}, time.Now()
		Succeeds(r, 10*time.Second, "the door opens", func() error { return errors.New("it is locked") })
		if !strings.Contains(r.said, "the door opens") || !strings.Contains(r.said, "it is locked") {
			t.Errorf("it says %q", r.said)
		}
		if d := time.Since(start); d < 10*time.Second || d > 10100*time.Millisecond {
			t.Errorf("it waited %s", d)
		}
	})
}
