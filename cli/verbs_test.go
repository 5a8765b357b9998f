package cli

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/config"
)

// N-11.8: which pods a drain evicts, which it leaves, and for which it wants another word.
func TestDrainPlan(t *testing.T) {
	yes := true
	make := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(p)
		return p
	}
	ownedBy := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: &yes}}
		}
	}
	scratch := func(p *corev1.Pod) {
		ownedBy("ReplicaSet")(p)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	done := func(phase corev1.PodPhase, more func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { more(p); p.Status.Phase = phase }
	}
	bare := func(*corev1.Pod) {}
	for name, tc := range map[string]struct {
		pod  func(*corev1.Pod)
		opts drainOpts
		want string // "evict", "" or the flag that is asked for
	}{
		"owned":           {ownedBy("ReplicaSet"), drainOpts{}, "evict"},
		"bare":            {bare, drainOpts{}, "--force"},
		"bare, forced":    {bare, drainOpts{force: true}, "evict"},
		"bare, succeeded": {done(corev1.PodSucceeded, bare), drainOpts{}, "evict"},
		"bare, failed":    {done(corev1.PodFailed, bare), drainOpts{}, "evict"},
		"mirror": {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "h"} },
			drainOpts{force: true}, ""},
		"daemon":                 {ownedBy("DaemonSet"), drainOpts{force: true}, "--ignore-daemonsets"},
		"daemon, left":           {ownedBy("DaemonSet"), drainOpts{daemonSets: true}, ""},
		"daemon, ended":          {done(corev1.PodFailed, ownedBy("DaemonSet")), drainOpts{}, "evict"},
		"data":                   {scratch, drainOpts{force: true}, "--delete-emptydir-data"},
		"data, given up":         {scratch, drainOpts{emptyDirs: true}, "evict"},
		"data of one that ended": {done(corev1.PodSucceeded, scratch), drainOpts{}, "evict"},
	} {
		evict, refused := drainPlan([]api.Object{make(tc.pod)}, tc.opts)
		got := strings.Join(refused, "")
		if len(evict) == 1 {
			got += "evict"
		}
		if got != tc.want && (tc.want == "evict" || tc.want == "" || !strings.Contains(got, "("+tc.want+")") || len(evict) > 0) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// What the shells ask. There is no node, so names of objects are not known.
func TestComplete(t *testing.T) {
	for words, want := range map[string]string{
		"des":                     "describe",
		"co":                      "cordon completion",
		"--run-dir /none dr":      "drain",
		"get po":                  "pods pod podtemplates podtemplate poddisruptionbudgets poddisruptionbudget",
		"get -n x no":             "nodes node",
		"images pu":               "pull",
		"completion z":            "zsh",
		"top n":                   "nodes",
		"drain --del":             "--delete-emptydir-data",
		"logs -t":                 "",
		"logs --t":                "--tail --timestamps",
		"get -n ":                 "",
		"nosuch ":                 "",
		"backup save fi":          "",
		"--run-dir /none exec ":   "",
		"--run-dir /none get po ": "",
	} {
		var out, errs bytes.Buffer
		if code := Run(App{}, append([]string{"__complete"}, strings.Split(words, " ")...), &out, &errs); code != 0 {
			t.Errorf("%q: code %d", words, code)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	var all bytes.Buffer
	Run(App{}, []string{"__complete", ""}, &all, &all)
	for _, v := range verbs() {
		if slices.Contains(strings.Fields(all.String()), v.name) == v.hidden {
			t.Errorf("verb %s, hidden %t, in %s", v.name, v.hidden, all.String())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		if code := Run(App{}, []string{"completion", shell}, &out, &out); code != 0 || !strings.Contains(out.String(), "ledge __complete") {
			t.Errorf("%s: %d %s", shell, code, out.String())
		}
	}
	if code := Run(App{}, []string{"completion", "csh"}, &all, &all); code != 2 {
		t.Errorf("a shell that is not known: %d", code)
	}
}

// Words behind -- are never flags.
func TestDashDash(t *testing.T) {
	c := &Command{}
	v := verbs()[slices.IndexFunc(verbs(), func(v Verb) bool { return v.name == "exec" })]
	c.prepare(v)
	if err := c.parse(v, strings.Fields("web -c main -- ls -l -- -c x")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.args, " "); got != "web ls -l -- -c x" || c.Opts.(*execOpts).container != "main" {
		t.Errorf("%q %+v", got, c.Opts)
	}
}

func TestSessionEnd(t *testing.T) {
	for text, want := range map[string]string{
		`{"status":"Success"}`:                             "",
		`{"status":"Failure","message":"no such program"}`: "no such program",
		`{"status":"Failure","message":"m","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`:     "command terminated with exit code 7",
		`{"status":"Failure","message":"m","details":{"causes":[{"reason":"ExitCode","message":"seven"}]}}`: "m",
		`{"status":"Failure","message":"m","details":{"causes":[{"reason":"Other","message":"7"}]}}`:        "m",
		`broken`: "read how the command ended: invalid character 'b' looking for beginning of value",
	} {
		got := ""
		err := endOf([]byte(text))
		if err != nil {
			got = err.Error()
		}
		var code exitCode
		if got != want || errors.As(err, &code) && code != 7 {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestTopTables(t *testing.T) {
	use := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := func(ns, name string, c ...api.ContainerMetrics) api.Object {
		return &api.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Containers: c}
	}
	pods := []api.Object{pod("a", "idle", api.ContainerMetrics{Name: "m", Usage: use("0", "5Mi")}),
		pod("b", "busy", api.ContainerMetrics{Name: "m", Usage: use("100m", "1Mi")}, api.ContainerMetrics{Name: "s", Usage: use("20m", "2Mi")})}
	table := func(fill func(w *tabwriter.Writer)) string {
		var out strings.Builder
		w := tabwriter.NewWriter(&out, 0, 8, 1, ' ', 0)
		fill(w)
		w.Flush()
		return out.String()
	}
	if got := table(func(w *tabwriter.Writer) {
		topPods(w, pods,
			topOpts{})
	}); got != "NAME CPU(cores) MEMORY(bytes)\nbusy 120m       3Mi\nidle 0m         5Mi\n" {
		t.Errorf("%q", got)
	}
	if got := table(func(w *tabwriter.Writer) { topPods(w, pods, topOpts{all: true, containers: true}) }); !strings.HasPrefix(got,
		"NAMESPACE POD  NAME") ||
		!strings.Contains(got, "b         busy s    20m        2Mi\n") {
		t.Errorf("%q", got)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: use("4", "1Gi")}}
	metrics := []api.Object{&api.NodeMetrics{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Usage: use("1", "256Mi")},
		&api.NodeMetrics{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}}
	if got := table(func(w *tabwriter.Writer) { topNodes(w, metrics, []api.Object{node}) }); !strings.Contains(got,
		"n    1000m      25%       256Mi         25%\n") ||
		!strings.Contains(got, "gone 0m         <unknown> 0Mi           <unknown>\n") {
		t.Errorf("%q", got)
	}
}

// What describe shows of a pod and of a node, at one moment.
func TestDescribe(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web", CreationTimestamp: ago(time.Hour),
		Labels: map[string]string{"a": "b", "c": "d"}},
		Spec: corev1.PodSpec{NodeName: "board", Containers: []corev1.Container{{Name: "main", Image: "i", Args: []string{"run it"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, RestartCount: 3,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Minute)}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 7,
					FinishedAt: ago(2 * time.Minute)}}}}}}
	p := newPage(now)
	p.head(pod)
	p.pod(pod)
	p.events([]*corev1.Event{{Type: "Warning", Reason: "BackOff", Count: 4, LastTimestamp: ago(time.Minute),
		Message: "Back-off\n\x1b[2J now"}})
	text := string(p.done())
	for _, want := range []string{"Name:         web\n", "Labels:       a=b\n              c=d\n", "Annotations:  <none>\n",
		"Created:      60m ago\n", "Running for 60s",
		`["run it"]`, "Terminated 2m ago: Error, exit code 7\n", "Requests:    cpu 2\n", "  v  secret s\n", "BackOff  60s (x4)",
		"Back-off\\n\\x1b[2J now\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	four := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), "hugepages-1Gi": resource.MustParse("0")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "board"},
		Spec:   corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}},
		Status: corev1.NodeStatus{Capacity: four, Allocatable: four}}
	ended := pod.DeepCopy()
	ended.Name, ended.Status.Phase = "ended", corev1.PodFailed
	p = newPage(now)
	p.head(node)
	p.node(node, []api.Object{pod, ended})
	p.events(nil)
	text = string(p.done())
	for _, want := range []string{"k:NoSchedule\n", "Unschedulable:  true\n", "web   2 ", "2 (50%)", "0 (0%)", "Events:  <none>\n",
		"Created:        <unknown> ago"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "ended") {
		t.Errorf("a pod that holds nothing any more:\n%s", text)
	}
}

