package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/node/machine"
	"ledge/node/podspec"
	"ledge/node/stats"
)

func TestSurvivors(t *testing.T) {
	pass := func(kills map[string]int64) stats.Pass {
		var p stats.PodUsage
		p.UID = "u"
		for _, name := range []string{"a", "b"} {
			if n, ok := kills[name]; ok {
				p.Containers = append(p.Containers, stats.ContainerUsage{Container: stats.Container{ID: "id-" + name, Name: name}, OOMKills: n})
			}
		}
		return stats.Pass{Pods: []stats.PodUsage{p}}
	}
	type look struct {
		kills map[string]int64
		want  string
	}
	for name, looks := range map[string][]look{
		"nothing": {{map[string]int64{"a": 0}, "[]"}, {map[string]int64{"a": 0}, "[]"}},
		"told once": {{nil, "[]"}, {map[string]int64{"a": 0}, "[]"}, {map[string]int64{"a": 2}, "[]"},
			{map[string]int64{"a": 2}, "[{u a 2}]"}, {map[string]int64{"a": 2}, "[]"}},
		"more of it": {{nil, "[]"}, {map[string]int64{"a": 1}, "[]"}, {map[string]int64{"a": 3}, "[{u a 1}]"},
			{map[string]int64{"a": 3}, "[{u a 2}]"}},
		"of before this brain": {{map[string]int64{"a": 5}, "[]"}, {map[string]int64{"a": 5}, "[]"}, {map[string]int64{"a": 6}, "[]"},
			{map[string]int64{"a": 6}, "[{u a 1}]"}},
		"it died of it": {{nil, "[]"}, {map[string]int64{"a": 0}, "[]"}, {map[string]int64{"a": 4}, "[]"}, {nil, "[]"}},
		"two": {{nil, "[]"}, {map[string]int64{"a": 1, "b": 2}, "[]"},
			{map[string]int64{"a": 1, "b": 2}, "[{u a 1} {u b 2}]"}},
		"one of two has outlived": {{nil, "[]"}, {map[string]int64{"a": 1, "b": 2}, "[]"}, {map[string]int64{"b": 2}, "[{u b 2}]"}},
	} {
		var s survivors
		for i, l := range looks {
			var got []survival
			if s, got = s.look(pass(l.kills)); fmt.Sprint(got) != l.want {
				t.Errorf("%s: look %d: %v, want %s", name, i, got, l.want)
			}
		}
	}
}

// TestOutlivesOOMKills: that the kernel has killed a part of a container is told of by its pod, and counted.
func TestOutlivesOOMKills(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.measured(func(*machine.Sample, map[string]bool) {})
		r.begin()
		p := r.pod("p", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		})
		r.uses(p, 60*mi, 3)
		r.pass(statsEvery + time.Second)
		file := filepath.Join(r.dir, "cgroup", podspec.Cgroup(p), containerID(p, "c", 0), "memory.events")
		if err := os.WriteFile(file, []byte("low 0\nhigh 0\nmax 19\noom 2\noom_kill 2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.pass(2*statsEvery + time.Second)
		r.want("events", r.events.of("ProcessOOMKilled"),
			"Warning ProcessOOMKilled p: Processes that the kernel killed for want of memory while the container goes on: 2 (its limit is 64Mi)")
		_, text, _, err := r.agent.Page(r.Context(), "/metrics")
		if line := "container_oom_events_total{container=\"c\",namespace=\"default\",pod=\"p\"} 2\n"; err != nil ||
			!strings.Contains(string(text), line) {
			t.Errorf("no %q, %v: %s", line, err, text)
		}
		r.pass(10 * statsEvery)
		if n := len(r.events.of("ProcessOOMKilled")); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}
