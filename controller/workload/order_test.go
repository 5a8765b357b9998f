package workload

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// statefulSet has n pods of image v1, and whatever the words say of it: "parallel", "start=", "partition=", "out=", "ondelete", "plain",
// "image=", "ready=" seconds, "history=", "going", and "former=" an image (v1 if it is not said) that "current=" pods have.
func statefulSet(n int32, words string) *appsv1.StatefulSet {
	labels, history, partition, former := map[string]string{"app": "web"}, int32(2), int32(0), "v1"
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", Generation: 3},
		Spec: appsv1.StatefulSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, RevisionHistoryLimit: &history,
			ServiceName: "site",
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition}}}}
	for _, w := range strings.Fields(words) {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "parallel":
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		case "start":
			s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: atoi(value)}
		case "partition":
			partition = atoi(value)
		case "out":
			out := intstr.Parse(value)
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &out
		case "ondelete":
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		case "plain":
			s.Spec.UpdateStrategy.RollingUpdate = nil
		case "image":
			s.Spec.Template.Spec.Containers[0].Image = value
		case "ready":
			s.Spec.MinReadySeconds = atoi(value)
		case "history":
			history = atoi(value)
		case "current":
			s.Status.CurrentReplicas = atoi(value)
		case "former":
			former = value
		case "going":
			s.DeletionTimestamp = &metav1.Time{Time: epoch}
		default:
			panic(w)
		}
	}
	s.Status.CurrentRevision = remembered(s, "StatefulSet", revisionHash, &s.Spec.Template, former).Name
	return s
}

// remembered is the revision of a controller's template with an image, such as v2, which is its second.
func remembered(by metav1.Object, kind, label string, t *corev1.PodTemplateSpec, image string) *appsv1.ControllerRevision {
	t = t.DeepCopy()
	t.Spec.Containers[0].Image = image
	r := newRevision(by, kind, label, t, nil)
	r.UID, r.Revision, r.CreationTimestamp = types.UID(image), int64(atoi(image[1:])),
		metav1.NewTime(epoch.Add(time.Duration(atoi(image[1:]))*time.Minute))
	return r
}

// podIs puts a pod into a state: "waits", "starts", "ready", "since=" seconds that it has been ready, "failed", "gone" (succeeded),
// "going", "orphan", "unlabelled", "unnamed" as the words say.
func podIs(p *corev1.Pod, words string) *corev1.Pod {
	p.UID, p.Spec.NodeName, p.Status.Phase = types.UID(p.Name), "n", corev1.PodRunning
	ready := func(since time.Time) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(since)}}
	}
	for _, w := range strings.Fields(words) {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "waits":
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
		case "starts":
		case "ready":
			ready(epoch.Add(-time.Hour))
		case "since":
			ready(epoch.Add(-time.Duration(atoi(value)) * time.Second))
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "gone":
			p.Status.Phase = corev1.PodSucceeded
		case "going":
			p.DeletionTimestamp = &metav1.Time{Time: epoch}
		case "orphan":
			p.OwnerReferences = nil
		case "unlabelled":
			delete(p.Labels, "app")
		case "unnamed":
			delete(p.Labels, appsv1.StatefulSetPodNameLabel)
		default:
			panic(w)
		}
	}
	return p
}

