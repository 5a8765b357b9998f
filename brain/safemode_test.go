package brain

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHoldFor(t *testing.T) {
	for failed, want := range []time.Duration{0, 0, 0, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		if got := holdFor(failed, 3); got != want {
			t.Errorf("after %d: %s, want %s", failed, got, want)
		}
	}
	if holdFor(1000, 3) != time.Hour || holdFor(1000, 0) != 0 {
		t.Error("no bound, or held though it is switched off")
	}
}

// TestStartsCounted: only ends in a row that nobody ordered count, and a file that is damaged counts as none.
func TestStartsCounted(t *testing.T) {
	dir := t.TempDir()
	start := func(want int) *guard {
		t.Helper()
		g, err := newGuard(dir, 3)
		must(t, err)
		if g.failed != want {
			t.Errorf("%d bad ends, want %d", g.failed, want)
		}
		must(t, g.begun())
		return g
	}
	for n := range 3 {
		if g := start(n); g.holding() != "" {
			t.Errorf("held after %d", n)
		}
	}
	g := start(3)
	if !strings.Contains(g.holding(), "died 3 times") {
		t.Errorf("after 3: %q", g.holding())
	}
	must(t, g.inOrder())
	start(0)
	must(t, os.WriteFile(filepath.Join(dir, "starts"), []byte("\x00\xff"), 0o600))
	start(0)
}

// TestSafeModeEnds: by itself when its time is over, at once when told to; then a node that goes on for long is sound.
func TestSafeModeEnds(t *testing.T) {
	for _, told := range []bool{false, true} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			must(t, starts{filepath.Join(dir, "starts")}.set(3))
			g, err := newGuard(dir, 3)
			must(t, err)
			must(t, g.begun())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			left, ended := make(chan time.Time, 1), make(chan error)
			begun := time.Now()
			go func() { ended <- g.run(ctx, func() { left <- time.Now() }) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if g.holding() == "" || len(left) > 0 {
				t.Error("left after a minute")
			}
			want := safeModeFor
			if told {
				g.resume()
				g.resume()
				want = time.Minute
			}
			if at := <-left; at.Sub(begun) != want || g.holding() != "" {
				t.Errorf("left after %s, want %s", at.Sub(begun), want)
			}
			if n, err := g.starts.count(); err != nil || n != 4 {
				t.Errorf("%d, %v: it is not sound yet", n, err)
			}
			must(t, <-ended)
			if n, err := g.starts.count(); err != nil || n != 0 {
				t.Errorf("%d, %v after a long run", n, err)
			}
		})
	}
}
