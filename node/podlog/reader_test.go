package podlog

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ledge/api"
)

// second is the time of a log line, by its second.
func second(n int) string {
	return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC).Format(time.RFC3339)
}

func readLog(t *testing.T, path string, opts api.LogOptions) string {
	t.Helper()
	r := &reader{ctx: t.Context(), opts: opts, path: path, ended: func() bool { return true }}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestLogOptions of a file that is written already.
func TestLogOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	writeLog(t, path, second(1)+" stdout F one", second(2)+" stdout P tw", second(2)+" stdout F o", "not a line of a log",
		second(3)+" stderr F three", second(4)+" stdout F ")
	n := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		what string
		opts api.LogOptions
		want string
	}{
		{"all", api.LogOptions{}, "one\ntwo\nthree\n\n"},
		{"timestamps, once a line", api.LogOptions{Timestamps: true},
			second(1) + " one\n" + second(2) + " two\n" + second(3) + " three\n" + second(4) + " \n"},
		{"tail", api.LogOptions{TailLines: n(2)}, "three\n\n"},
		{"tail cuts no line", api.LogOptions{TailLines: n(3)}, "two\nthree\n\n"},
		{"tail of more than there is", api.LogOptions{TailLines: n(99)}, "one\ntwo\nthree\n\n"},
		{"tail of nothing", api.LogOptions{TailLines: n(0)}, ""},
		{"since", api.LogOptions{Since: time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)}, "three\n\n"},
		{"since and tail", api.LogOptions{Since: time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC), TailLines: n(1)}, "\n"},
		{"limit", api.LogOptions{LimitBytes: n(5)}, "one\nt"},
		{"limit of more than there is", api.LogOptions{LimitBytes: n(5000)}, "one\ntwo\nthree\n\n"},
		{"limit and tail", api.LogOptions{LimitBytes: n(3), TailLines: n(2)}, "thr"},
		{"follow ends with the container", api.LogOptions{Follow: true}, "one\ntwo\nthree\n\n"},
	} {
		if got := readLog(t, path, c.opts); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	if got := readLog(t, filepath.Join(t.TempDir(), "none.log"), api.LogOptions{TailLines: n(5)}); got != "" {
		t.Errorf("of no file: %q", got)
	}
}

// TestLogWithoutEnd: a container that ends without a last newline is not given one, and its last line counts as one.
func TestLogWithoutEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	writeLog(t, path, second(1)+" stdout F one", second(2)+" stdout P tw", second(3)+" stdout P o")
	n := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		opts api.LogOptions
		want string
	}{
		{api.LogOptions{}, "one\ntwo"},
		{api.LogOptions{TailLines: n(0)}, ""},
		{api.LogOptions{TailLines: n(1)}, "two"},
		{api.LogOptions{TailLines: n(2)}, "one\ntwo"},
	} {
		if got := readLog(t, path, c.opts); got != c.want {
			t.Errorf("%+v: %q, want %q", c.opts, got, c.want)
		}
	}
	if got := LastLines(path, 1, 2048); got != "two" {
		t.Errorf("last line %q", got)
	}
}

// follow reads a log while fn writes it; fn also ends the container.
func follow(t *testing.T, opts api.LogOptions, fn func(path string, end func())) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	var got []byte
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		over := func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
		opts.Follow = true
		r := &reader{ctx: t.Context(), opts: opts, path: path, ended: over}
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			var err error
			if got, err = io.ReadAll(r); err != nil {
				t.Error(err)
			}
		}()
		fn(path, func() { close(ended) })
		<-done
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return string(got)
}

// rotate does as the keeper does.
func rotate(t *testing.T, path string) {
	t.Helper()
	n := 1
	for {
		if _, err := os.Stat(fmt.Sprintf("%s.%d", path, n)); err != nil {
			break
		}
		n++
	}
	if err := os.Rename(path, fmt.Sprintf("%s.%d", path, n)); err != nil {
		t.Fatal(err)
	}
}

// TestLogOfSeveralFiles: all that is kept is shown, and a tail reaches back as far as it has to.
func TestLogOfSeveralFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	writeLog(t, path, second(1)+" stdout F one", second(2)+" stdout P tw")
	rotate(t, path)
	writeLog(t, path, second(2)+" stdout F o", second(3)+" stdout F three")
	for n := 2; n < 11; n++ { // so that 10 comes after 9
		rotate(t, path)
		writeLog(t, path, fmt.Sprintf("%s stdout F more %d", second(n+2), n))
	}
	all := "one\ntwo\nthree\nmore 2\nmore 3\nmore 4\nmore 5\nmore 6\nmore 7\nmore 8\nmore 9\nmore 10\n"
	lines := strings.SplitAfter(all, "\n")[:12]
	if got := readLog(t, path, api.LogOptions{}); got != all {
		t.Errorf("all of it: %q", got)
	}
	for n := range len(lines) + 2 {
		want := strings.Join(lines[max(0, len(lines)-n):], "")
		if got := readLog(t, path, api.LogOptions{TailLines: new(int64(n))}); got != want {
			t.Errorf("tail of %d: %q, want %q", n, got, want)
		}
	}
	rotate(t, path) // nothing has been written since
	os.Remove(path + ".1")
	if got, want := readLog(t, path, api.LogOptions{TailLines: new(int64(1))}), "more 10\n"; got != want {
		t.Errorf("right after a rotation: %q, want %q", got, want)
	}
	if got := readLog(t, path, api.LogOptions{}); !strings.HasPrefix(got, "o\nthree\n") || !strings.HasSuffix(got, "more 10\n") {
		t.Errorf("without the oldest: %q", got)
	}
}

