package podlog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	stamp := at.Format(time.RFC3339Nano)
	for _, c := range []struct {
		raw     string
		ok      bool
		partial bool
		text    string
	}{
		{stamp + " stdout F hello\n", true, false, "hello"},
		{stamp + " stderr P hel\n", true, true, "hel"},
		{stamp + " stdout F two  spaces \n", true, false, "two  spaces "},
		{stamp + " stdout F \n", true, false, ""},
		{stamp + " stdout F:more tags\n", true, false, "tags"},
		{stamp + " stdout P:x tags\n", true, true, "tags"},
		{stamp + " stdout F no newline", true, false, "no newline"},
		{stamp + " stdout F \x00\xff\r\n", true, false, "\x00\xff\r"},
		{stamp + " stdout\n", false, false, ""},
		{"yesterday stdout F x\n", false, false, ""},
		{"\n", false, false, ""},
		{"", false, false, ""},
	} {
		l, ok := parseLine([]byte(c.raw))
		if ok != c.ok || l.partial != c.partial || string(l.text) != c.text {
			t.Errorf("%q: %+v %v", c.raw, l, ok)
		}
		if ok && (!l.at.Equal(at) || l.stamp != stamp) {
			t.Errorf("%q: time %s, stamp %q", c.raw, l.at, l.stamp)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, s := range []string{"2026-01-02T03:04:05.6Z stdout F text\n", "2026-01-02T03:04:05Z stderr P:x \n", "x x x x", "", "\n", "    "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		kept := bytes.Clone(raw)
		l, ok := parseLine(raw)
		if !bytes.Equal(raw, kept) {
			t.Fatal("the line was changed")
		}
		if !ok {
			return
		}
		tag := "F"
		if l.partial {
			tag = "P"
		}
		again, ok := parseLine([]byte(l.stamp + " stdout " + tag + " " + string(l.text) + "\n"))
		if !ok || again.stamp != l.stamp || again.partial != l.partial || !bytes.Equal(again.text, l.text) || !again.at.Equal(l.at) {
			t.Fatalf("%q reads as %+v, written again as %+v", raw, l, again)
		}
	})
}

// TestLastLines: what stands in for a termination message (FallbackToLogsOnError).
func TestLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	line := func(text string) string { return second(1) + " stderr F " + text }
	for _, c := range []struct {
		what  string
		lines []string
		want  string
	}{
		{"few", []string{line("a"), line("b")}, "a\nb\n"},
		{"no more than 80", strings.Split(strings.Repeat(line("x")+"|", 99)+line("y"), "|"), strings.Repeat("x\n", 79) + "y\n"},
		{"no more than 2048 bytes", []string{line(strings.Repeat("a", 3000)), line("end")}, strings.Repeat("a", 2048-5) + "\nend\n"},
		{"a line of pieces", []string{second(1) + " stderr P one ", line("line")}, "one line\n"},
		{"one very long piece", []string{line("before"), line(strings.Repeat("b", 16<<10))}, strings.Repeat("b", 2047) + "\n"},
		{"nothing", nil, ""},
	} {
		os.Remove(path)
		writeLog(t, path, c.lines...)
		if got := LastLines(path, 80, 2048); got != c.want {
			t.Errorf("%s: %d bytes %.60q, want %d bytes %.60q", c.what, len(got), got, len(c.want), c.want)
		}
	}
	if got := LastLines(filepath.Join(t.TempDir(), "none"), 80, 2048); got != "" {
		t.Errorf("of no file: %q", got)
	}
}

func writeLog(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, l := range lines {
		if _, err := f.WriteString(l + "\n"); err != nil {
			t.Fatal(err)
		}
	}
}
