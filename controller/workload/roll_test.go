package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var epoch = time.Unix(1e9, 0)

// deployment is one of n pods of image v1: "recreate", "surge=", "out=", "image=", "paused", "history=", "revision=" as the words say.
func deployment(n int32, words string) *appsv1.Deployment {
	labels, deadline, history := map[string]string{"app": "web"}, int32(600), int32(2)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", Generation: 3},
		Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, ProgressDeadlineSeconds: &deadline,
			RevisionHistoryLimit: &history,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}}}}
	surge, out := intstr.FromString("25%"), intstr.FromString("25%")
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &out}
	for _, w := range strings.Fields(words) {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "recreate":
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		case "surge":
			surge = intstr.Parse(value)
		case "out":
			out = intstr.Parse(value)
		case "image":
			d.Spec.Template.Spec.Containers[0].Image = value
		case "paused":
			d.Spec.Paused = true
		case "going":
			d.DeletionTimestamp = &metav1.Time{Time: epoch}
		case "history":
			history = atoi(value)
		default:
			panic(w)
		}
	}
	return d
}

func atoi(s string) int32 {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return int32(n)
}

// setOf is a set of a Deployment with an image: "size/available", or as many as are available where one number is given. Further
// words: of=SIZE-MAX as it was when the set got its size, revision=, orphan, unlabelled, now=PODS that there still are.
func setOf(d *appsv1.Deployment, image, words string) *appsv1.ReplicaSet {
	made := d.DeepCopy()
	made.Spec.Template.Spec.Containers[0].Image = image
	rs := newSet(made)
	rs.Name, rs.UID = "web-"+image, types.UID("set-"+image)
	rs.CreationTimestamp = metav1.NewTime(epoch.Add(time.Duration(atoi(image[1:])) * time.Minute))
	rs.Annotations = map[string]string{Revision: image[1:]}
	for i, w := range strings.Fields(words) {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case i == 0:
			size, available, two := strings.Cut(w, "/")
			n := atoi(size)
			rs.Spec.Replicas, rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = &n, n, n, n
			if two {
				rs.Status.AvailableReplicas, rs.Status.ReadyReplicas = atoi(available), atoi(available)
			}
		case key == "of":
			rs.Annotations[DesiredReplicas], rs.Annotations[MaxReplicas], _ = strings.Cut(value, "-")
		case key == "revision":
			rs.Annotations[Revision] = value
		case key == "now":
			rs.Status.Replicas = atoi(value)
		case key == "orphan":
			rs.OwnerReferences = nil
		case key == "unlabelled":
			rs.Labels = map[string]string{"app": "other"}
		default:
			panic(w)
		}
	}
	return rs
}

// told is a plan in words.
func told(p Plan) string {
	var out []string
	for _, s := range p.Steps {
		name := s.Set.Spec.Template.Spec.Containers[0].Image
		switch s.Do {
		case Create, Update:
			out = append(out, fmt.Sprintf("%s %s %d", s.Do, name, *s.Set.Spec.Replicas))
		default:
			out = append(out, s.Do+" "+name)
		}
	}
	return strings.Join(out, ", ")
}