// TestFollowFlood: many rotations under the eyes of readers who come at any time; none loses a line or has one twice.
func TestFollowFlood(t *testing.T) {
	const lines, perFile, readers = 30000, 40, 6
	path := filepath.Join(t.TempDir(), "0.log")
	var done atomic.Bool
	got := make(chan string, readers)
	read := func() {
		r := &reader{ctx: t.Context(), opts: api.LogOptions{Follow: true}, path: path, ended: done.Load}
		if err := r.open(); err != nil {
			t.Error(err)
		}
		defer r.Close()
		out, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		got <- string(out)
	}
	var f *os.File
	var want strings.Builder
	for i := range lines {
		if i%perFile == 0 {
			if f != nil {
				f.Close()
				if err := os.Rename(path, fmt.Sprintf("%s.%d", path, i/perFile)); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(f, "%s stdout F line %d\n", second(1), i)
		fmt.Fprintf(&want, "line %d\n", i)
		if i%(lines/readers) == lines/readers/2 {
			go read()
		}
	}
	f.Close()
	done.Store(true)
	for range readers {
		if out := <-got; out != want.String() {
			at := 0
			for at < len(out) && out[at] == want.String()[at] {
				at++
			}
			t.Errorf("%d bytes read, %d written; they differ from byte %d on: %.60q", len(out), want.Len(), at, out[max(0, at-20):])
		}
	}
}

func TestFollow(t *testing.T) {
	t.Run("from before the first line to the last", func(t *testing.T) {
		got := follow(t, api.LogOptions{}, func(path string, end func()) {
			time.Sleep(time.Second)
			writeLog(t, path, second(1)+" stdout F one")
			time.Sleep(time.Second)
			writeLog(t, path, second(2)+" stdout F two")
			end() // before it was looked at again
		})
		if got != "one\ntwo\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("written as it ends, never looked at before", func(t *testing.T) {
		got := follow(t, api.LogOptions{}, func(path string, end func()) {
			time.Sleep(time.Second)
			writeLog(t, path, second(1)+" stdout F one")
			end()
		})
		if got != "one\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("half a line", func(t *testing.T) {
		got := follow(t, api.LogOptions{}, func(path string, end func()) {
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{second(1) + " std", "out F on", "e\n"} {
				fmt.Fprint(f, part)
				time.Sleep(time.Second)
			}
			f.Close()
			end()
		})
		if got != "one\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("the reader leaves", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "0.log")
		writeLog(t, path, second(1)+" stdout F one")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r := &reader{ctx: ctx, opts: api.LogOptions{Follow: true}, path: path, ended: func() bool { return false }}
			if err := r.open(); err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			time.AfterFunc(time.Minute, cancel)
			if out, err := io.ReadAll(r); err != nil || string(out) != "one\n" {
				t.Errorf("%q %v", out, err)
			}
		})
	})
}

func TestFollowAcrossRotation(t *testing.T) {
	// What is true of the first file is not done again to the next: a tail would drop lines, a limit begin anew.
	for what, opts := range map[string]api.LogOptions{"rotation": {}, "rotation after a tail": {TailLines: new(int64(1))}} {
		t.Run(what, func(t *testing.T) {
			got := follow(t, opts, func(path string, end func()) {
				writeLog(t, path, second(1)+" stdout F one")
				time.Sleep(time.Second)
				writeLog(t, path, second(2)+" stdout F two")
				rotate(t, path)
				writeLog(t, path, second(3)+" stdout F three", second(4)+" stdout F four", second(5)+" stdout F five")
				time.Sleep(time.Second)
				writeLog(t, path, second(6)+" stdout F six")
				rotate(t, path)
				time.Sleep(time.Second) // nothing is there
				writeLog(t, path, second(7)+" stdout F seven")
				time.Sleep(time.Second)
				end()
			})
			if want := "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"; got != want { // all of it was written after the reader came
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	t.Run("several rotations at once", func(t *testing.T) {
		got := follow(t, api.LogOptions{}, func(path string, end func()) {
			writeLog(t, path, second(1)+" stdout F one")
			time.Sleep(time.Second)
			for i := range 3 {
				rotate(t, path)
				writeLog(t, path, fmt.Sprintf("%s stdout F more %d", second(i), i))
			}
			end()
		})
		if got != "one\nmore 0\nmore 1\nmore 2\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("a file that is gone", func(t *testing.T) {
		got := follow(t, api.LogOptions{}, func(path string, end func()) {
			writeLog(t, path, second(1)+" stdout F one")
			time.Sleep(time.Second)
			os.Remove(path)
			writeLog(t, path+".1", second(2)+" stdout F two")
			writeLog(t, path, second(3)+" stdout F three")
			time.Sleep(time.Second)
			end()
		})
		if got != "one\ntwo\nthree\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("rotation and a limit", func(t *testing.T) {
		got := follow(t, api.LogOptions{LimitBytes: new(int64(6))}, func(path string, end func()) {
			writeLog(t, path, second(1)+" stdout F one")
			time.Sleep(time.Second)
			rotate(t, path)
			writeLog(t, path, second(2)+" stdout F two", second(3)+" stdout F three")
			time.Sleep(time.Second)
			end()
		})
		if got != "one\ntw" {
			t.Errorf("%q", got)
		}
	})
	t.Run("rotation as it ends", func(t *testing.T) {
		got := follow(t, api.LogOptions{}, func(path string, end func()) {
			writeLog(t, path, second(1)+" stdout F one")
			time.Sleep(time.Second)
			rotate(t, path)
			writeLog(t, path, second(2)+" stdout F last words")
			end()
		})
		if got != "one\nlast words\n" {
			t.Errorf("%q", got)
		}
	})
}
