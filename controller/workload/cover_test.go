package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// daemonSet is one of image v1: "surge=", "out=", "ondelete", "image=", "ready=" seconds, "history=", "on=" the label of boards, "going" as
// the words say.
func daemonSet(words string) *appsv1.DaemonSet {
	labels, history := map[string]string{"app": "web"}, int32(2)
	out, surge := intstr.FromInt32(1), intstr.FromInt32(0)
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", Generation: 3},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, RevisionHistoryLimit: &history,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &out, MaxSurge: &surge}}}}
	for _, w := range strings.Fields(words) {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "surge":
			out, surge = intstr.FromInt32(0), intstr.Parse(value)
		case "out":
			out = intstr.Parse(value)
		case "ondelete":
			d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		case "image":
			d.Spec.Template.Spec.Containers[0].Image = value
		case "ready":
			d.Spec.MinReadySeconds = atoi(value)
		case "history":
			history = atoi(value)
		case "on":
			d.Spec.Template.Spec.NodeSelector = map[string]string{value: "yes"}
		case "going":
			d.DeletionTimestamp = &metav1.Time{Time: epoch}
		default:
			panic(w)
		}
	}
	return d
}

// board is "NAME word ...": a label, or, with an effect after a colon, a taint.
func board(text string) *corev1.Node {
	f := strings.Fields(text)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f[0], Labels: map[string]string{}}}
	for _, w := range f[1:] {
		if key, effect, taint := strings.Cut(w, ":"); taint {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
		} else {
			n.Labels[w] = "yes"
		}
	}
	return n
}

// daemon is a pod of a board that has an image.
func daemon(d *appsv1.DaemonSet, on, image string) *corev1.Pod {
	c := &cover{ds: d.DeepCopy()}
	c.ds.Spec.Template.Spec.Containers[0].Image = image
	c.hash = Hash(&c.ds.Spec.Template, nil)
	c.create(&place{name: on})
	return c.course.Pods[0].Pod
}