// A token of a control plane that nobody else reaches is one all the same: that is a note, and no error.
func TestTokenNote(t *testing.T) {
	for _, local := range []bool{true, false} {
		var out, errs bytes.Buffer
		c := &Command{out: &out, Err: &errs}
		must(t, c.printToken(strings.NewReader(fmt.Sprintf(`{"token": "t", "server": ["https://a:1"], "local": %t}`, local))))
		note := errs.String()
		if out.String() != "ledge agent --server https://a:1 --token t\n" || (note != "") != local || local &&
			(!strings.HasPrefix(note, "note: ") || !strings.Contains(note, "--listen 0.0.0.0:6443")) {
			t.Errorf("%q %q", &out, note)
		}
	}
}

// A verb that takes no words is not run with one: nothing is ignored.
func TestUnexpectedWords(t *testing.T) {
	for _, v := range verbs() {
		if v.args != "" {
			continue
		}
		var out, errs bytes.Buffer
		if code := Run(App{}, []string{"--run-dir", t.TempDir(), v.name, "zzz"}, &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), `unexpected "zzz"`) {
			t.Errorf("ledge %s zzz: %d\n%s%s", v.name, code, &out, &errs)
		}
	}
}

// Directories mean the same everywhere: those that are relative are where the process was started.
func TestRelativeDirectories(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	v := verbs()[slices.IndexFunc(verbs(), func(v Verb) bool { return v.name == "serve" })]
	for words, want := range map[string][2]string{
		"":                                  {here + "/env", config.DefaultDataDir},
		"--run-dir run --data-dir ../d/":    {here + "/run", filepath.Dir(here) + "/d"},
		"--run-dir /x/run/ --data-dir /a/b": {"/x/run", "/a/b"},
	} {
		c := &Command{RunDir: "env"}
		c.prepare(v)
		must(t, c.parse(v, strings.Fields(words)))
		must(t, c.absolute())
		o := c.Opts.(*config.Options)
		if c.RunDir != want[0] || o.DataDir != want[1] || o.BootState != "" || o.Path != config.DefaultPath {
			t.Errorf("%q: %s, %+v", words, c.RunDir, o)
		}
	}
	var out, errs bytes.Buffer
	if code := Run(App{}, []string{"--run-dir", "", "reset"}, &out, &errs); code != 2 ||
		!strings.Contains(errs.String(), "--run-dir is empty") {
		t.Errorf("%d %s", code, errs.String())
	}
}
