package node

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/images"
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
		r.pod("mute", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		r.pass(time.Second)
		r.engine.End(containerID(r.get("mute"), "c", 0), runtime.Exit{})
		r.pass(time.Minute)
		want("ended without a word", logs("mute", api.LogOptions{}), "")
		want("and none before it", logs("mute", prev), `previous terminated container "c" in pod "mute" not found`)
		want("no pod", logs("none", api.LogOptions{}), `pods "none" not found`)
	})
}

// TestFollowAcrossRestarts: who follows a container goes on with its next instance, until there will be none.
func TestFollowAcrossRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		policy corev1.RestartPolicy
		codes  []int // of each attempt
		want   string
	}{
		"always":     {corev1.RestartPolicyAlways, []int{1, 0, 1}, "attempt 0\nattempt 1\nattempt 2\n"},
		"on failure": {corev1.RestartPolicyOnFailure, []int{1, 0}, "attempt 0\nattempt 1\n"},
		"never":      {corev1.RestartPolicyNever, []int{1}, "attempt 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, nil, func(r *rig) {
				r.begin()
				p := r.pod("p", policy(c.policy))
				r.pass(time.Second)
				write := func(n int) {
					writeLog(t, r.agent.logFile(p, "c", n), fmt.Sprintf("%s stdout F attempt %d", second(n), n))
				}
				write(0)
				in, err := r.agent.Logs(r.Context(), "default", "p", api.LogOptions{Follow: true, TailLines: new(int64(5))})
				if err != nil {
					t.Fatal(err)
				}
				out := make(chan string, 1)
				go func() {
					text, err := io.ReadAll(in)
					if err != nil {
						t.Error(err)
					}
					out <- string(text)
				}()
				for n, code := range c.codes {
					r.pass(2 * time.Second)
					r.engine.End(containerID(p, "c", n), runtime.Exit{Code: code})
					if n+1 < len(c.codes) {
						r.pass(20 * time.Second) // the back-off
						write(n + 1)
					}
				}
				r.pass(time.Second)
				if c.policy == corev1.RestartPolicyAlways {
					select {
					case text := <-out:
						t.Errorf("ended while there is more to come: %q", text)
					default:
					}
					r.delete("p", nil)
				}
				r.pass(5 * time.Second)
				select {
				case text := <-out:
					if text != c.want {
						t.Errorf("%q, want %q", text, c.want)
					}
				default:
					t.Error("does not end")
				}
				in.Close()
			})
		})
	}
}

// TestOldLogsGo: of a container that is restarted again and again, the present log and the one before it stay.
func TestOldLogsGo(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		p := r.pod("p")
		r.pass(time.Second)
		for n := range 5 {
			writeLog(t, r.agent.logFile(p, "c", n), second(n)+" stdout F x")
			writeLog(t, r.agent.logFile(p, "c", n)+".7", second(n)+" stdout F x")
			r.engine.End(containerID(p, "c", n), runtime.Exit{Code: 1})
			r.pass(6 * time.Minute)
		}
		files, err := filepath.Glob(filepath.Join(filepath.Dir(r.agent.logFile(p, "c", 0)), "*"))
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		if want := "[4.log 4.log.7]"; err != nil || fmt.Sprint(files) != want { // 5 writes nothing here
			t.Errorf("%v %v, want %s", files, err, want)
		}
	})
}

// TestLogMedium: logs in memory stand in the run directory, and those from before the change are found where they are.
func TestLogMedium(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.cfg.Logs = LogConfig{Memory: true, MaxBytes: 7, MaxFiles: 3, Rate: 5, Total: 99}
		r.begin()
		p := r.pod("p")
		r.pass(time.Second)
		path := r.agent.logFile(p, "c", 0)
		if !strings.HasPrefix(path, r.agent.cfg.RunDir) {
			t.Errorf("%s is not below %s", path, r.agent.cfg.RunDir)
		}
		spec, err := r.agent.containerSpec(r.Context(), p, &p.Spec.Containers[0], "id", 0, t.TempDir(), images.Image{Config: images.Config{Entrypoint: []string{"/x"}}}, place{})
		if err != nil || spec.LogPath != path || spec.LogBytes != 7 || spec.LogFiles != 3 || spec.LogRate != 5 || spec.LogTotal != 99 ||
			!strings.HasPrefix(path, spec.LogRoot+"/") {
			t.Errorf("%+v %v", spec, err)
		}
		before := filepath.Join(podLogDir(filepath.Join(r.agent.cfg.DataDir, "logs"), p), "c", "0.log")
		writeLog(t, before, second(1)+" stdout F before")
		in, err := r.agent.Logs(r.Context(), "default", "p", api.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if out, err := io.ReadAll(in); err != nil || string(out) != "before\n" {
			t.Errorf("%q %v", out, err)
		}
		r.delete("p", nil)
		r.pass(time.Minute)
		if exists(filepath.Dir(filepath.Dir(before))) {
			t.Error("the logs of a removed pod are still there")
		}
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