// TestCover is the meaning of DaemonSets, case by case. There are boards a, b and c, if not said otherwise; pods are "BOARD IMAGE state".
func TestCover(t *testing.T) {
	three := []string{"a", "b", "c"}
	for _, tt := range []struct {
		name   string
		words  string
		had    string // images of revisions, beside today's and v1
		boards []string
		pods   []string
		says   string
	}{
		{name: "new", boards: three, says: "create a v1, create b v1, create c v1"},
		{name: "all there", boards: three, pods: []string{"a v1 ready", "b v1 starts", "c v1 waits"}},
		{name: "a board comes", boards: three, pods: []string{"a v1 ready", "b v1 ready"}, says: "create c v1"},
		{name: "a board is not ready", boards: []string{"a node.kubernetes.io/not-ready:NoExecute node.kubernetes.io/unreachable:NoSchedule",
			"b node.kubernetes.io/unschedulable:NoSchedule"},
			says: "create b v1"},
		{name: "a board drives out", boards: []string{"a x:NoExecute", "b x:NoSchedule", "c x:PreferNoSchedule"},
			pods: []string{"a v1 ready", "b v1 ready"}, says: "delete a, create c v1"},
		{name: "boards are picked", words: "on=fast", boards: []string{"a fast", "b", "c fast"}, pods: []string{"b v1 ready"},
			says: "create a v1, delete b, create c v1"},
		{name: "a board has gone", boards: []string{"a"}, pods: []string{"a v1 ready", "b v1 ready", "c v1 waits"}, says: "delete c"},
		{name: "one has ended", boards: three, pods: []string{"a v1 failed", "b v1 gone", "c v1 ready"}, says: "replace a, replace b"},
		{name: "one has ended and goes", boards: three, pods: []string{"a v1 failed going", "b v1 ready", "c v1 ready"}, says: "create a v1"},
		{name: "one goes", boards: three, pods: []string{"a v1 ready going", "b v1 ready", "c v1 ready"}},
		{name: "two at one place", boards: []string{"a"}, pods: []string{"a v1 ready", "a v1 waits"}, says: "delete a"},

		{name: "another template: one at a time", words: "image=v2", boards: three, pods: []string{"a v1 ready", "b v1 ready", "c v1 ready"},
			says: "delete a"},
		{name: "another template: while one is missing", words: "image=v2", boards: three,
			pods: []string{"a v2 starts", "b v1 ready", "c v1 ready"}},
		{name: "another template: then the next", words: "image=v2", boards: three, pods: []string{"a v2 ready", "b v1 ready", "c v1 ready"},
			says: "delete b"},
		{name: "another template: not before it is available", words: "image=v2 ready=10", boards: three,
			pods: []string{"a v2 since=9", "b v1 ready", "c v1 ready"}},
		{name: "another template: who serves nobody goes first", words: "image=v2", boards: three,
			pods: []string{"a v1 ready", "b v1 ready", "c v1 starts"}, says: "delete c"},
		{name: "another template: while a board comes", words: "image=v2", boards: three, pods: []string{"a v1 ready", "b v1 ready"},
			says: "create c v2"},
		{name: "another template: half, rounded up", words: "image=v2 out=50%", boards: three,
			pods: []string{"a v1 ready", "b v1 ready", "c v1 ready"}, says: "delete a, delete b"},
		{name: "another template: one is replaced anyway", words: "image=v2", boards: three,
			pods: []string{"a v1 failed", "b v1 ready", "c v1 ready"}, says: "replace a"},
		{name: "nobody asked", words: "image=v2 ondelete", boards: three, pods: []string{"a v1 ready", "b v1 starts"}, says: "create c v2"},
		{name: "back to a former template", words: "image=v1", had: "v2", boards: []string{"a"}, pods: []string{"a v2 ready"},
			says: "update v1 3, delete a"},

		{name: "two for a while", words: "image=v2 surge=1", boards: three, pods: []string{"a v1 ready", "b v1 ready", "c v1 ready"},
			says: "create a v2"},
		{name: "two for a while: not more", words: "image=v2 surge=1", boards: three,
			pods: []string{"a v1 ready", "a v2 starts", "b v1 ready", "c v1 ready"}},
		{name: "two for a while: then the next", words: "image=v2 surge=1", boards: three,
			pods: []string{"a v1 ready", "a v2 ready", "b v1 ready", "c v1 ready"}, says: "delete a, create b v2"},
		{name: "two for a while: who serves nobody has a successor", words: "image=v2 surge=1", boards: three,
			pods: []string{"a v1 ready", "b v1 ready", "c v1 starts"}, says: "create c v2, create a v2"},
		{name: "two for a while: neither serves", words: "image=v2 surge=1", boards: []string{"a"}, pods: []string{"a v1 starts", "a v2 starts"},
			says: "delete a"},
		{name: "two for a while: half of them", words: "image=v2 surge=50%", boards: three,
			pods: []string{"a v1 ready", "b v1 ready", "c v1 ready"}, says: "create a v2, create b v2"},
		{name: "two for a while, of one template", words: "surge=1", boards: []string{"a"}, pods: []string{"a v1 ready", "a v1 starts"},
			says: "delete a"},
		{name: "another in the place of one that goes", words: "surge=1", boards: []string{"a"}, pods: []string{"a v1 ready going"},
			says: "create a v1"},
		{name: "another place: first there", words: "image=v2 surge=1 on=fast", boards: []string{"a fast", "b x:NoSchedule fast"},
			pods: []string{"a v2 starts", "b v1 ready"}},
		{name: "another place: then not here", words: "image=v2 surge=1 on=fast", boards: []string{"a fast", "b x:NoSchedule fast"},
			pods: []string{"a v2 ready", "b v1 ready"}, says: "delete b"},

		{name: "somebody's", boards: []string{"a"}, pods: []string{"a v1 ready orphan"}, says: "adopt a"},
		{name: "not what it looks for any more", boards: []string{"a"}, pods: []string{"a v1 ready unlabelled"}, says: "release a"},
		{name: "it goes", words: "image=v2 going", boards: three, pods: []string{"a v1 ready", "b v1 ready orphan"}},
		{name: "more templates than are kept", words: "image=v5", had: "v2 v3 v4", boards: []string{"a"}, pods: []string{"a v5 ready"},
			says: "delete v1 1, delete v2 2"},
		{name: "a pod still has one", words: "image=v5 ondelete history=1", had: "v2 v3 v4", boards: []string{"a"}, pods: []string{"a v1 ready"},
			says: "delete v2 2, delete v3 3"},
	} {
		d := daemonSet(tt.words)
		had := append(strings.Fields(tt.had), "v1", d.Spec.Template.Spec.Containers[0].Image)
		slices.Sort(had)
		var revisions []*appsv1.ControllerRevision
		for _, image := range slices.Compact(had) {
			revisions = append(revisions, remembered(d, "DaemonSet", appsv1.DefaultDaemonSetUniqueLabelKey, &d.Spec.Template, image))
		}
		var nodes []*corev1.Node
		for _, text := range tt.boards {
			nodes = append(nodes, board(text))
		}
		var pods []*corev1.Pod
		for i, text := range tt.pods {
			f := strings.SplitN(text, " ", 3)
			p := daemon(d, f[0], f[1])
			p.Name = fmt.Sprintf("web-%d", i)
			podIs(p, f[2])
			if p.Spec.NodeName != "" {
				p.Spec.NodeName = f[0]
			}
			p.UID = types.UID(p.Name)
			pods = append(pods, p)
		}
		before := fmt.Sprint(d, revisions, pods, nodes)
		course, _ := Cover(d, revisions, pods, nodes, epoch)
		if got := course.says(target); got != tt.says {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.says)
		}
		if fmt.Sprint(d, revisions, pods, nodes) != before {
			t.Errorf("%s: what was looked at has changed", tt.name)
		}
	}
}