func TestRoll(t *testing.T) {
	for _, tt := range []struct {
		name  string
		want  int32
		words string
		sets  []string // image: words
		pods  []string // image: phase, "going" too
		says  string
	}{
		{name: "the first", want: 3, says: "create v1 3"},
		{name: "none wanted", want: 0, says: "create v1 0"},
		{name: "at rest", want: 3, sets: []string{"v1: 3 of=3-4"}},
		{name: "of another size", want: 5, sets: []string{"v1: 3 of=3-4"}, says: "update v1 5"},
		{name: "somebody sized its set by hand", want: 5, sets: []string{"v1: 5 of=3-4"}, says: "update v1 5"},
		{name: "surge is rounded up, and absence down", want: 10, words: "image=v2", sets: []string{"v1: 10 of=10-13"},
			says: "create v2 3, update v1 8"},
		{name: "one, without a gap", want: 1, words: "image=v2", sets: []string{"v1: 1 of=1-2"}, says: "create v2 1"},
		{name: "one, and the new one is there", want: 1, words: "image=v2", sets: []string{"v1: 1 of=1-2", "v2: 1 of=1-2"}, says: "update v1 0"},
		{name: "nothing of both is one absent", want: 3, words: "image=v2 surge=0 out=1%", sets: []string{"v1: 3 of=3-3"},
			says: "create v2 0, update v1 2"},
		{name: "numbers", want: 10, words: "image=v2 surge=3 out=2", sets: []string{"v1: 10 of=10-13"}, says: "create v2 3, update v1 8"},
		{name: "half way", want: 10, words: "image=v2 surge=3 out=2", sets: []string{"v1: 8 of=10-13", "v2: 5/2 of=10-13"}, says: "update v1 6"},
		{name: "the new ones do not come up", want: 10, words: "image=v2 surge=3 out=2", sets: []string{"v1: 8/7 of=10-13", "v2: 5/0 of=10-13"}},
		{name: "back from what does not come up", want: 10, words: "surge=3 out=2", sets: []string{"v1: 8/7 of=10-13", "v2: 5/0 of=10-13"},
			says: "update v1 8, update v2 1"},
		{name: "on from what does not come up", want: 10, words: "image=v3 surge=3 out=2", sets: []string{"v1: 8 of=10-13", "v2: 5/0 of=10-13"},
			says: "create v3 0, update v2 0"},
		{name: "counts from before a change count for what is left", want: 10, words: "image=v2 surge=3 out=2",
			sets: []string{"v1: 8/10 of=10-13 now=10", "v2: 5/0 of=10-13"}},
		{name: "more absent than there are", want: 1, words: "image=v2 surge=0 out=3", sets: []string{"v1: 1 of=1-1"},
			says: "create v2 0, update v1 0"},

		{name: "grown in a rollout: each gets its part", want: 20, words: "image=v2 surge=3 out=2",
			sets: []string{"v1: 8 of=10-13", "v2: 5/2 of=10-13"},
			says: "update v2 9, update v1 14"},
		{name: "shrunk in a rollout", want: 5, words: "image=v2 surge=2 out=1", sets: []string{"v1: 8 of=10-13", "v2: 5/2 of=10-13"},
			says: "update v2 3, update v1 4"},
		{name: "to nothing in a rollout", want: 0, words: "image=v2", sets: []string{"v1: 8 of=10-13", "v2: 5/2 of=10-13"},
			says: "update v2 0, update v1 0"},
		{name: "the size was noted of one set only", want: 20, words: "image=v2 surge=3 out=2",
			sets: []string{"v1: 14/8 of=20-23", "v2: 5/2 of=10-13"},
			says: "update v2 9"},

		{name: "paused: nothing new", want: 3, words: "image=v2 paused", sets: []string{"v1: 3 of=3-4"}},
		{name: "paused, and of another size", want: 6, words: "image=v2 paused", sets: []string{"v1: 3 of=3-4"}, says: "update v1 6"},
		{name: "paused in a rollout, and of another size", want: 20, words: "image=v2 paused surge=3 out=2",
			sets: []string{"v1: 8 of=10-13", "v2: 5/2 of=10-13"},
			says: "update v2 9, update v1 14"},
		{name: "paused with nothing", want: 3, words: "paused"},

		{name: "recreated: first the old ones go", want: 3, words: "image=v2 recreate", sets: []string{"v1: 3 of=3-3"}, says: "update v1 0"},
		{name: "recreated: until they are counted out", want: 3, words: "image=v2 recreate", sets: []string{"v1: 0 now=1"}},
		{name: "recreated: until the last has ended", want: 3, words: "image=v2 recreate", sets: []string{"v1: 0"},
			pods: []string{"v1: Running going"}},
		{name: "recreated: then the new ones come", want: 3, words: "image=v2 recreate", sets: []string{"v1: 0"},
			pods: []string{"v1: Failed", "v3: Running"}, says: "create v2 3"},
		{name: "recreated: and are not waited for", want: 3, words: "image=v2 recreate", sets: []string{"v1: 0", "v2: 1 of=3-3"},
			pods: []string{"v2: Running"}, says: "update v2 3"},
		{name: "recreated, of another size", want: 5, words: "recreate", sets: []string{"v1: 3 of=3-3"}, says: "update v1 5"},

		{name: "somebody's", want: 1, sets: []string{"v1: 1 of=1-2 orphan"}, says: "adopt v1"},
		{name: "not what it looks for any more", want: 1, sets: []string{"v1: 1 of=1-2 unlabelled"}, says: "release v1"},
		{name: "nobody's, and not what it looks for", want: 1, sets: []string{"v1: 1 of=1-2", "v2: 1 orphan unlabelled"}},
		{name: "it goes", want: 1, words: "going image=v2", sets: []string{"v1: 3 of=1-2", "v3: 1 orphan"}},

		{name: "more sets than are kept", want: 1, words: "image=v5", sets: []string{"v1: 0", "v2: 0", "v3: 0", "v4: 0", "v5: 1 of=1-2"},
			says: "delete v1, delete v2"},
		{name: "one of them still has a pod", want: 1, words: "image=v5",
			sets: []string{"v1: 0", "v2: 0", "v3: 0", "v4: 0 now=1", "v5: 1 of=1-2"}},
		{name: "oldest is who served longest ago", want: 1, words: "image=v5 history=1",
			sets: []string{"v1: 0 revision=4", "v2: 0", "v5: 1 of=1-2"}, says: "delete v2"},
		{name: "back to the first", want: 1, sets: []string{"v1: 0", "v2: 1 of=1-2"}, says: "update v1 1"},
	} {
		d := deployment(tt.want, tt.words)
		var sets []*appsv1.ReplicaSet
		for _, s := range tt.sets {
			image, words, _ := strings.Cut(s, ": ")
			sets = append(sets, setOf(d, image, words))
		}
		d.Annotations = map[string]string{Revision: "9"}
		before := fmt.Sprint(sets)
		var pods []*corev1.Pod
		for _, s := range tt.pods {
			image, words, _ := strings.Cut(s, ": ")
			phase, going, _ := strings.Cut(words, " ")
			yes := true
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: types.UID("set-" + image),
				Controller: &yes}}},
				Status: corev1.PodStatus{Phase: corev1.PodPhase(phase)}}
			if going != "" {
				p.DeletionTimestamp = &metav1.Time{Time: epoch}
			}
			pods = append(pods, p)
		}
		p := Roll(d, sets, func() []*corev1.Pod { return pods }, epoch)
		if got := told(p); got != tt.says {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.says)
		}
		if fmt.Sprint(sets) != before {
			t.Errorf("%s: what was looked at has changed", tt.name)
		}
	}
}