// says is a course in words: "record v1, create 0 v1, delete 1".
func (c *Course) says(pod func(*corev1.Pod) string) string {
	var out []string
	words := map[string]string{Create: "record"}
	for _, s := range c.Revisions {
		do := s.Do
		if w := words[do]; w != "" {
			do = w
		}
		out = append(out, fmt.Sprintf("%s %s %d", do, Remembered(s.Revision).Spec.Containers[0].Image, s.Revision.Revision))
	}
	for _, s := range c.Pods {
		text := s.Do + " " + pod(s.Pod)
		if s.Do == Create {
			text += " " + s.Pod.Spec.Containers[0].Image
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestOrder is the meaning of StatefulSets, case by case. pods are "ORDINAL IMAGE state".
func TestOrder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		want  int32
		words string
		had   string // images of revisions, beside today's; "-": today's is not there
		pods  []string
		says  string
	}{
		{name: "new", want: 3, had: "-", says: "record v1 1, create 0 v1"},
		{name: "the second when the first is ready", want: 3, pods: []string{"0 v1 ready"}, says: "create 1 v1"},
		{name: "not before", want: 3, pods: []string{"0 v1 starts"}},
		{name: "nor while it goes", want: 3, pods: []string{"0 v1 ready going"}},
		{name: "nor before it has been ready for long enough", want: 3, words: "ready=10", pods: []string{"0 v1 since=9"}},
		{name: "but then", want: 3, words: "ready=10", pods: []string{"0 v1 since=10"}, says: "create 1 v1"},
		{name: "a gap first", want: 3, pods: []string{"0 v1 ready", "2 v1 ready"}, says: "create 1 v1"},
		{name: "all there", want: 2, pods: []string{"0 v1 ready", "1 v1 ready"}},
		{name: "none", want: 0},
		{name: "from five on", want: 2, words: "start=5", pods: []string{"5 v1 ready"}, says: "create 6 v1"},
		{name: "from five on, and before", want: 2, words: "start=5", pods: []string{"4 v1 ready", "5 v1 ready", "6 v1 ready"}, says: "delete 4"},
		{name: "one has ended", want: 2, pods: []string{"0 v1 failed", "1 v1 ready"}, says: "replace 0"},
		{name: "or is over", want: 2, pods: []string{"0 v1 gone", "1 v1 ready"}, says: "replace 0"},
		{name: "and goes", want: 2, pods: []string{"0 v1 failed going"}},
		{name: "at once", want: 3, words: "parallel", pods: []string{"1 v1 starts"}, says: "create 0 v1, create 2 v1"},
		{name: "at once, one has ended", want: 3, words: "parallel", pods: []string{"1 v1 failed"}, says: "create 0 v1, replace 1, create 2 v1"},

		{name: "smaller: from the end", want: 1, pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready"}, says: "delete 2"},
		{name: "smaller: one after the other", want: 1, pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready going"}},
		{name: "smaller: not while one that stays is ill", want: 1, pods: []string{"0 v1 starts", "1 v1 ready"}},
		{name: "smaller: nor one before", want: 1, pods: []string{"0 v1 ready", "1 v1 starts", "2 v1 ready"}, says: "delete 2"},
		{name: "smaller: unless it is the first that is ill", want: 1, pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 starts"},
			says: "delete 2"},
		{name: "smaller: of two that are ill", want: 1, pods: []string{"0 v1 ready", "1 v1 starts", "2 v1 starts"}},
		{name: "smaller: of two that have ended", want: 1, pods: []string{"0 v1 ready", "1 v1 failed", "2 v1 failed"}, says: "delete 2"},
		{name: "smaller: one before has ended", want: 1, pods: []string{"0 v1 ready", "1 v1 failed", "2 v1 starts"}, says: "delete 2"},
		{name: "smaller: at once", want: 1, words: "parallel", pods: []string{"0 v1 starts", "1 v1 ready going", "2 v1 starts"},
			says: "delete 2"},

		{name: "another template: the last", want: 3, words: "image=v2", pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready"},
			says: "delete 2"},
		{name: "another template: unknown", want: 1, words: "image=v2", had: "- v1", pods: []string{"0 v1 ready"}, says: "record v2 2, delete 0"},
		{name: "another template: one at a time", want: 3, words: "image=v2", pods: []string{"0 v1 ready", "1 v1 ready", "2 v2 starts"}},
		{name: "another template: then the next", want: 3, words: "image=v2", pods: []string{"0 v1 ready", "1 v1 ready", "2 v2 ready"},
			says: "delete 1"},
		{name: "another template: made again", want: 3, words: "image=v2", pods: []string{"0 v1 ready", "1 v1 ready"}, says: "create 2 v2"},
		{name: "another template: one before is ill", want: 2, words: "image=v2", pods: []string{"0 v1 starts", "1 v1 ready"}},
		{name: "another template: two at a time", want: 4, words: "image=v2 out=2",
			pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready", "3 v1 ready"}, says: "delete 3, delete 2"},
		{name: "another template: per cent, at least one", want: 4, words: "image=v2 out=10%",
			pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready", "3 v1 ready"}, says: "delete 3"},
		{name: "another template: per cent, rounded down", want: 4, words: "image=v2 out=70%",
			pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready", "3 v1 ready"}, says: "delete 3, delete 2"},
		{name: "another template and smaller: smaller first", want: 1, words: "image=v2", pods: []string{"0 v1 ready", "1 v1 ready"},
			says: "delete 1"},
		{name: "another template and larger: larger first", want: 2, words: "image=v2", pods: []string{"0 v1 ready"}, says: "create 1 v2"},
		{name: "another template, in parts", want: 3, words: "image=v2 partition=2", pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready"},
			says: "delete 2"},
		{name: "another template, in parts, so far", want: 3, words: "image=v2 partition=2",
			pods: []string{"0 v1 ready", "1 v1 ready", "2 v2 ready"}},
		{name: "another template, in parts, from five on", want: 3, words: "image=v2 partition=2 start=5",
			pods: []string{"5 v1 ready", "6 v1 ready", "7 v1 ready"}, says: "delete 7"},
		{name: "made again as it was before the part", want: 3, words: "image=v2 partition=2", pods: []string{"1 v1 ready", "2 v2 ready"},
			says: "create 0 v1"},
		{name: "made again after the part", want: 3, words: "image=v2 partition=2", pods: []string{"0 v1 ready", "1 v1 ready"},
			says: "create 2 v2"},
		{name: "made again without a part: as far as it has come", want: 3, words: "image=v2 plain current=2",
			pods: []string{"0 v1 ready", "2 v2 ready"}, says: "create 1 v1"},
		{name: "made again without a part: beyond", want: 3, words: "image=v2 plain current=2", pods: []string{"0 v1 ready", "1 v1 ready"},
			says: "create 2 v2"},
		{name: "nobody asked", want: 2, words: "image=v2 ondelete", pods: []string{"0 v1 ready", "1 v1 ready"}},
		{name: "nobody asked, made again", want: 2, words: "image=v2 ondelete", pods: []string{"0 v1 ready"}, says: "create 1 v2"},
		{name: "another template, at once", want: 3, words: "image=v2 parallel", pods: []string{"0 v1 ready", "1 v1 ready", "2 v1 ready"},
			says: "delete 2"},
		{name: "another template, at once: who serves nobody", want: 3, words: "image=v2 parallel",
			pods: []string{"0 v1 starts", "1 v1 ready", "2 v1 starts"}, says: "delete 2, delete 0"},
		{name: "another template, at once, two", want: 4, words: "image=v2 parallel out=2",
			pods: []string{"0 v1 starts", "1 v1 ready", "2 v1 ready", "3 v2 ready"}, says: "delete 0, delete 2"},
		{name: "another template, at once, in parts", want: 3, words: "image=v2 parallel partition=1",
			pods: []string{"0 v1 starts", "1 v1 starts", "2 v2 ready"}, says: "delete 1"},
		{name: "back to a former template", want: 1, words: "image=v1 former=v2", had: "v2", pods: []string{"0 v2 ready"},
			says: "update v1 3, delete 0"},

		{name: "somebody's", want: 1, pods: []string{"0 v1 ready orphan"}, says: "adopt 0"},
		{name: "no number of its", want: 0, pods: []string{"x v1 ready orphan"}},
		{name: "not what it looks for any more", want: 1, pods: []string{"0 v1 ready unlabelled"}, says: "release 0"},
		{name: "adopted, and not known by its name yet", want: 1, pods: []string{"0 v1 ready unnamed"}, says: "update 0"},
		{name: "it goes", want: 3, words: "image=v2 going", pods: []string{"0 v1 ready", "1 v1 ready orphan"}},

		{name: "more templates than are kept", want: 1, words: "image=v5 former=v5", had: "v1 v2 v3 v4", pods: []string{"0 v5 ready"},
			says: "delete v1 1, delete v2 2"},
		{name: "a pod still has one", want: 2, words: "image=v5 former=v5 ondelete history=1", had: "v1 v2 v3 v4",
			pods: []string{"0 v1 ready", "1 v5 ready"}, says: "delete v2 2, delete v3 3"},
		{name: "all are kept", want: 1, words: "image=v5 history=-1", had: "v1 v2 v3 v4", pods: []string{"0 v5 ready"}},
	} {
		set := statefulSet(tt.want, tt.words)
		had := strings.Fields(tt.had)
		if !slices.Contains(had, "-") {
			had = append(had, "v1", set.Spec.Template.Spec.Containers[0].Image)
		}
		slices.Sort(had)
		var revisions []*appsv1.ControllerRevision
		for _, image := range slices.Compact(had) {
			if image != "-" {
				revisions = append(revisions, remembered(set, "StatefulSet", revisionHash, &set.Spec.Template, image))
			}
		}
		var pods []*corev1.Pod
		for _, text := range tt.pods {
			f := strings.SplitN(text, " ", 3)
			o := &order{set: set.DeepCopy(), update: remembered(set, "StatefulSet", revisionHash, &set.Spec.Template, f[1]).Name}
			o.set.Spec.Template.Spec.Containers[0].Image = f[1]
			o.current = o.update
			p := o.pod(0)
			p.Name = "web-" + f[0]
			p.Labels[appsv1.StatefulSetPodNameLabel] = p.Name
			pods = append(pods, podIs(p, f[2]))
		}
		before := fmt.Sprint(set, revisions, pods)
		course, _ := Order(set, revisions, pods, epoch)
		if got := course.says(func(p *corev1.Pod) string { return strings.TrimPrefix(p.Name, "web-") }); got != tt.says {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.says)
		}
		if fmt.Sprint(set, revisions, pods) != before {
			t.Errorf("%s: what was looked at has changed", tt.name)
		}
	}
}

// TestOrdinals: a pod is known by its name, and gets what makes it the one of its number.
func TestOrdinals(t *testing.T) {
	set := statefulSet(3, "start=7")
	for name, want := range map[string]int{"web-0": 0, "web-12": 12, "web-2147483647": 2147483647, "web-2147483648": -1, "web-01": -1,
		"web-": -1, "web": -1,
		"web--1": -1, "web-+1": -1, "web-1-2": -1, "other-1": -1, "web-a": -1} {
		if got := Ordinal(set, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != want {
			t.Errorf("%s is number %d, want %d", name, got, want)
		}
	}
	set.Spec.Template.Spec.Hostname, set.Spec.Template.Spec.Subdomain = "other", "other"
	course, _ := Order(set, nil, nil, epoch)
	p, r := course.Pods[0].Pod, course.Revisions[0].Revision
	want := map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: "web-7", appsv1.PodIndexLabel: "7",
		appsv1.StatefulSetRevisionLabel: r.Name}
	if p.Name != "web-7" || p.Spec.Hostname != "web-7" || p.Spec.Subdomain != "site" || fmt.Sprint(p.Labels) != fmt.Sprint(want) ||
		!metav1.IsControlledBy(p, set) || len(set.Spec.Template.Labels) != 1 {
		t.Errorf("%+v", p)
	}
}

// TestPartitionIsBounded: the highest partition keeps all pods as they are, on boards of 32 bits too.
func TestPartitionIsBounded(t *testing.T) {
	o := order{set: statefulSet(3, "start=2 partition=2147483647"), start: 2}
	if n := o.partition(); n != math.MaxInt32 {
		t.Errorf("it begins at ordinal %d", n)
	}
}

// TestOrderIsBounded: however many pods somebody asks for, one look makes no more than may wait for a board.
func TestOrderIsBounded(t *testing.T) {
	course, _ := Order(statefulSet(2147483647, "parallel"), nil, nil, epoch)
	if n := len(course.Pods); n != MostWaiting {
		t.Errorf("%d pods at once", n)
	}
	set := statefulSet(2147483647, "parallel image=v2")
	course, _ = Order(set, nil, []*corev1.Pod{podIs(course.Pods[3].Pod, "waits")}, epoch)
	if n := len(course.Pods); n != MostWaiting { // one that waits goes, since it is old
		t.Errorf("%d pods at once beside one", n)
	}
}

// TestOrderStatus follows what kubectl reads through a rollout.
func TestOrderStatus(t *testing.T) {
	set := statefulSet(2, "ready=10")
	set.Status = appsv1.StatefulSetStatus{}
	var revisions []*appsv1.ControllerRevision
	var pods []*corev1.Pod
	look := func(want string) {
		t.Helper()
		course, s := Order(set, revisions, pods, epoch)
		for _, step := range course.Revisions {
			revisions = append(revisions, step.Revision)
		}
		image := func(name string) string {
			for _, r := range revisions {
				if r.Name == name {
					return Remembered(r).Spec.Containers[0].Image
				}
			}
			return "?" + name
		}
		set.Status = s
		got := fmt.Sprintf("%d: %d ready, %d available, %d %s, %d %s", s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas,
			image(s.CurrentRevision),
			s.UpdatedReplicas, image(s.UpdateRevision))
		if got != want || s.ObservedGeneration != 3 {
			t.Errorf("%s, want %s", got, want)
		}
	}
	made := func(words string) *corev1.Pod {
		course, _ := Order(set, revisions, pods, epoch)
		if len(course.Pods) != 1 || course.Pods[0].Do != Create {
			t.Fatalf("%+v", course.Pods)
		}
		return podIs(course.Pods[0].Pod, words)
	}
	look("0: 0 ready, 0 available, 0 v1, 0 v1")
	pods = append(pods, made("ready"))
	look("1: 1 ready, 1 available, 1 v1, 1 v1")
	pods = append(pods, made("since=3"))
	look("2: 2 ready, 1 available, 2 v1, 2 v1")
	if course, _ := Order(set, revisions, pods, epoch); course.Again != 7*time.Second {
		t.Errorf("looks again in %v", course.Again)
	}
	podIs(pods[1], "ready")
	look("2: 2 ready, 2 available, 2 v1, 2 v1")
	set.Spec.Template.Spec.Containers[0].Image = "v2"
	look("2: 2 ready, 2 available, 1 v1, 0 v2") // one is to go
	podIs(pods[1], "going ready")
	look("2: 2 ready, 2 available, 1 v1, 0 v2")
	pods = pods[:1]
	look("1: 1 ready, 1 available, 1 v1, 0 v2")
	pods = append(pods, made("ready"))
	look("2: 2 ready, 2 available, 0 v1, 1 v2")
	pods = pods[1:]
	pods = append(pods, made("ready"))
	look("2: 2 ready, 2 available, 2 v2, 2 v2")
}
