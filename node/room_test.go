package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/scheduling"
	"ledge/node/podspec"
)

func asking(name, cpu, memory string, edit ...func(*corev1.Pod)) *corev1.Pod {
	requests := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	p := aPod(name, append([]func(*corev1.Pod){requests}, edit...)...)
	p.Status.QOSClass = api.QOSClass(p)
	return p
}

func prio(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

// TestRoom: the reasons and words of a kubelet's predicates (N-7.5).
func TestRoom(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd", corev1.LabelOSStable: "linux"}}}
	node.Spec.Taints = []corev1.Taint{{Key: "quiet", Effect: corev1.TaintEffectNoSchedule}, {Key: "out", Effect: corev1.TaintEffectNoExecute}}
	tolerant := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "out", Operator: corev1.TolerationOpExists}}
	}
	node.Status.Allocatable = corev1.ResourceList{"example.com/radio": resource.MustParse("2")}
	extended := func(name corev1.ResourceName, n string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(n) }
	}
	onPort := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	r := room{node: node, pods: []*corev1.Pod{asking("a", "1500m", "1Gi", onPort)}, allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("2"), "memory": resource.MustParse("2Gi"), "pods": resource.MustParse("3"),
		"ephemeral-storage": resource.MustParse("1Gi")}}
	for _, tc := range []struct {
		name, reason, message string
		pod                   *corev1.Pod
	}{
		{"fits", "", "", asking("p", "500m", "1Gi", tolerant)},
		{"cpu", "OutOfcpu", "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
			asking("p", "501m", "2Gi", tolerant)},
		{"memory", "OutOfmemory", "Node didn't have enough resource: memory, requested: 1073741825, used: 1073741824, capacity: 2147483648",
			asking("p", "1m", "1073741825", tolerant)},
		{"storage", "OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage, requested: 2147483648, used: 0, capacity: 1073741824",
			asking("p", "1m", "1", tolerant, func(p *corev1.Pod) {
				p.Spec.Overhead = corev1.ResourceList{"ephemeral-storage": resource.MustParse("2Gi")}
			})},
		{"extended", "OutOfexample.com/radio", "Node didn't have enough resource: example.com/radio, requested: 3, used: 0, capacity: 2",
			asking("p", "1m", "1", tolerant, extended("example.com/radio", "3"))},
		{"extended and there", "", "", asking("p", "1m", "1", tolerant, extended("example.com/radio", "2"))},
		{"extended and not there any more", "", "", asking("p", "1m", "1", tolerant, extended("example.com/gpu", "1"))},
		{"selector", "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
			asking("p", "1m", "1", tolerant, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} })},
		{"system", "PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
			asking("p", "1m", "1", tolerant, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"} })},
		{"name", "NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name",
			asking("p", "1m", "1", tolerant, func(p *corev1.Pod) { p.Spec.NodeName = "other" })},
		{"port", "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
			asking("p", "1m", "1", tolerant, onPort)},
		{"taint", "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate", asking("p", "1m", "1")},
		{"mirror", "", "", asking("p", "1m", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })},
	} {
		why, _ := r.refuses(tc.pod)
		if why == nil {
			why = &refusal{}
		}
		if why.reason != tc.reason || why.message != tc.message {
			t.Errorf("%s: %q %q", tc.name, why.reason, why.message)
		}
	}
	r.pods = append(r.pods, asking("b", "0", "0"), asking("c", "0", "0"))
	if why, _ := r.refuses(asking("p", "1m", "1", tolerant)); why == nil || why.reason != "OutOfpods" {
		t.Errorf("too many pods: %+v", why)
	}
	if why, _ := (room{}).refuses(asking("p", "1000", "1Ti")); why != nil {
		t.Errorf("nothing is known of the board: %+v", why)
	}
}

// TestVictims: a critical pod that lacks only resources makes room, with as little harm as can be (N-7.6).
func TestVictims(t *testing.T) {
	limits := func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests }
	guaranteed := asking("guaranteed", "1", "1Gi")
	limits(guaranteed)
	guaranteed.Status.QOSClass = corev1.PodQOSGuaranteed
	small, large := asking("small", "500m", "100Mi"), asking("large", "1", "500Mi")
	crit := asking("critical", "2", "100Mi", prio(podspec.SystemCritical))
	all := []*corev1.Pod{guaranteed, small, large, crit}
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		lack map[corev1.ResourceName]int64
		want string
	}{
		{"a little", asking("new", "1", "1", prio(podspec.SystemCritical)), map[corev1.ResourceName]int64{"cpu": 100}, "small"},
		{"the large one will do", asking("new", "1", "1", prio(podspec.SystemCritical)), map[corev1.ResourceName]int64{"cpu": 900}, "large"},
		{"two", asking("new", "2", "1", prio(podspec.SystemCritical)), map[corev1.ResourceName]int64{"cpu": 1300}, "large small"},
		{"even the guaranteed", asking("new", "2", "1", prio(podspec.SystemCritical)), map[corev1.ResourceName]int64{"cpu": 2200},
			"guaranteed large small"},
		{"never a critical one", asking("new", "9", "1", prio(podspec.SystemCritical)), map[corev1.ResourceName]int64{"cpu": 4000}, ""},
		{"nobody for an ordinary pod", asking("new", "1", "1", prio(1000)), map[corev1.ResourceName]int64{"cpu": 100}, ""},
		{"nobody for what is not resources", asking("new", "1", "1", prio(podspec.SystemCritical)), nil, ""},
	} {
		var got []string
		for _, p := range (room{pods: all}).victims(tc.pod, tc.lack) {
			got = append(got, p.Name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
		}
	}
}

