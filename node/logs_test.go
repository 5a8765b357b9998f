package node

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/images"
	"ledge/node/podlog"
	"ledge/runtime"
)

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
			writeLog(t, r.agent.logs.Path(p, "c", i), fmt.Sprintf("%s stdout F attempt %d", second(i), i))
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
					writeLog(t, r.agent.logs.Path(p, "c", n), fmt.Sprintf("%s stdout F attempt %d", second(n), n))
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
			writeLog(t, r.agent.logs.Path(p, "c", n), second(n)+" stdout F x")
			writeLog(t, r.agent.logs.Path(p, "c", n)+".7", second(n)+" stdout F x")
			r.engine.End(containerID(p, "c", n), runtime.Exit{Code: 1})
			r.pass(6 * time.Minute)
		}
		files, err := filepath.Glob(filepath.Join(filepath.Dir(r.agent.logs.Path(p, "c", 0)), "*"))
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
		r.cfg.Logs = podlog.Config{Memory: true, MaxBytes: 7, MaxFiles: 3, Rate: 5, Total: 99}
		r.begin()
		p := r.pod("p")
		r.pass(time.Second)
		path := r.agent.logs.Path(p, "c", 0)
		if !strings.HasPrefix(path, r.agent.cfg.RunDir) {
			t.Errorf("%s is not below %s", path, r.agent.cfg.RunDir)
		}
		spec, err := r.agent.hands.containerSpec(r.Context(), p, &p.Spec.Containers[0], "id", 0, t.TempDir(),
			images.Image{Config: images.Config{Entrypoint: []string{"/x"}}}, place{})
		if err != nil || spec.LogPath != path || spec.LogBytes != 7 || spec.LogFiles != 3 || spec.LogRate != 5 || spec.LogTotal != 99 ||
			!strings.HasPrefix(path, spec.LogRoot+"/") {
			t.Errorf("%+v %v", spec, err)
		}
		before := filepath.Join(r.agent.cfg.DataDir, "logs", fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID), "c", "0.log")
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
		writeLog(t, r.agent.logs.Path(p, "c", 0), second(1)+" stdout F done")
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

// second is the time of a log line, by its second.
func second(n int) string {
	return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC).Format(time.RFC3339)
}
