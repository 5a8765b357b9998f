package keeper

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/internal/testrun"
	"ledge/runtime"
)

// said is the note a limiter leaves.
func said(lines, bytes, rate int) string {
	return fmt.Sprintf("F ledge: %d lines (%d bytes) are left out here: the container wrote more than %d bytes a second", lines, bytes, rate)
}

func TestLimiter(t *testing.T) {
	m := limiter{rate: 100}
	line := func(text string) []byte { return fmt.Appendf(nil, "%sF %s\n", stamp, text) }
	x := line(strings.Repeat("x", 500-len(line(""))))
	now := at
	pass := func(what, stream string, lines []byte, want string, rests bool) {
		t.Helper()
		got, rest := m.pass(stream, now, lines)
		if string(got) != want || (rest > 0) != rests {
			t.Errorf("%s: %.200q, rest %s; want %.200q", what, got, rest, want)
		}
	}
	note := func(text string) string { return strings.Replace(stamp, "stdout", "stderr", 1) + text + "\n" }
	pass("the first of a burst", "stdout", x, string(x), false)
	pass("ten seconds' worth", "stdout", x, string(x), false)
	pass("more", "stdout", x, "", true)
	pass("and more", "stderr", line("a"), "", true)
	pass("nothing", "stdout", nil, "", false)
	now = now.Add(900 * time.Millisecond)
	pass("not a second's worth yet", "stdout", line("b"), "", true)
	now = now.Add(100 * time.Millisecond)
	n := len(x) + 2*len(line("a"))
	at1 := strings.Replace(note(said(3, n, 100)), "05.0000006Z", "06.0000006Z", 1)
	pass("a second later", "stdout", line("c"), at1+string(line("c")), false)
	pass("and no note again", "stdout", line("d"), string(line("d")), false)
	if got := m.end(now); got != nil {
		t.Errorf("at the end: %q", got)
	}
	now = now.Add(time.Hour)
	pass("what was saved is no more than a burst", "stdout", append(bytes.Clone(x), x...), string(x)+string(x), false)
	pass("so this is too much", "stdout", line("e"), "", true)
	if got, want := string(m.end(now)), said(1, len(line("e")), 100)+"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("at the end: %q, want %q", got, want)
	}
	off := limiter{}
	if got, rest := off.pass("stdout", now, x); !bytes.Equal(got, x) || rest != 0 {
		t.Error("no limit limits")
	}
}

// TestLimiterEndsLines: when the rest of a line is left out the line is ended, so that it does not run into the next.
func TestLimiterEndsLines(t *testing.T) {
	m := limiter{rate: 10}
	part := []byte(stamp + "P " + strings.Repeat("x", 60) + "\n")
	if got, _ := m.pass("stdout", at, part); !bytes.Equal(got, part) {
		t.Fatalf("%q", got)
	}
	if got, _ := m.pass("stdout", at, part); string(got) != stamp+"F \n" {
		t.Errorf("%q", got)
	}
	if got, _ := m.pass("stdout", at, part); got != nil {
		t.Errorf("twice: %q", got)
	}
}

