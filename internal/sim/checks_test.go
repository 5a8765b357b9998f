package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// noted keeps what would have failed a test.
type noted struct {
	testing.TB
	lines []string
}

func (n *noted) Helper() {}

func (n *noted) Errorf(format string, args ...any) {
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *noted) want(t *testing.T, what string, parts ...string) {
	t.Helper()
	if len(n.lines) != len(parts) {
		t.Errorf("%s: noted %q, want %d", what, n.lines, len(parts))
	}
	for i := range min(len(parts), len(n.lines)) {
		if !strings.Contains(n.lines[i], parts[i]) {
			t.Errorf("%s: noted %q, want %q", what, n.lines[i], parts[i])
		}
	}
	n.lines = nil
}

// TestScribeNotices who writes what is another's (architecture: One writer per field).
func TestScribeNotices(t *testing.T) {
	n := &noted{TB: t}
	s := scribe{b: &Board{t: n}}
	agent := api.WithUser(t.Context(), api.User{Name: "system:node:sim"})
	plane, user := t.Context(), api.WithUser(t.Context(), api.User{Name: "user"})
	pod := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: "True"}}}}
		if edit != nil {
			edit(p)
		}
		return p
	}
	node := func(edit func(*corev1.Node)) *corev1.Node {
		o := &corev1.Node{}
		if edit != nil {
			edit(o)
		}
		return o
	}
	ready := func(s corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: s})
		}
	}
	nodeReady := func(s corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: s}}
		}
	}
	for _, c := range []struct {
		what     string
		old, new api.Object
		agent    string // what of it the agent may not
		plane    string
	}{
		{"image", pod(nil), pod(func(p *corev1.Pod) { p.Spec.NodeName = "x" }), "spec", "spec"},
		{"label", pod(nil), pod(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), "labels", "labels"},
		{"phase", pod(nil), pod(func(p *corev1.Pod) { p.Status.Phase = "Running" }), "", "status"},
		{"ready", pod(nil), pod(ready("True")), "", "condition Ready True"},
		{"not ready", pod(nil), pod(ready("False")), "", ""},
		{"lost", pod(nil), pod(func(p *corev1.Pod) { p.Status.Conditions = nil }), "lost condition", "lost condition"},
		{"nominated", pod(nil), pod(func(p *corev1.Pod) { p.Status.NominatedNodeName = "x" }), "nominated", ""},
		{"taint", node(nil), node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }), "taints", ""},
		{"cordon", node(nil), node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), "spec", "spec"},
		{"node ready", node(nil), node(nodeReady("True")), "", "condition True"},
		{"node unknown", node(nil), node(nodeReady("Unknown")), "", ""},
		{"capacity", node(nil), node(func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{"cpu": {}} }), "", "status"},
	} {
		kind, _ := kinds.All.Of(c.old)
		judge := func(want string) []string {
			if want == "" {
				return nil
			}
			return []string{want}
		}
		for _, what := range changes(kind, c.old, c.new) {
			s.judge(agent, kind.Resource+" "+what)
		}
		n.want(t, c.what+" by the agent", judge(c.agent)...)
		for _, what := range changes(kind, c.old, c.new) {
			s.judge(plane, kind.Resource+" "+what)
			s.judge(user, kind.Resource+" "+what)
		}
		n.want(t, c.what+" by the control plane", judge(c.plane)...)
	}
}

// TestWitnessNotices what no watcher should see.
func TestWitnessNotices(t *testing.T) {
	n := &noted{TB: t}
	w := newWitness()
	w.fail = n.Errorf
	event := func(typ api.EventType, name, rev string) api.Event {
		return api.Event{Type: typ, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: rev}}}
	}
	k := api.ConfigMaps
	w.listed(k, api.List{Revision: "10"})
	w.saw(k, event(api.Added, "a", "11"))
	w.saw(k, event(api.Modified, "a", "12"))
	w.saw(k, event(api.Bookmark, "", "12"))
	n.want(t, "a good watch")
	if err := w.compare(k, []api.Object{event(api.Added, "a", "12").Object}); err != nil {
		t.Error(err)
	}
	w.saw(k, event(api.Modified, "a", "12"))
	w.saw(k, event(api.Added, "a", "13"))
	w.saw(k, event(api.Modified, "b", "14"))
	w.saw(k, event(api.Bookmark, "", "9"))
	n.want(t, "a bad watch", "revision 12 after one of 12", "ADDED", "MODIFIED", "bookmark of 9")
	w.saw(k, event(api.Deleted, "a", "15"))
	w.listed(k, api.List{Revision: "14"})
	n.want(t, "a list from the past", "list of revision 14")
	if w.compare(k, []api.Object{event(api.Added, "a", "12").Object}) == nil {
		t.Error("a lost object was not noticed")
	}

	lease := func(at time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Unix(0, 0).Add(at)}}}
	}
	w.beat(lease(0), lease(10*time.Second))
	w.beat(lease(0), lease(10*time.Second+399*time.Millisecond))
	n.want(t, "renewals in time")
	w.beat(lease(0), lease(9*time.Second))
	w.beat(lease(0), lease(11*time.Second))
	n.want(t, "renewals out of time", "9s", "11s")
	w.excuse()
	w.beat(lease(0), lease(time.Hour))
	w.beat(lease(0), lease(time.Hour))
	n.want(t, "one was excused", "1h0m0s")
}

