package brain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ledge/upgrade"
)

// TestProve: a version is well when nothing has been missing for a while, and its trial ends in time whatever happens.
func TestProve(t *testing.T) {
	const within = time.Minute
	for name, tc := range map[string]struct {
		look     func(since time.Duration) error
		refuse   time.Duration // commits fail until then
		well     time.Duration // 0: never
		ended    time.Duration
		mentions string
	}{
		"at once":       {look: func(time.Duration) error { return nil }, well: wellFor},
		"after a while": {look: late(20 * time.Second), well: 20*time.Second + wellFor},
		"never":         {look: late(time.Hour), ended: within, mentions: "was not well within 1m0s: the Node: is not ready"},
		"too late":      {look: late(within - time.Second), ended: within, mentions: "not been well for long enough"},
		"on and off": {look: func(since time.Duration) error { return late(since)(since.Truncate(4*time.Second) + time.Millisecond) },
			ended: within},
		"a full disk":      {look: func(time.Duration) error { return nil }, refuse: 30 * time.Second, well: 30 * time.Second},
		"a full disk, yet": {look: func(time.Duration) error { return nil }, refuse: time.Hour, ended: within, mentions: "no space"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, well := time.Now(), time.Duration(0)
				tr := &Trial{self: "x", within: within}
				err := tr.prove(t.Context(), func(context.Context) error { return tc.look(time.Since(begun)) }, func() error {
					if time.Since(begun) < tc.refuse {
						return errors.New("no space")
					}
					well = time.Since(begun)
					return nil
				})
				if well != tc.well || (err == nil) != (tc.well > 0) {
					t.Errorf("well after %s, want %s: %v", well, tc.well, err)
				}
				if took := time.Since(begun); tc.ended > 0 && (took < tc.ended || took > tc.ended+2*lookEvery) {
					t.Errorf("ended after %s, want %s", took, tc.ended)
				}
				if err != nil && !strings.Contains(err.Error(), tc.mentions) {
					t.Error(err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := (&Trial{within: within}).prove(ctx, func(context.Context) error { return errors.New("x") }, nil); err != nil {
			t.Errorf("one that is told to end: %v", err)
		}
	})
}

// late is a look that finds something missing until then.
func late(until time.Duration) func(time.Duration) error {
	return func(since time.Duration) error {
		if since < until {
			return errors.New("the Node: is not ready")
		}
		return nil
	}
}

// TestTrialSafeMode: a version on trial, and the one that runs again after it, are not held for what another died of.
func TestTrialSafeMode(t *testing.T) {
	for _, tc := range []struct {
		t    Trial
		want int
	}{{Trial{}, 3}, {Trial{on: true}, 0}, {Trial{came: &upgrade.Outcome{}}, 0}} {
		if got := tc.t.safeAfter(3); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.t, got, tc.want)
		}
	}
}
