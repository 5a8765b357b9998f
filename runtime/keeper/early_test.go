package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// heard is what an attacher gets of a stream that says "now" while it listens.
func heard(t *testing.T, s *taps) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	one := &tap{f: w, slow: func() { t.Error("too slow") }}
	if err := s.add(one); err != nil {
		t.Fatal(err)
	}
	s.give([]byte("now"))
	s.remove(one)
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	return string(got)
}

// TestEarly: the first attacher gets all that was said before, or, where that was too much or too long ago, nothing of it; and nothing
// stays counted.
func TestEarly(t *testing.T) {
	full := strings.Repeat("x", earlyBytes)
	for name, c := range map[string]struct {
		said  []string
		after time.Duration
		used  int64 // by other streams
		want  string
	}{
		"nothing":        {nil, 0, 0, "now"},
		"in pieces":      {[]string{"good ", "morning "}, 0, 0, "good morning now"},
		"just enough":    {[]string{full}, 0, 0, full + "now"},
		"a byte more":    {[]string{full, "y"}, 0, 0, "now"},
		"much too much":  {[]string{full, full, full}, 0, 0, "now"},
		"a minute later": {[]string{"good morning "}, earlyTime, 0, "now"},
		"no room":        {[]string{"good morning "}, 0, earlyTotal, "now"},
		"room for some":  {[]string{"good ", "morning "}, 0, earlyTotal - 5, "now"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var room earlyRoom
				room.used.Store(c.used)
				var s taps
				s.expect(&room)
				for _, piece := range c.said {
					s.give([]byte(piece))
				}
				time.Sleep(c.after)
				synctest.Wait()
				if got := heard(t, &s); got != c.want {
					t.Errorf("the first heard %d bytes, %.40q; want %d", len(got), got, len(c.want))
				}
				if got := heard(t, &s); got != "now" {
					t.Errorf("the second heard %.40q", got)
				}
				if got := room.used.Load(); got != c.used {
					t.Errorf("%d bytes stay counted, %d were others'", got, c.used)
				}
				time.Sleep(2 * earlyTime)
			})
		})
	}
}

// TestTooLate: who is told that a container does not run any more finds its log complete. kubectl run -i reads that then.
func TestTooLate(t *testing.T) {
	g := newRig(t, t.TempDir(), newShellRunner(), nil)
	g.pod(t, "u")
	const lines = 9000 // half of it is in the pipe when the program ends
	for round := range testrun.Rounds(20) {
		id, log := fmt.Sprint("c", round), filepath.Join(t.TempDir(), "log")
		c := runtime.Container{ID: id, PodUID: "u", Args: []string{fmt.Sprintf("seq %d", lines)}, LogPath: log, Stdin: true, StdinOnce: true}
		if _, err := g.Start(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		errJoined := errors.New("joined")
		for err := errJoined; !errors.Is(err, runtime.ErrNotRunning); {
			err = g.attach(t.Context(), attachSpec{Container: id}, [2]*os.File{}, nil, func(*os.File, bool) error { return errJoined })
			if !errors.Is(err, errJoined) && !errors.Is(err, runtime.ErrNotRunning) {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(log)
		if n := strings.Count(string(b), "\n"); err != nil || n != lines {
			t.Fatalf("round %d: the log has %d lines, want %d; %v", round, n, lines, err)
		}
	}
}