// TestRevisions: each rollout is one more, also one that goes back, which keeps what it was.
func TestRevisions(t *testing.T) {
	d := deployment(1, "")
	d.Annotations = map[string]string{"who": "me", corev1.LastAppliedConfigAnnotation: "{}", Revision: "2"}
	p := Roll(d, []*appsv1.ReplicaSet{setOf(d, "v1", "0"), setOf(d, "v2", "1 of=1-2")}, nil, epoch)
	rs := p.Steps[0].Set
	want := map[string]string{"who": "me", Revision: "3", revisionHistory: "1", DesiredReplicas: "1", MaxReplicas: "2"}
	if fmt.Sprint(rs.Annotations) != fmt.Sprint(want) || p.Revision != "3" {
		t.Errorf("the set has %v, the Deployment %s", rs.Annotations, p.Revision)
	}
	rs = setOf(d, "v1", "0")
	rs.Annotations[revisionHistory] = strings.Repeat("7,", longestHistory/2) + "8"
	p = Roll(d, []*appsv1.ReplicaSet{rs, setOf(d, "v2", "1 of=1-2")}, nil, epoch)
	if got := p.Steps[0].Set.Annotations[revisionHistory]; len(got) > longestHistory || !strings.HasSuffix(got, ",7,8,1") {
		t.Errorf("%d bytes of history", len(got))
	}
}

// TestNewSet: the set of a template has one name, whoever makes it, and another after a collision.
func TestNewSet(t *testing.T) {
	d := deployment(2, "")
	rs := Roll(d, nil, nil, epoch).Steps[0].Set
	hash := rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if rs.Name != "web-"+hash || len(hash) == 0 || rs.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] != hash ||
		rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash || !Made(d, rs) || rs.Labels["app"] != "web" {
		t.Errorf("%+v", rs)
	}
	if again := Hash(&deployment(7, "paused").Spec.Template, nil); again != hash {
		t.Errorf("%s and %s for one template", hash, again)
	}
	if other := Hash(&deployment(2, "image=v2").Spec.Template, nil); other == hash {
		t.Errorf("%s for two templates", hash)
	}
	p := Plan{}
	for want := range int32(3) {
		p.Collided(d)
		d.Status = p.Status
		if next := newSet(d).Name; *d.Status.CollisionCount != want+1 || next == rs.Name {
			t.Errorf("after %d collisions: %s", *d.Status.CollisionCount, next)
		}
	}
	d.UID = "another"
	if Made(d, rs) {
		t.Error("somebody else's set is one's own")
	}
}