// TestBoundByHand: pods that nobody scheduled are taken oldest first, and turned away with the reason for ever (N-7.4,
// N-7.7); what another control plane let through and ledge does not honour is refused too.
func TestBoundByHand(t *testing.T) {
	with(t, behaviours{"c": {TermCode: 143}}, func(r *rig) {
		for _, name := range []string{"first", "second", "third"} {
			r.create(asking(name, "1500m", "10Mi"))
			r.pass(time.Second)
		}
		r.begin() // all three are there when the board looks: it has 4 CPUs
		r.pass(5 * time.Second)
		for name, want := range map[string]corev1.PodPhase{"first": corev1.PodRunning, "second": corev1.PodRunning, "third": corev1.PodFailed} {
			if p := r.get(name); p.Status.Phase != want {
				t.Errorf("%s: %s %s %s", name, p.Status.Phase, p.Status.Reason, p.Status.Message)
			}
		}
		third := r.get("third").Status
		if third.Reason != "OutOfcpu" || third.Message != "Pod was rejected: Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000" {
			t.Errorf("%s %s", third.Reason, third.Message)
		}
		r.delete("first", nil)
		r.pass(time.Minute)
		if p := r.get("third"); p.Status.Phase != corev1.PodFailed {
			t.Errorf("tried again: %+v", p.Status)
		}
		r.create(asking("later", "1500m", "10Mi"))
		r.pass(time.Second)
		if p := r.get("later"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("there was room: %+v", p.Status)
		}
		r.begin() // a new brain does not ask again
		r.pass(5 * time.Second)
		r.want("running", r.running(), "c.0", "c.0")
		r.want("events", r.events.of("OutOfcpu"),
			"Warning OutOfcpu third: Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000")
	})
}

// create makes a pod and does not wait.
func (r *rig) create(p *corev1.Pod) {
	r.Helper()
	p.Status = corev1.PodStatus{}
	if _, err := api.Create(r.Context(), r.Client, api.Pods, p); err != nil {
		r.Fatal(err)
	}
}

// TestCriticalMakesRoom: the pod waits until those that make room have gone, and then runs (N-7.6).
func TestCriticalMakesRoom(t *testing.T) {
	with(t, behaviours{"c": {TermTakes: 3 * time.Second, TermCode: 143}}, func(r *rig) {
		r.begin()
		r.create(asking("ordinary", "3", "10Mi"))
		r.pass(time.Second)
		r.create(asking("critical", "2", "10Mi", func(p *corev1.Pod) {
			p.Namespace, p.Spec.PriorityClassName = "kube-system", scheduling.SystemNodeCritical
		}))
		r.pass(2 * time.Second)
		critical := func() corev1.PodStatus {
			p, err := api.Get[*corev1.Pod](r.Context(), r.Client, api.Pods, "kube-system", "critical")
			if err != nil {
				t.Fatal(err)
			}
			return p.Status
		}
		if s := critical(); s.StartTime != nil || len(r.running()) != 1 {
			t.Errorf("it did not wait: %+v", s)
		}
		r.pass(3 * time.Second)
		if s := critical(); s.Phase != corev1.PodRunning {
			t.Errorf("%+v", s)
		}
		victim := r.get("ordinary").Status
		if victim.Phase != corev1.PodFailed || victim.Reason != "Preempting" || victim.Message != "Preempted in order to admit critical pod" {
			t.Errorf("%+v", victim)
		}
		i := slices.IndexFunc(victim.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
		if i < 0 || victim.Conditions[i].Message != "Pod was preempted by Kubelet to accommodate a critical pod." ||
			victim.Conditions[i].Reason != "TerminationByKubelet" {
			t.Errorf("%+v", victim.Conditions)
		}
		r.want("events", r.events.of("Preempting"), "Warning Preempting ordinary: Preempted in order to admit critical pod")
	})
}

// TestUnsupportedFromElsewhere: a pod that another API let through is refused rather than half obeyed (architecture: Promises).
func TestUnsupportedFromElsewhere(t *testing.T) {
	p := aPod("p")
	p.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	if len(api.Unsupported(p)) == 0 {
		t.Skip("all of it is supported")
	}
	a, err := New(idle(t.TempDir(), t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(a, p)
	a.roster.add(w)
	in, _ := w.input()
	in.Pod = p
	why, later := w.admission(t.Context(), in)
	if later || why == nil || why.Reason != "PodFeatureUnsupported" || !strings.Contains(why.Message, "spec.os.name") {
		t.Errorf("%+v %v", why, later)
	}
}