// TestLimiterEndNote: nor does the last note run into a line that has no end.
func TestLimiterEndNote(t *testing.T) {
	m := limiter{rate: 10}
	onStderr := func(s string) string { return strings.Replace(stamp, "stdout", "stderr", 1) + s + "\n" }
	part := []byte(onStderr("P " + strings.Repeat("x", 20)))
	if got, _ := m.pass("stderr", at, part); !bytes.Equal(got, part) {
		t.Fatalf("%q", got)
	}
	flood := []byte(onStderr("F " + strings.Repeat("x", 80)))
	m.pass("stdout", at, flood)
	if got, want := string(m.end(at)), onStderr("F ")+onStderr(said(1, len(flood), 10)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLimiterRate: whatever comes when, no more passes in any time than the rate and a burst, and nothing is lost
// without being counted.
func TestLimiterRate(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := limiter{rate: 1 + r.Int64N(5000)}
		now, in, out := at, 0, 0
		var counted int64
		for range 2000 {
			now = now.Add(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
			l := appendLine(nil, now, "stdout", strings.Repeat("x", r.IntN(200)))
			in += len(l)
			got, _ := m.pass("stdout", now, l)
			if bytes.HasSuffix(got, l) {
				out += len(l)
			}
		}
		counted = int64(in - out)
		if most := int64(float64(m.rate)*(now.Sub(at).Seconds()+burst)) + 1; int64(out) > most {
			t.Errorf("seed %d: %d bytes passed, %d may", seed, out, most)
		}
		if counted < m.bytes {
			t.Errorf("seed %d: %d bytes are missing, %d are still to be told", seed, counted, m.bytes)
		}
	}
}

func TestTooMuch(t *testing.T) {
	f := func(holder, name string, size int64, sec int, live bool) logInfo {
		return logInfo{path: holder + "/" + name, holder: holder, size: size, at: at.Add(time.Duration(sec) * time.Second), live: live}
	}
	files := []logInfo{f("a", "0.log", 10, 9, true), f("a", "0.log.1", 100, 1, false), f("a", "0.log.2", 100, 5, false),
		f("b", "0.log", 50, 1, true), f("b", "0.log.1", 90, 0, false), f("c", "0.log", 60, 0, false)}
	for goal, want := range map[int64]string{
		410: "", 409: "a/0.log.1", 310: "a/0.log.1", 309: "a/0.log.1 b/0.log.1",
		219: "a/0.log.1 b/0.log.1 a/0.log.2", 119: "a/0.log.1 b/0.log.1 a/0.log.2 c/0.log",
		59: "a/0.log.1 b/0.log.1 a/0.log.2 c/0.log b/0.log", 0: "a/0.log.1 b/0.log.1 a/0.log.2 c/0.log b/0.log a/0.log",
	} {
		var got []string
		for _, f := range tooMuch(files, goal) {
			got = append(got, f.path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("down to %d: %v, want %s", goal, got, want)
		}
	}
}

// TestBudget: however many write, all logs together stay within the total, and a quiet one keeps its lines.
func TestBudget(t *testing.T) {
	testrun.OnHost(t)
	root := t.TempDir()
	const total = 100 << 10
	bs := budgets{log: slog.New(slog.DiscardHandler)}
	open := func(name string) *logFile {
		c := runtime.Container{ID: name, LogPath: filepath.Join(root, name, "0.log"), LogBytes: 10 << 10, LogFiles: 5, LogRoot: root,
			LogTotal: total}
		return openLog(c, bs.of(c), slog.New(slog.DiscardHandler))
	}
	// From before this keeper.
	if err := os.MkdirAll(filepath.Join(root, "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "old", "0.log.3"), make([]byte, 60<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	quiet := open("quiet")
	quiet.write([]byte("a word\n"))
	var loud []*logFile
	for n := range 20 {
		loud = append(loud, open(fmt.Sprint("loud", n)))
	}
	line := []byte(strings.Repeat("x", 99) + "\n")
	for range 2000 {
		for _, l := range loud {
			l.write(line)
		}
		if n := sum(scanLogs(root, nil)); n > total {
			t.Fatalf("%d bytes of logs, %d may be", n, total)
		}
	}
	if n := sum(scanLogs(root, nil)); n < total/2 {
		t.Errorf("only %d of %d bytes are kept", n, total)
	}
	if b, err := os.ReadFile(quiet.path); err != nil || string(b) != "a word\n" {
		t.Errorf("the quiet log: %q %v", b, err)
	}
	for _, l := range append(loud, quiet) {
		l.close()
	}
	if b := bs.root[root]; len(b.live) != 0 {
		t.Errorf("%d closed logs are still counted as open", len(b.live))
	}
}

// TestBudgetTogether: the same with writers at the same time; the race detector and the deadlock are the test.
func TestBudgetTogether(t *testing.T) {
	root := t.TempDir()
	bs := budgets{log: slog.New(slog.DiscardHandler)}
	done := make(chan bool)
	for n := range 8 {
		c := runtime.Container{LogPath: filepath.Join(root, fmt.Sprint(n), "0.log"), LogBytes: 2000, LogFiles: 2, LogRoot: root, LogTotal: 8000}
		l := openLog(c, bs.of(c), slog.New(slog.DiscardHandler))
		go func() {
			for range 3000 {
				l.write([]byte("some text\n"))
			}
			l.close()
			done <- l.lost == 0
		}()
	}
	for range 8 {
		if !<-done {
			t.Error("a log could not be written")
		}
	}
	if n := sum(scanLogs(root, nil)); n > 8000+8*2000 {
		t.Errorf("%d bytes of logs", n)
	}
}