// TestProgress follows what kubectl reads through a rollout.
func TestProgress(t *testing.T) {
	d, now := deployment(2, "surge=1 out=0"), epoch
	var sets []*appsv1.ReplicaSet
	look := func(want, available string) {
		t.Helper()
		p := Roll(d, sets, nil, now)
		for _, s := range p.Steps {
			switch s.Do {
			case Create:
				s.Set.UID = types.UID(s.Set.Name)
				s.Set.CreationTimestamp = metav1.NewTime(now)
				sets = append(sets, s.Set)
			case Update:
				sets[slices.IndexFunc(sets, func(rs *appsv1.ReplicaSet) bool { return rs.UID == s.Set.UID })] = s.Set
			}
		}
		p.Change(d)
		c, a := condition(&d.Status, appsv1.DeploymentProgressing), condition(&d.Status, appsv1.DeploymentAvailable)
		if got := fmt.Sprintf("%s %s", c.Status, c.Reason); got != want || string(a.Status) != available {
			t.Errorf("%v: %s (%s), available %s; want %s, available %s", now.Sub(epoch), got, c.Message, a.Status, want, available)
		}
		if p.Again > 0 && c.Reason == TimedOut {
			t.Errorf("looks again in %v after the deadline", p.Again)
		}
	}
	pods := func(rs *appsv1.ReplicaSet, n, available int32) {
		rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = n, available, available
	}
	look("True NewReplicaSetCreated", "False")
	pods(sets[0], 2, 0)
	look("True ReplicaSetUpdated", "False")
	now = now.Add(5 * time.Minute)
	pods(sets[0], 2, 1)
	look("True ReplicaSetUpdated", "False")
	now = now.Add(599 * time.Second)
	look("True ReplicaSetUpdated", "False")
	now = now.Add(time.Second)
	look("False ProgressDeadlineExceeded", "False")
	d.Spec.Paused = true
	look("False ProgressDeadlineExceeded", "False")
	d.Spec.Paused = false
	pods(sets[0], 2, 2)
	look("True NewReplicaSetAvailable", "True")
	now = now.Add(time.Hour)
	pods(sets[0], 2, 1) // no rollout
	look("True NewReplicaSetAvailable", "False")
	pods(sets[0], 2, 2)
	look("True NewReplicaSetAvailable", "True")

	d.Spec.Template.Spec.Containers[0].Image = "v2"
	look("True NewReplicaSetCreated", "True")
	d.Spec.Paused = true
	look("Unknown DeploymentPaused", "True")
	now = now.Add(time.Hour)
	d.Spec.Paused = false
	look("Unknown DeploymentResumed", "True")
	now = now.Add(599 * time.Second)
	look("Unknown DeploymentResumed", "True")
	pods(sets[1], 1, 0)
	look("True ReplicaSetUpdated", "True")
	d.Spec.Template.Spec.Containers[0].Image = "v1"
	look("True ReplicaSetUpdated", "True")
	pods(sets[1], 0, 0)
	look("True NewReplicaSetAvailable", "True")
	if d.Annotations[Revision] != "3" {
		t.Errorf("revision %s", d.Annotations[Revision])
	}
}

// TestFailures: what keeps a set from having its pods, or the Deployment from having its set, is said of the Deployment.
func TestFailures(t *testing.T) {
	d := deployment(1, "")
	sets := []*appsv1.ReplicaSet{setOf(d, "v1", "1 of=1-2")}
	look := func() *Plan {
		p := Roll(d, sets, nil, epoch)
		return &p
	}
	sets[0].Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		Reason: "FailedCreate", Message: "no room"}}
	look().Change(d)
	if c := condition(&d.Status, appsv1.DeploymentReplicaFailure); c == nil || c.Reason != "FailedCreate" || c.Message != "no room" {
		t.Errorf("failure: %+v", c)
	}
	sets[0].Status.Conditions = nil
	look().Change(d)
	if c := condition(&d.Status, appsv1.DeploymentReplicaFailure); c != nil {
		t.Errorf("mended: %+v", c)
	}
	d.Spec.Template.Spec.Containers[0].Image = "v2"
	p := look()
	p.CannotCreate(d, "it cannot", epoch)
	p.Change(d)
	if c := condition(&d.Status, appsv1.DeploymentProgressing); c.Status != corev1.ConditionFalse || c.Reason != CreateError ||
		c.Message != "it cannot" || d.Annotations[Revision] != "1" {
		t.Errorf("not made: %+v, revision %s", c, d.Annotations[Revision])
	}
}
