package alive

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lives runs a watchdog over the signs for a while and tells when it said that the process is alive.
func lives(t *testing.T, forSo time.Duration, signs ...Sign) (said []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		w := &Watch{Patience: 30 * time.Second, Signs: signs, Alive: func() error {
			said = append(said, time.Since(begun))
			return nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), forSo)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return said
}

// longestSilence is the longest time without a word silence, from the start to the end.
func longestSilence(said []time.Duration, end time.Duration) (longest time.Duration) {
	last := time.Duration(0)
	for _, at := range append(said, end) {
		longest, last = max(longest, at-last), at
	}
	return longest
}

func takes(name string, d time.Duration) Sign {
	return Sign{name, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}}
}

// TestWatchdogOfTheBusy: a board that is slow in everything is never silent for as long as systemd waits.
func TestWatchdogOfTheBusy(t *testing.T) {
	const hour = time.Hour
	for _, d := range []time.Duration{0, time.Second, 20 * time.Second} {
		said := lives(t, hour, takes("a", d), takes("b", d/2), takes("c", d/3))
		if got := longestSilence(said, hour); got >= 30*time.Second {
			t.Errorf("signs that take %s: silent for %s", d, got)
		}
	}
}

// TestWatchdogOfTheHung: each sign by itself silences it at once, and it speaks again when that goes on.
func TestWatchdogOfTheHung(t *testing.T) {
	for _, hung := range []string{"a", "b", "c"} {
		var signs []Sign
		for _, name := range []string{"a", "b", "c"} {
			begun := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // as every bubble does
			signs = append(signs, Sign{name, func(ctx context.Context) error {
				if at := time.Since(begun); name == hung && at >= time.Minute && at < 10*time.Minute {
					return takes(name, 10*time.Minute-at).Look(ctx)
				}
				return nil
			}})
		}
		before, during, after := 0, 0, 0
		for _, at := range lives(t, 20*time.Minute, signs...) {
			switch {
			case at < time.Minute:
				before++
			case at < 10*time.Minute:
				during++
			default:
				after++
			}
		}
		if before < 3 || during != 0 || after < 20 {
			t.Errorf("%s hung: alive %d times before, %d meanwhile, %d after", hung, before, during, after)
		}
	}
}

// TestWatchdogOfTheFailing: what answers with an error is not alive either.
func TestWatchdogOfTheFailing(t *testing.T) {
	said := lives(t, 10*time.Minute, takes("a", time.Second), Sign{"b", func(context.Context) error { return errors.New("broken") }})
	if len(said) > 0 {
		t.Errorf("alive at %v", said)
	}
}

// TestMissing: what does not answer is named, and holds up nobody for longer than a while.
func TestMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		err := Missing(t.Context(), []Sign{takes("a", time.Second), takes("b", time.Hour), takes("c", 0)})
		if err == nil || !strings.HasPrefix(err.Error(), "b: ") || time.Since(begun) != lookLimit {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if err := Missing(t.Context(), []Sign{takes("a", time.Second), takes("c", 0)}); err != nil {
			t.Error(err)
		}
	})
}
