package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/runtime"
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

// second is the time of a log line, by its second.
func second(n int) string {
	return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC).Format(time.RFC3339)
}

func readLog(t *testing.T, path string, opts api.LogOptions) string {
	t.Helper()
	r := &logReader{ctx: t.Context(), opts: opts, path: path, live: func() bool { return false }}
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

// follow reads a log while fn writes it; live is the container, which fn ends.
func follow(t *testing.T, opts api.LogOptions, fn func(path string, end func())) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	var got []byte
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		live := func() bool {
			select {
			case <-ended:
				return false
			default:
				return true
			}
		}
		opts.Follow = true
		r := &logReader{ctx: t.Context(), opts: opts, path: path, live: live}
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

func rotate(t *testing.T, path string) {
	t.Helper()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
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
			r := &logReader{ctx: ctx, opts: api.LogOptions{Follow: true}, path: path, live: func() bool { return true }}
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
				for n := 2; n > 0; n-- { // as the keeper does
					_ = os.Rename(fmt.Sprintf("%s.%d", path, n), fmt.Sprintf("%s.%d", path, n+1))
				}
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

// TestLogsOfContainers: which attempt is read (kubectl logs, logs --previous), and what is said when there is none.
func TestLogsOfContainers(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p")
		r.pod("two", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, aPod("x").Spec.Containers[0])
			p.Spec.Containers[1].Name = "d"
		})
		r.pod("waits", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "example.com/none:v1" })
		r.pass(time.Second)
		for i := range 3 {
			writeLog(t, r.agent.logFile(p, "c", i), fmt.Sprintf("%s stdout F attempt %d", second(i), i))
		}
		logs := func(pod string, opts api.LogOptions) string {
			t.Helper()
			in, err := r.agent.Logs(r.Context(), "default", pod, opts)
			if err != nil {
				if !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err) {
					t.Errorf("not the caller's fault: %v", err)
				}
				return err.Error()
			}
			defer in.Close()
			out, err := io.ReadAll(in)
			if err != nil {
				t.Error(err)
			}
			return string(out)
		}
		prev := api.LogOptions{Previous: true}
		want := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		want("first attempt", logs("p", api.LogOptions{}), "attempt 0\n")
		want("none before", logs("p", prev), `previous terminated container "c" in pod "p" not found`)
		r.engine.End(containerID(p, "c", 0), runtime.Exit{Code: 1})
		r.pass(time.Second)
		want("second attempt", logs("p", api.LogOptions{}), "attempt 1\n")
		want("before it", logs("p", prev), "attempt 0\n")
		r.engine.End(containerID(p, "c", 1), runtime.Exit{Code: 1})
		r.pass(time.Second)
		if w := r.get("p").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" {
			t.Fatalf("%+v", r.get("p").Status.ContainerStatuses[0])
		}
		want("while it waits", logs("p", api.LogOptions{}), "attempt 1\n")
		want("the last crash, while it waits", logs("p", prev), "attempt 1\n") // as Kubernetes: what lastState tells of
		r.pass(10 * time.Second)
		want("third attempt", logs("p", api.LogOptions{}), "attempt 2\n")
		want("before it", logs("p", prev), "attempt 1\n")

		want("no name", logs("two", api.LogOptions{}), "a container name must be specified for pod two, choose one of: [c d]")
		want("bad name", logs("two", api.LogOptions{Container: "x"}), "container x is not valid for pod two")
		want("waiting", logs("waits", api.LogOptions{}), `container "c" in pod "waits" is waiting to start: `+
			r.get("waits").Status.ContainerStatuses[0].State.Waiting.Reason)
		want("no pod", logs("none", api.LogOptions{}), `pods "none" not found`)
	})
}

// TestLogsOfEndedPod: its containers' records are gone, its logs are not (they go with the object).
func TestLogsOfEndedPod(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p", policy(corev1.RestartPolicyNever))
		r.pass(time.Second)
		writeLog(t, r.agent.logFile(p, "c", 0), second(1)+" stdout F done")
		r.engine.End(containerID(p, "c", 0), runtime.Exit{})
		r.pass(time.Second)
		in, err := r.agent.Logs(r.Context(), "default", "p", api.LogOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if out, err := io.ReadAll(in); err != nil || string(out) != "done\n" {
			t.Errorf("%q %v", out, err)
		}
		r.delete("p", nil)
		r.pass(time.Second)
		r.nothingLeft()
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
		if got := lastLines(path, 80, maxFallback); got != c.want {
			t.Errorf("%s: %d bytes %.60q, want %d bytes %.60q", c.what, len(got), got, len(c.want), c.want)
		}
	}
	if got := lastLines(filepath.Join(t.TempDir(), "none"), 80, maxFallback); got != "" {
		t.Errorf("of no file: %q", got)
	}
}