// TestDaemon: a pod is made for one board, and stays there whatever is the matter with it.
func TestDaemon(t *testing.T) { // N-12.3
	d := daemonSet("on=fast")
	thirty := int64(30)
	d.Spec.Template.Spec.HostNetwork = true
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &thirty}}
	d.Spec.Template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "fast",
				Operator: corev1.NodeSelectorOpExists}}}}}}}
	course, _ := Cover(d, nil, nil, []*corev1.Node{board("a fast")}, epoch)
	p := course.Pods[0].Pod
	var tolerates []string
	for _, x := range p.Spec.Tolerations {
		if x.TolerationSeconds != nil || x.Operator != corev1.TolerationOpExists {
			t.Errorf("%+v", x)
		}
		tolerates = append(tolerates, strings.TrimPrefix(x.Key, "node.kubernetes.io/")+":"+string(x.Effect))
	}
	want := "not-ready:NoExecute unreachable:NoExecute disk-pressure:NoSchedule memory-pressure:NoSchedule pid-pressure:NoSchedule " +
		"unschedulable:NoSchedule network-unavailable:NoSchedule"
	if got := strings.Join(tolerates, " "); got != want {
		t.Errorf("tolerates %s, want %s", got, want)
	}
	if target(p) != "a" || p.GenerateName != "web-" ||
		p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] != hashOf(course.Revisions[0].Revision) || !metav1.IsControlledBy(p, d) {
		t.Errorf("%+v", p)
	}
	if len(d.Spec.Template.Spec.Tolerations) != 1 ||
		d.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields != nil {
		t.Error("the template has changed")
	}
}

// TestCoverStatus: each board counts once, by its oldest pod.
func TestCoverStatus(t *testing.T) {
	d := daemonSet("image=v2 ready=10 ondelete")
	nodes := []*corev1.Node{board("a"), board("b"), board("c"), board("d"), board("e x:NoSchedule")}
	var pods []*corev1.Pod
	for i, text := range []string{"a v2 ready", "b v2 since=4", "c v1 ready", "e v1 ready", "c v2 waits", "gone v2 ready"} {
		f := strings.SplitN(text, " ", 3)
		p := podIs(daemon(d, f[0], f[1]), f[2])
		if p.Name = fmt.Sprintf("web-%d", i); p.Spec.NodeName != "" {
			p.Spec.NodeName = f[0]
		}
		pods = append(pods, p)
	}
	course, s := Cover(d, nil, pods, nodes, epoch)
	want := appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 4, CurrentNumberScheduled: 3, NumberMisscheduled: 1,
		NumberReady: 3, NumberAvailable: 2,
		NumberUnavailable: 2, UpdatedNumberScheduled: 2}
	if fmt.Sprint(s) != fmt.Sprint(want) || course.Again.Seconds() != 6 {
		t.Errorf("%+v, again in %v\nwant %+v", s, course.Again, want)
	}
}
