package brain

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTrustInTheClock(t *testing.T) {
	for _, tc := range []struct {
		name         string
		floor        time.Duration // from now on
		sync         time.Duration // when somebody sets the clock; 0: nobody
		after        time.Duration
		want, failed bool
	}{
		{name: "kept by somebody", floor: -time.Hour, sync: 1, want: true},
		{name: "at the start", floor: -time.Hour},
		{name: "kept by a battery", floor: -time.Hour, after: clockPatience, want: true},
		{name: "nobody can say", floor: -time.Hour, after: clockPatience, failed: true, want: true},
		{name: "behind", floor: time.Hour, sync: 1},
		{name: "behind, set to the floor", floor: time.Hour, after: 10 * time.Hour},
		{name: "behind, nobody can say", floor: time.Hour, after: 10 * time.Hour, failed: true},
		{name: "behind, and set", floor: time.Hour, sync: 3 * time.Hour, after: 10 * time.Hour, want: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			k := newTrust(began.Add(tc.floor), func() (bool, error) {
				if tc.failed {
					return false, errors.New("no such call")
				}
				return tc.sync > 0 && time.Since(began) >= tc.sync-1, nil
			})
			time.Sleep(tc.after)
			if got := k.believed(); got != tc.want {
				t.Errorf("%s: %v", tc.name, got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // once is enough: the kernel forgets after hours without a network
		synced := true
		k := newTrust(time.Now().Add(-time.Hour), func() (bool, error) { return synced, nil })
		if !k.believed() {
			t.Error("not believed")
		}
		if synced = false; !k.believed() {
			t.Error("not believed any more")
		}
	})
}