// TestStartsNotice what should not be started or killed.
func TestStartsNotice(t *testing.T) {
	n := &noted{TB: t}
	s := newStarts()
	s.fail = n.Errorf
	c := func(id string) runtime.Container {
		return runtime.Container{ID: id, PodUID: "u", Name: "c", Rootfs: t.TempDir()}
	}
	runs := func(id string) runtime.State {
		return runtime.State{Containers: []runtime.Status{{ID: id, PodUID: "u", Name: "c", Phase: runtime.Running}}}
	}
	s.look(c("1"), runtime.State{})
	s.look(c("1"), runs("1"))
	s.look(c("2"), runtime.State{})
	n.want(t, "good starts")
	s.look(c("3"), runs("2"))
	n.want(t, "two at once", "3 is started while 2 runs")
	s.runsOnce("u")
	s.look(c("4"), runtime.State{})
	n.want(t, "a second run", "is to run once")
	s.mayRepeat("u")
	s.look(runtime.Container{ID: "5", PodUID: "u", Name: "c", Rootfs: "/nowhere"}, runtime.State{})
	n.want(t, "no root file system", "without /nowhere")
	s.signalled("1", syscall.SIGTERM)
	s.signalled("1", syscall.SIGKILL)
	n.want(t, "asked first")
	s.signalled("2", syscall.SIGKILL)
	n.want(t, "not asked", "without having been asked")
}

// TestKernelNotices who is evicted that should not be, and what containers take.
func TestKernelNotices(t *testing.T) {
	n := &noted{TB: t}
	k := newKernel(t.TempDir())
	b := &Board{t: n, kernel: k, Machine: newMachine(t.TempDir(), 0)}
	ends := func(want, message string) (old, new *corev1.Pod) {
		old = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{wantLabel: want}}}
		old.Status.StartTime = &metav1.Time{Time: time.Now().Add(-time.Second)}
		new = old.DeepCopy()
		new.Status.Reason, new.Status.Message = "Evicted", message
		return old, new
	}
	const low, had = "The node was low on resource: memory. ", "Pod was rejected: The node had condition: [MemoryPressure]. "
	b.judgeEnd(ends(WantGone, low))
	b.judgeEnd(ends(WantSteady, had))
	n.want(t, "a board that is not short", "was evicted from a board that was not short", "was refused on a board that was not short")
	k.short = time.Now()
	b.judgeEnd(ends(WantGone, low))
	b.judgeEnd(ends(WantSteady, had))
	n.want(t, "a board that is short")
	b.judgeEnd(ends(WantSteady, low))
	n.want(t, "an innocent", "took nothing of others")

	eats := runtime.Container{Args: []string{"run", "eats=1000:5000"}}
	for age, want := range map[time.Duration]int64{0: 0, 1500 * time.Millisecond: 1500, time.Hour: 5000} {
		if got, tasks := taken(eats, age); got != want || tasks != 0 {
			t.Errorf("after %s it takes %d bytes and %d processes, want %d and 0", age, got, tasks, want)
		}
	}
	k.engine = enginefake.New(enginefake.Config{Script: k.script})
	start := func(id string, adj int, does string) {
		c := runtime.Container{ID: id, PodUID: id, Name: "c", Args: []string{"run", does}, Resources: runtime.Resources{OOMScoreAdj: &adj}}
		if _, err := k.engine.EnsurePod(t.Context(), runtime.Pod{UID: id, Cgroup: "kubepods/pod" + id}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.engine.Start(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	start("spared", -997, fmt.Sprintf("eats=%d:%d", int64(1)<<50, int64(2)<<30))
	k.tick()
	if got := k.victims(); len(got) > 0 {
		t.Errorf("killed with memory left: %v", got)
	}
	start("fat", 1000, fmt.Sprintf("eats=%d:%d", int64(1)<<50, int64(1)<<30))
	time.Sleep(time.Millisecond)
	k.tick()
	if got := k.victims(); len(got) != 1 || got[0] != "fat" {
		t.Errorf("killed %v without memory left, want fat", got)
	}
	data, err := os.ReadFile(filepath.Join(k.dir, "kubepods/podspared/memory.current"))
	if want := fmt.Sprintln(2<<30 + restingMemory); err != nil || string(data) != want {
		t.Errorf("the cgroup says %q, %v; want %q", data, err, want)
	}
}
