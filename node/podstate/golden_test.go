package podstate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// transcript tells a pod's life: at each moment what was done and told, and what the API then shows.
func (b *board) transcript(until time.Duration, script map[time.Duration]func()) string {
	b.t.Helper()
	var text strings.Builder
	began, shown := b.in.Now, ""
	for {
		at := b.in.Now.Sub(began)
		if f := script[at]; f != nil {
			fmt.Fprintf(&text, "%v: (the script)\n", at)
			f()
			delete(script, at)
		}
		n, e := len(b.log), len(b.events)
		out := b.settle()
		for _, l := range b.log[n:] {
			fmt.Fprintf(&text, "%v: %s\n", at, strings.TrimSpace(l))
		}
		for _, ev := range b.events[e:] {
			fmt.Fprintf(&text, "%v: event %s %s: %s\n", at, ev.Type, ev.Reason, ev.Message)
		}
		if now := b.shown(); now != shown {
			fmt.Fprintf(&text, "%v: %s\n", at, now)
			shown = now
		}
		more := b.next(out)
		for when := range script {
			if t := began.Add(when); !more || t.Before(b.in.Now) {
				b.in.Now, more = t, true
			}
		}
		if !more || b.in.Now.Sub(began) > until || out.Done {
			return text.String()
		}
	}
}

// shown is the status in one line.
func (b *board) shown() string {
	st := b.in.Pod.Status
	line := fmt.Sprintf("= %s ready=%s", st.Phase, condition(b.in.Pod, corev1.PodReady).Status)
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		state := "waiting"
		switch {
		case c.State.Waiting != nil:
			state = c.State.Waiting.Reason
		case c.State.Running != nil:
			state = "running"
		case c.State.Terminated != nil:
			state = fmt.Sprintf("%s(%d)", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
		}
		line += fmt.Sprintf(" %s:%s/%d", c.Name, state, c.RestartCount)
	}
	return line
}

// TestGolden holds whole lives of pods to what they were when somebody last read them.
func TestGolden(t *testing.T) {
	after := func(d time.Duration, codes ...int) func(int) (time.Duration, int) {
		return func(attempt int) (time.Duration, int) { return d, codes[min(attempt, len(codes)-1)] }
	}
	for name, make := range map[string]func() (*board, map[time.Duration]func()){
		"job-with-sidecar": func() (*board, map[time.Duration]func()) {
			p := withSidecars(pod(corev1.RestartPolicyOnFailure, "job"), "i1", "proxy")
			b := newBoard(t, p)
			b.exit["i1"], b.exit["job"] = after(2*time.Second, 0), after(10*time.Second, 1, 0)
			return b, nil
		},
		"crash-loop-deleted": func() (*board, map[time.Duration]func()) {
			b := newBoard(t, pod(corev1.RestartPolicyAlways, "a", "b"))
			b.exit["a"], b.deaf["b"] = after(time.Second, 1), true
			return b, map[time.Duration]func(){100 * time.Second: func() { b.delete(5) }}
		},
		"hooks-and-liveness": func() (*board, map[time.Duration]func()) {
			p := pod(corev1.RestartPolicyAlways, "a")
			hooks(p, "a")
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{}
			b := newBoard(t, p)
			return b, map[time.Duration]func(){
				30 * time.Second: func() { b.feels("a", Health{Started: true, Ready: true, Failed: "liveness"}) },
				60 * time.Second: func() { b.delete(30) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, script := make()
			got, file := b.transcript(10*time.Minute, script), filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("%v; go test -update writes it anew. Now:\n%s", err, got)
			}
		})
	}
}
