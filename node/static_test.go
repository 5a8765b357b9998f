package node

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/node/machine"
	"ledge/node/podspec"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/node/static"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: s}
spec:
  containers: [{name: c, image: "example.com/app:v1", command: [app]}]
`

// statics makes the rig's agent read a directory, and gives what replaces and removes files of it.
func (r *rig) statics(dirs ...static.Dir) (put func(name, text string), remove func(name string)) {
	r.Helper()
	dir := filepath.Join(r.dir, "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.Fatal(err)
	}
	r.cfg.Static.Dirs = append([]static.Dir{{Path: dir}}, dirs...)
	put = func(name, text string) {
		r.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
	}
	return put, func(name string) {
		r.Helper()
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			r.Fatal(err)
		}
	}
}

// boot is the board's power going off and on.
func (r *rig) boot() {
	r.Helper()
	r.end()
	r.engine = enginefake.New(enginefake.Config{})
	r.cfg.Engine = r.engine
	if err := os.RemoveAll(r.cfg.RunDir); err != nil {
		r.Fatal(err)
	}
	r.begin()
}

// scanned is long enough for a change of a file to be seen and acted on.
const scanned = static.ScanEvery + 5*time.Second

// deafCluster has not heard of any pod.
type deafCluster struct{ shownIn }

func (deafCluster) Bound() []*corev1.Pod { return nil }

// TestStaticPod: N-7.49 and N-7.50, what it is and what is shown of it.
func TestStaticPod(t *testing.T) {
	with(t, nil, func(r *rig) {
		put, _ := r.statics()
		put("s.yaml", staticPod)
		put(".hidden.yaml", strings.Replace(staticPod, "name: s", "name: hidden", 1))
		r.begin()
		r.pass(5 * time.Second)
		r.want("running", r.running(), "c.0")
		m := r.get("s-n")
		own := r.agent.statics.Named("default", "s-n")
		owner := metav1.GetControllerOf(m)
		if m.Annotations["kubernetes.io/config.mirror"] != string(own.UID) || m.Annotations["kubernetes.io/config.hash"] != string(own.UID) ||
			m.Annotations["kubernetes.io/config.source"] != "file" || m.Annotations["kubernetes.io/config.seen"] == "" || m.UID == own.UID ||
			owner == nil || owner.Kind != "Node" || owner.Name != "n" || owner.UID != r.node().UID || m.Spec.NodeName != "n" {
			t.Errorf("mirror %+v", m.ObjectMeta)
		}
		if !slices.ContainsFunc(m.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoExecute && t.Key == ""
		}) {
			t.Errorf("tolerations %+v", m.Spec.Tolerations)
		}
		if m.Status.Phase != corev1.PodRunning || len(m.Status.ContainerStatuses) != 1 || m.Status.PodIP == "" {
			t.Errorf("the mirror's status is %+v", m.Status)
		}
		if list, err := r.List(r.Context(), api.Pods, api.ListOptions{}); err != nil || len(list.Items) != 1 {
			t.Errorf("%d pods, %v", len(list.Items), err)
		}
		writeLog(t, r.agent.logs.Path(own, "c", 0), second(1)+" stdout F hello")
		deaf := static.NewMirrors("n", r.agent.statics, deafCluster{shownIn{r.agent.cfg.Client, r.agent}})
		if err := deaf.Sync(r.Context()); err != nil || r.get("s-n").UID != m.UID {
			t.Errorf("before its own watch tells it of the mirror: %v", err)
		}
		in, err := r.agent.Logs(r.Context(), "default", "s-n", api.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := io.ReadAll(in); err != nil || string(out) != "hello\n" {
			t.Errorf("log %q %v", out, err)
		}
		in.Close()

		if p, err := r.agent.here(r.Context(), "default", "s-n"); err != nil || p.UID != own.UID {
			t.Errorf("a command would run in %+v, %v", p, err)
		}

		// Who deletes the mirror does not stop the pod, and sees it again.
		for _, grace := range []*int64{nil, new(int64(0))} {
			r.delete("s-n", grace)
			r.pass(5 * time.Second)
			again := r.get("s-n")
			if again.UID == m.UID || again.DeletionTimestamp != nil || again.Status.Phase != corev1.PodRunning {
				t.Errorf("after the mirror was deleted: %+v", again.ObjectMeta)
			}
			m = again
			r.want("running", r.running(), "c.0")
		}
		r.engine.End(containerID(own, "c", 0), runtime.Exit{Code: 1})
		r.pass(time.Second)
		if n := r.get("s-n").Status.ContainerStatuses[0].RestartCount; n != 1 {
			t.Errorf("%d restarts are shown", n)
		}
		// A restart of the agent finds it as it was.
		r.begin()
		r.pass(5 * time.Second)
		r.want("running after a restart", r.running(), "c.1")
		if got := r.get("s-n"); got.UID != m.UID || got.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("after a restart: %+v", got.Status)
		}
		// And after a boot it begins anew.
		r.boot()
		r.pass(5 * time.Second)
		r.want("running after a boot", r.running(), "c.0")
		if got := r.get("s-n"); got.Status.ContainerStatuses[0].RestartCount != 0 || got.Status.Phase != corev1.PodRunning {
			t.Errorf("after a boot: %+v", got.Status)
		}
	})
}

// TestStaticPodWithoutAPI: it starts, restarts and ends while the API is away all the time.
func TestStaticPodWithoutAPI(t *testing.T) {
	with(t, nil, func(r *rig) {
		put, remove := r.statics()
		put("s.yaml", staticPod)
		r.via.breaks(down)
		r.begin()
		r.pass(5 * time.Second)
		r.want("running", r.running(), "c.0")
		own := r.agent.statics.Named("default", "s-n")
		r.engine.End(containerID(own, "c", 0), runtime.Exit{Code: 1})
		r.pass(time.Second)
		r.want("running again", r.running(), "c.1")
		put("second.yaml", strings.Replace(staticPod, "name: s", "name: t", 1))
		r.pass(scanned)
		two := r.running()
		slices.Sort(two)
		r.want("two", two, "c.0", "c.1")
		remove("s.yaml")
		r.pass(2 * scanned)
		r.want("one", r.running(), "c.0")
		r.via.breaks(nil)
		r.pass(2 * time.Minute)
		if p := r.get("t-n"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("when the API is there: %+v", p.Status)
		}
		if !r.gone("s-n") {
			t.Error("a pod is shown that ended before")
		}
	})
}

// TestStaticPodChanges: a changed file is another pod, and the old one ends first; a removed file is the end.
func TestStaticPodChanges(t *testing.T) {
	with(t, nil, func(r *rig) {
		put, remove := r.statics()
		put("s.yaml", staticPod)
		r.begin()
		r.pass(5 * time.Second)
		old := r.agent.statics.Named("default", "s-n")
		put("s.yaml", strings.Replace(staticPod, "name: c,", "name: d,", 1))
		r.pass(scanned)
		r.want("running", r.running(), "d.0")
		now := r.get("s-n")
		if uid := now.Annotations["kubernetes.io/config.mirror"]; uid == string(old.UID) ||
			uid != string(r.agent.statics.Named("default", "s-n").UID) {
			t.Errorf("the mirror shows %s, the old one was %s", uid, old.UID)
		}
		if now.Status.ContainerStatuses[0].Name != "d" {
			t.Errorf("%+v", now.Status)
		}
		remove("s.yaml")
		r.pass(2 * scanned)
		if !r.gone("s-n") {
			t.Errorf("still shown: %+v", r.get("s-n").ObjectMeta)
		}
		r.nothingLeft()
		for _, dir := range []string{filepath.Join(r.cfg.DataDir, "static"), filepath.Join(r.cfg.RunDir, "static")} {
			if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	})
}

// TestBrokenStaticPod: a file that breaks is refused with an event and what was good runs on, also after a restart
// and a boot; one that was never good is not run.
func TestBrokenStaticPod(t *testing.T) {
	with(t, nil, func(r *rig) {
		put, remove := r.statics()
		put("s.yaml", staticPod)
		put("never.yaml", "kind: [")
		r.begin()
		r.pass(5 * time.Second)
		uid := r.agent.statics.Named("default", "s-n").UID
		put("s.yaml", staticPod+"  hostname: Not_A_Name\n")
		r.pass(2 * scanned)
		r.want("running", r.running(), "c.0")
		events := r.events.of("FailedStaticPod")
		if len(events) != 2 || !strings.Contains(events[0], "never.yaml is refused, it is not run") ||
			!strings.Contains(events[1], "s.yaml is refused, what was there before runs on") || !strings.Contains(events[1], "spec.hostname") {
			t.Errorf("events %q", events)
		}
		for what, again := range map[string]func(){"a restart": r.begin, "a boot": r.boot} {
			again()
			r.pass(5 * time.Second)
			r.want("running after "+what, r.running(), "c.0")
			if got := r.agent.statics.Named("default", "s-n"); got == nil || got.UID != uid {
				t.Errorf("after %s: %+v", what, got)
			}
		}
		put("s.yaml", strings.Replace(staticPod, "name: c,", "name: mended,", 1))
		r.pass(scanned)
		r.want("running when mended", r.running(), "mended.0")
		// Two of one name: the first file's.
		put("z.yaml", strings.Replace(staticPod, "name: c,", "name: other,", 1))
		r.pass(scanned)
		r.want("running of two", r.running(), "mended.0")
		if events := r.events.of("FailedStaticPod"); !strings.Contains(events[len(events)-1],
			"z.yaml is refused: the name or uid of its pod is that of ") {
			t.Errorf("events %q", events)
		}
		remove("s.yaml")
		r.pass(2 * scanned)
		r.want("the other one's turn", r.running(), "other.0")
	})
}

// TestStaticPodAndShutdown: it ends with a shutdown, and comes back if that does not happen, or with the next start.
func TestStaticPodAndShutdown(t *testing.T) {
	with(t, nil, func(r *rig) {
		put, _ := r.statics()
		put("s.yaml", staticPod)
		put("once.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: once}\nspec: {restartPolicy: Never, "+
			"containers: [{name: once, image: 'example.com/app:v1', command: [app]}]}\n")
		r.begin()
		r.pass(5 * time.Second)
		once := r.agent.statics.Named("default", "once-n")
		r.engine.End(containerID(once, "once", 0), runtime.Exit{})
		r.pass(5 * time.Second)
		if p := r.get("once-n"); p.Status.Phase != corev1.PodSucceeded {
			t.Errorf("%+v", p.Status)
		}
		r.begin()
		r.pass(5 * time.Second)
		r.want("what had its one run has had it", r.running(), "c.0")

		off := podstate.Stop{Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown."}
		stopped := func() {
			t.Helper()
			r.agent.Close("node is shutting down")
			if err := r.agent.StopPod(r.Context(), r.agent.statics.Named("default", "s-n").UID, off); err != nil {
				t.Fatal(err)
			}
			r.agent.Clear()
			r.pass(30 * time.Second)
			r.want("running", r.running())
			if p := r.get("s-n"); p.Status.Phase != corev1.PodFailed || p.Status.Reason != off.Reason {
				t.Errorf("%+v", p.Status)
			}
		}
		stopped()
		r.agent.Close("")
		r.pass(30 * time.Second)
		r.want("running after all", r.running(), "c.0")
		off.Reason, off.Message = "Shutdown", "Node is shutting, evicting pods" // N-5.37
		stopped()
		r.begin()
		r.pass(5 * time.Second)
		r.want("running after a start", r.running(), "c.0")
		if p := r.get("s-n"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("%+v", p.Status)
		}
	})
}

// TestStaticPodNameTaken: a pod of the API with the name of a static one is left alone, and the static one runs.
func TestStaticPodNameTaken(t *testing.T) {
	with(t, nil, func(r *rig) {
		put, _ := r.statics()
		r.begin()
		r.pod("s-n", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "theirs" })
		put("s.yaml", staticPod)
		r.pass(scanned)
		got := r.running()
		slices.Sort(got)
		r.want("running", got, "c.0", "theirs.0")
		if api.IsMirror(r.get("s-n")) {
			t.Error("it was replaced by a mirror")
		}
		if p, err := r.agent.here(r.Context(), "default", "s-n"); err != nil || p.UID != r.get("s-n").UID {
			t.Errorf("the name means %+v, %v", p, err)
		}
		r.delete("s-n", new(int64(0)))
		r.pass(time.Minute)
		if !api.IsMirror(r.get("s-n")) {
			t.Error("there is no mirror when the name is free")
		}
	})
}

// TestMirrorOfNothing: one whose file went while nobody was there is taken away.
func TestMirrorOfNothing(t *testing.T) {
	with(t, nil, func(r *rig) {
		put, remove := r.statics()
		put("s.yaml", staticPod)
		r.begin()
		r.pass(5 * time.Second)
		r.get("s-n")
		r.end()
		remove("s.yaml")
		r.begin()
		r.pass(10 * time.Second)
		if !r.gone("s-n") {
			t.Error("it is still shown")
		}
		r.nothingLeft()
	})
}

// claimsFile writes the annotation of a pod from a file, as anybody may who may make pods.
func claimsFile(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x"}
}

// TestClaimedFile: a pod of the API is no static one because its annotations say so: it is evicted, turned away, measured and
// makes no room for itself. One from a file has all that by where it is from.
func TestClaimedFile(t *testing.T) { // N-6.30, N-7.51
	eater := func(r *rig) {
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["eater"] || running["s-n"] {
				s.MemoryAvailable = 40 * mi
			}
		})
	}
	with(t, nil, func(r *rig) {
		eater(r)
		r.begin()
		r.uses(r.pod("eater", claimsFile), 300*mi, 1)
		r.pass(pressure.MonitorPeriod + time.Second)
		r.evicted("eater")
		r.uses(r.pod("late", claimsFile), mi, 1) // and so is turned away while the condition holds
		r.pass(time.Second)
		r.evicted("late")
	})
	with(t, nil, func(r *rig) {
		eater(r)
		put, _ := r.statics()
		put("s.yaml", staticPod)
		r.begin()
		r.uses(r.agent.statics.Named("default", "s-n"), 300*mi, 1)
		r.pass(pressure.MonitorPeriod + 20*time.Second)
		r.want("evicted", r.events.of("Evicted"))
		r.want("running", sortedNames(r), "s-n")
	})
	with(t, nil, func(r *rig) {
		r.cfg.Written = func(id string) string { return filepath.Join(r.dir, "written", id) }
		r.begin()
		p := r.pod("over", claimsFile, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("64Ki")}
		})
		dir := r.cfg.Written(containerID(p, "c", 0))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "f"), make([]byte, 256<<10), 0o600)); err != nil {
			t.Fatal(err)
		}
		r.pass(measureEvery + 5*time.Second)
		r.evicted("over")
	})
	for name, edit := range map[string]func(*corev1.Pod){"of a file": nil, "of the API": claimsFile} {
		with(t, nil, func(r *rig) { // a board of 4 CPUs
			put, _ := r.statics()
			r.begin()
			r.create(asking("ordinary", "3", "10Mi"))
			r.pass(time.Second)
			if edit == nil {
				put("s.yaml", strings.Replace(staticPod, "name: c,", "name: c, resources: {requests: {cpu: 2}},", 1))
			} else {
				r.create(asking("second", "2", "10Mi", edit))
			}
			r.pass(static.ScanEvery + time.Minute)
			if made := len(r.events.of("Preempting")) == 1; made != (edit == nil) {
				t.Errorf("a pod %s has made room for itself: %v", name, made)
			}
		})
	}
}

// TestClaimedMirror: a mirror that is none is not run, whoever made it, and is taken away.
func TestClaimedMirror(t *testing.T) { // N-7.50
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("m", claimsFile, func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" })
		r.pass(time.Second)
		r.want("running", r.running())
		r.pass(time.Minute)
		if !r.gone("m") {
			t.Errorf("it is still there: %+v", r.get("m").Status)
		}
		crit := asking("m", "1", "1Mi", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
		if (podspec.FromFiles{}).Critical(crit) {
			t.Error("the annotation alone makes it critical")
		}
	})
}

// TestBrokenDocument: a document that is wrong takes no other of its file with it, whether that is new or was there before.
func TestBrokenDocument(t *testing.T) {
	with(t, nil, func(r *rig) {
		pod := func(name, container string) string {
			return strings.NewReplacer("name: s}", "name: "+name+"}", "name: c,", "name: "+container+",").Replace(staticPod)
		}
		running := func() []string { return slices.Sorted(slices.Values(r.running())) }
		put, _ := r.statics()
		put("s.yaml", pod("a", "one")+"---\n"+pod("b", "two"))
		put("t.yaml", pod("c", "three")+"--- # the next\nkind: [\n---\n"+pod("d", "four"))
		r.begin()
		r.pass(5 * time.Second)
		r.want("running", running(), "four.0", "one.0", "three.0", "two.0")
		// One is changed, one breaks, one is new.
		put("s.yaml", pod("a", "changed")+"---\n"+pod("b", "two")+"  hostname: Not_A_Name\n---\n"+pod("e", "five"))
		all := []string{"changed.0", "five.0", "four.0", "three.0", "two.0"}
		r.pass(3 * scanned)
		r.want("running with one that is broken", running(), all...)
		events := r.events.of("FailedStaticPod")
		if len(events) != 2 || !strings.Contains(events[0], "t.yaml is refused, but for what is right in it: document 2: ") ||
			!strings.Contains(events[1], "s.yaml is refused, but for what is right in it, and what was there before runs on: document 2: ") {
			t.Errorf("events %q", events)
		}
		for what, again := range map[string]func(){"a restart": r.begin, "a boot": r.boot} {
			again()
			r.pass(5 * time.Second)
			r.want("running after "+what, running(), all...)
		}
		put("s.yaml", pod("a", "changed"))
		put("t.yaml", pod("c", "three")+"---\nkind: [\n---\n"+pod("d", "four")+"---\n"+pod("a", "other")) // of which s.yaml has one
		before := len(r.events.of("FailedStaticPod"))
		r.pass(3 * scanned)
		if events := r.events.of("FailedStaticPod")[before:]; len(events) != 1 ||
			!strings.Contains(events[0], "t.yaml is refused: the name or uid") {
			t.Errorf("told again and again: %q", events)
		}
		r.want("running when mended", running(), "changed.0", "four.0", "three.0")
	})
}
