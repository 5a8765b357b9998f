package keeper

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

const stamp = "2026-01-02T03:04:05.0000006Z stdout "

func TestSplitter(t *testing.T) {
	x := strings.Repeat("x", maxLine)
	for name, tc := range map[string]struct {
		in   []string
		want []string
		tail string // what flush adds
	}{
		"a line":                   {[]string{"a\n"}, []string{"F a"}, ""},
		"in pieces":                {[]string{"a", "b", "c\nd"}, []string{"F abc"}, "P d"},
		"empty lines":              {[]string{"\n\n"}, []string{"F ", "F "}, ""},
		"no end":                   {[]string{"a"}, nil, "P a"},
		"nothing":                  {nil, nil, ""},
		"exactly full":             {[]string{x + "\n"}, []string{"F " + x}, ""},
		"one too long":             {[]string{x + "y\n"}, []string{"P " + x, "F y"}, ""},
		"too long in pieces":       {[]string{x, "y", "z\n"}, []string{"P " + x, "F yz"}, ""},
		"full, then the end":       {[]string{x, "\n"}, []string{"F " + x}, ""},
		"three times":              {[]string{x + x + x + "\n"}, []string{"P " + x, "P " + x, "F " + x}, ""},
		"carriage returns and NUL": {[]string{"a\r\x00b\n"}, []string{"F a\r\x00b"}, ""},
	} {
		s := splitter{stream: "stdout"}
		var got, want []byte
		for _, in := range tc.in {
			got = s.feed(got, at, []byte(in))
		}
		for _, w := range tc.want {
			want = fmt.Appendf(want, "%s%s\n", stamp, w)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %.80q, want %.80q", name, got, want)
		}
		if tc.tail != "" {
			tc.tail = stamp + tc.tail + "\n"
		}
		if rest := s.flush(nil, at); string(rest) != tc.tail {
			t.Errorf("%s: flush gives %.80q, want %.80q", name, rest, tc.tail)
		}
	}
}

// FuzzSplitter: however the stream is cut, the log holds what was written, byte for byte.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\nb"), uint16(1))
	f.Add([]byte(strings.Repeat("long", 9000)+"\n\n\nend"), uint16(4000))
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		s := splitter{stream: "stdout"}
		var log []byte
		for rest, n := in, int(cut)+1; len(rest) > 0; {
			n = min(n, len(rest))
			log = s.feed(log, at, rest[:n])
			rest = rest[n:]
		}
		log = s.flush(log, at)
		var back []byte
		for line := range bytes.Lines(log) {
			body, ok := bytes.CutPrefix(line, []byte(stamp))
			if !ok || len(body) < 3 || len(body) > maxLine+3 {
				t.Fatalf("bad line %.60q", line)
			}
			if body[0] == 'P' {
				body = body[:len(body)-1]
			}
			back = append(back, body[2:]...)
		}
		if !bytes.Equal(back, in) {
			t.Fatalf("%d bytes in, %d bytes out", len(in), len(back))
		}
	})
}

func newTestLog(t *testing.T, max int64, keep int) *logFile {
	return openLog(runtime.Container{ID: "c", LogPath: filepath.Join(t.TempDir(), "pod", "c", "0.log"), LogBytes: max, LogFiles: keep},
		nil, slog.New(slog.DiscardHandler))
}

func TestRotation(t *testing.T) {
	for keep := 1; keep <= 3; keep++ {
		l := newTestLog(t, 100, keep)
		for i := range 50 {
			l.write(fmt.Appendf(nil, "%03d %s\n", i, strings.Repeat("x", 25))) // 30 bytes, so 3 to a file
		}
		l.close()
		files, err := filepath.Glob(l.path + "*")
		if err != nil || len(files) != keep {
			t.Fatalf("keep %d: %v %v", keep, files, err)
		}
		next := 48 // 50 lines: the last file holds 48 and 49
		for n := range keep {
			name := l.path
			if n > 0 {
				name = fmt.Sprintf("%s.%d", l.path, 17-n) // 16 files were full
			}
			b, err := os.ReadFile(name)
			if err != nil || len(b) > 100 || !strings.HasPrefix(string(b), fmt.Sprintf("%03d ", next)) {
				t.Errorf("keep %d: %s begins with %.10q, %d bytes, want %03d; %v", keep, name, b, len(b), next, err)
			}
			next -= 3
		}
	}
}

func TestLogGoesOn(t *testing.T) {
	l := newTestLog(t, 100, 2)
	l.write([]byte("first\n"))
	l.close()
	again := openLog(runtime.Container{ID: "c", LogPath: l.path, LogBytes: 100, LogFiles: 2}, nil, slog.New(slog.DiscardHandler))
	again.write([]byte("second\n"))
	again.write([]byte(strings.Repeat("x", 200) + "\n")) // longer than a file: alone in one
	again.write([]byte("third\n"))
	b, _ := os.ReadFile(l.path)
	old, _ := os.ReadFile(l.path + ".2")
	if string(b) != "third\n" || len(old) != 201 {
		t.Errorf("%q, and %d bytes before", b, len(old))
	}
}

// TestHalfLine: what a killed keeper left of a line does not run into the next one.
func TestHalfLine(t *testing.T) {
	for left, want := range map[string]string{"": "new\n", "a\nb\n": "a\nb\nnew\n", "a\nhal": "a\nnew\n", "hal": "new\n",
		"a\n" + strings.Repeat("x", 40000): "a\nnew\n"} {
		l := newTestLog(t, 1<<20, 2)
		if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.path, []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		l.write([]byte("new\n"))
		l.close()
		if b, _ := os.ReadFile(l.path); string(b) != want {
			t.Errorf("%.20q becomes %.20q, want %q", left, b, want)
		}
	}
}

// TestFullDisk: a full file system loses lines, not the container, and leaves no half line.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	l := openLog(runtime.Container{ID: "c", LogPath: filepath.Join(dir, "log"), LogBytes: 1 << 20}, nil, slog.New(slog.DiscardHandler))
	line := []byte(strings.Repeat("x", 999) + "\n")
	for range 100 {
		l.write(line)
	}
	if l.lost == 0 {
		t.Fatal("nothing was lost on a full disk")
	}
	b, err := os.ReadFile(l.path)
	if err != nil || len(b) == 0 || len(b)%len(line) != 0 {
		t.Errorf("%d bytes on a full disk, %v: not whole lines", len(b), err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	l.write([]byte("again\n"))
	b, _ = os.ReadFile(l.path)
	if l.lost != 0 || !bytes.HasSuffix(b, []byte("x\nagain\n")) {
		t.Errorf("after there is room again: %.20q, %d lost", b[max(0, len(b)-20):], l.lost)
	}
	l.close()
}

func TestLastLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for text, want := range map[string]string{
		"":                          "",
		"\n\n":                      "",
		"one":                       "one",
		"one\ntwo\n\n":              "two",
		strings.Repeat("x\n", 5000): "x",
		strings.Repeat("x", 5000):   strings.Repeat("x", 2048),
		strings.Repeat("\n", 5000):  "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastLine(path); got != want {
			t.Errorf("%.20q...: %.40q, want %.40q", text, got, want)
		}
	}
	if got := lastLine(path + ".none"); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
