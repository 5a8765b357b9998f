package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

func resources(cpu, memory string, pods int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
	}
}

func node(name string, edit ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = resources("4", "4Gi", 110)
	n.Status.Capacity = resources("5", "5Gi", 110)
	for _, f := range edit {
		f(n)
	}
	return n
}

func pod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	for _, f := range edit {
		f(p)
	}
	return p
}

func asks(cpu, memory string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func prio(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }

func port(ip string, n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostIP: ip, HostPort: n}} }
}

func taint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func tolerates(ts ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = ts }
}

func cordoned(n *corev1.Node) {
	n.Spec.Unschedulable = true
	taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)(n)
}

func label(k, v string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{k: v} }
}

func affinity(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func expr(k string, op corev1.NodeSelectorOperator, v ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: k, Operator: op, Values: v}}}
}

func field(k string, op corev1.NodeSelectorOperator, v ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: k, Operator: op, Values: v}}}
}

// TestFilters asks one node for one pod: N-10.3, N-10.5 to N-10.11.
// Labels of nodes are there to be selected by (N-1.69).
func TestFilters(t *testing.T) {
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	few := func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1") }
	gpus := func(n *corev1.Node) { n.Status.Allocatable["ledge.dev/led"] = resource.MustParse("2") }
	led := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"ledge.dev/led": resource.MustParse("3")}
	}
	sidecarPort := func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: 80}}}}
	}
	for _, tt := range []struct {
		name string
		node *corev1.Node
		on   []*corev1.Pod
		pod  *corev1.Pod
		cfg  Config
		want string // "" fits; else what follows "0/1 nodes are available: 1 "
	}{
		{name: "fits", node: node("a"), pod: pod("p", asks("4", "4Gi"))},
		{name: "N-10.8 one milli too much", node: node("a"), pod: pod("p", asks("4001m", "1")), want: "Insufficient cpu."},
		{name: "N-10.8 all that is short", node: node("a"), pod: pod("p", asks("5", "5Gi")), want: "Insufficient cpu, 1 Insufficient memory."},
		{name: "N-10.8 sums", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), asks("1", "3Gi"))}, pod: pod("p", asks("1", "2Gi")),
			want: "Insufficient memory."},
		{name: "N-10.8 nothing asked is not checked", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), asks("9", "9Gi"))}, pod: pod("p")},
		{name: "N-10.8 pods", node: node("a", few), on: []*corev1.Pod{pod("q", on("a"))}, pod: pod("p"), want: "Too many pods."},
		{name: "N-10.8 extended", node: node("a", gpus), pod: pod("p", led), want: "Insufficient ledge.dev/led."},
		{name: "N-10.8 unknown extended", node: node("a"), pod: pod("p", led), want: "Insufficient ledge.dev/led."},
		{name: "N-10.8 switch", node: node("a"), pod: pod("p", asks("5", "5Gi")), cfg: Config{AgainstCapacity: true}},
		{name: "N-1.10 no capacity", node: node("a", func(n *corev1.Node) { n.Status = corev1.NodeStatus{} }), pod: pod("p"),
			want: "Too many pods."},
		{name: "N-10.10 ended", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), asks("4", "1Gi"), ended)}, pod: pod("p", asks("1", "1Gi"))},
		{name: "N-10.10 static", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), asks("4", "1Gi"), mirror)}, pod: pod("p", asks("1", "1Gi")),
			want: "Insufficient cpu."},
		{name: "N-10.7 cordon", node: node("a", cordoned), pod: pod("p"), want: "node(s) were unschedulable."},
		{name: "N-10.24 daemons run on cordoned nodes", node: node("a", cordoned),
			pod: pod("p", tolerates(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoSchedule}))},
		{name: "N-5.31 closed", node: node("a"), pod: pod("p", tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists})),
			cfg: Config{Closed: func(n string) bool { return n == "a" }}, want: "node(s) were unschedulable."},
		{name: "N-10.7 NoSchedule", node: node("a", taint("k", corev1.TaintEffectNoSchedule)), pod: pod("p"),
			want: "node(s) had untolerated taint(s)."},
		{name: "N-10.7 NoExecute", node: node("a", taint("k", corev1.TaintEffectNoExecute)), pod: pod("p"),
			want: "node(s) had untolerated taint(s)."},
		{name: "N-10.7 PreferNoSchedule", node: node("a", taint("k", corev1.TaintEffectPreferNoSchedule)), pod: pod("p")},
		{name: "N-10.7 tolerated", node: node("a", taint("k", corev1.TaintEffectNoSchedule)),
			pod: pod("p", tolerates(corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}))},
		{name: "N-10.6 selector", node: node("a", label("disk", "sd")),
			pod:  pod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
			want: "node(s) didn't match Pod's node affinity/selector."},
		{name: "N-10.6 selector matches", node: node("a", label("disk", "ssd")),
			pod: pod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })},
		{name: "N-10.6 In", node: node("a", label("z", "1")), pod: pod("p", affinity(expr("z", corev1.NodeSelectorOpIn, "0", "1")))},
		{name: "N-10.6 NotIn, absent", node: node("a"), pod: pod("p", affinity(expr("z", corev1.NodeSelectorOpNotIn, "0")))},
		{name: "N-10.6 Exists, absent", node: node("a"), pod: pod("p", affinity(expr("z", corev1.NodeSelectorOpExists))),
			want: "node(s) didn't match Pod's node affinity/selector."},
		{name: "N-10.6 DoesNotExist", node: node("a"), pod: pod("p", affinity(expr("z", corev1.NodeSelectorOpDoesNotExist)))},
		{name: "N-10.6 Gt", node: node("a", label("z", "5")), pod: pod("p", affinity(expr("z", corev1.NodeSelectorOpGt, "4")))},
		{name: "N-10.6 Lt", node: node("a", label("z", "5")), pod: pod("p", affinity(expr("z", corev1.NodeSelectorOpLt, "4"))),
			want: "node(s) didn't match Pod's node affinity/selector."},
		{name: "N-10.6 terms are ORed", node: node("a", label("z", "1")),
			pod: pod("p", affinity(expr("y", corev1.NodeSelectorOpExists), expr("z", corev1.NodeSelectorOpExists)))},
		{name: "N-10.6 expressions are ANDed", node: node("a", label("z", "1")), pod: pod("p", affinity(corev1.NodeSelectorTerm{
			MatchExpressions: append(expr("z", corev1.NodeSelectorOpExists).MatchExpressions,
				expr("y", corev1.NodeSelectorOpExists).MatchExpressions...)})),
			want: "node(s) didn't match Pod's node affinity/selector."},
		{name: "N-10.6 empty term", node: node("a"), pod: pod("p", affinity(corev1.NodeSelectorTerm{})),
			want: "node(s) didn't match Pod's node affinity/selector."},
		{name: "N-10.6 field", node: node("a"), pod: pod("p", affinity(field("metadata.name", corev1.NodeSelectorOpIn, "a")))},
		{name: "N-10.6 other field", node: node("a"), pod: pod("p", affinity(field("metadata.uid", corev1.NodeSelectorOpIn, "a"))),
			want: "node(s) didn't match Pod's node affinity/selector."},
		{name: "N-10.11 port", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), port("", 80))}, pod: pod("p", port("10.0.0.1", 80)),
			want: "node(s) didn't have free ports for the requested pod ports."},
		{name: "N-10.11 other address", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), port("10.0.0.2", 80))},
			pod: pod("p", port("10.0.0.1", 80))},
		{name: "N-10.11 other port", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), port("", 81))}, pod: pod("p", port("", 80))},
		{name: "N-10.11 sidecar", node: node("a"), on: []*corev1.Pod{pod("q", on("a"), port("", 80))}, pod: pod("p", sidecarPort),
			want: "node(s) didn't have free ports for the requested pod ports."},
		{name: "N-10.5 the first filter speaks", node: node("a", cordoned), on: []*corev1.Pod{pod("q", on("a"), port("", 80))},
			pod: pod("p", port("", 80), asks("9", "1")), want: "node(s) were unschedulable."},
		{name: "N-10.5 NodeName", node: node("a"), pod: pod("p", on("b")), want: "node(s) didn't match the requested node name."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := NewCluster([]*corev1.Node{tt.node}, tt.on, tt.cfg).Place(tt.pod)
			if tt.want == "" {
				if err != nil || got != "a" {
					t.Fatalf("got %q, %v; want node a", got, err)
				}
				return
			}
			var fit *FitError
			if !errors.As(err, &fit) || err.Error() != "0/1 nodes are available: 1 "+tt.want {
				t.Fatalf("got %q, %v; want ... 1 %s", got, err, tt.want)
			}
		})
	}
}

// TestFitErrorCounts: equal reasons are counted together and the parts sorted as strings (N-10.3).
func TestFitErrorCounts(t *testing.T) {
	nodes := []*corev1.Node{node("a", cordoned), node("b", cordoned), node("c", taint("k", corev1.TaintEffectNoExecute)), node("d")}
	_, err := NewCluster(nodes, nil, Config{}).Place(pod("p", asks("9", "9Gi")))
	want := "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint(s), 2 node(s) were unschedulable."
	if err == nil || err.Error() != want {
		t.Fatalf("got %v\nwant %s", err, want)
	}
	if _, err := NewCluster(nil, nil, Config{}).Place(pod("p")); err == nil || err.Error() != "no nodes available to schedule pods" {
		t.Fatalf("no nodes: %v", err)
	}
}

// TestTolerates: N-3.31.
func TestTolerates(t *testing.T) {
	tn := corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute}
	for _, tt := range []struct {
		tol  corev1.Toleration
		want bool
	}{
		{corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, false},
		{corev1.Toleration{Key: "k", Value: "v"}, true},
		{corev1.Toleration{Key: "k", Value: "v", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoExecute}, true},
		{corev1.Toleration{Key: "k", Value: "w"}, false},
		{corev1.Toleration{Key: "k", Value: "w", Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "l", Operator: corev1.TolerationOpExists}, false},
		{corev1.Toleration{Value: "v"}, false}, // an empty key needs Exists
		{corev1.Toleration{Key: "k", Value: "v", Operator: corev1.TolerationOpGt}, false},
	} {
		if got := api.Tolerates(&tt.tol, &tn); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.tol, got, tt.want)
		}
	}
}

// TestScores: N-10.12, N-10.13.
func TestScores(t *testing.T) {
	// 4 CPU, 4Gi. (4000-1000)*100/4000 = 75; (4096-1024)*100/4096 = 75.
	a := func(p *corev1.Pod, n *corev1.Node, others ...*corev1.Pod) int64 {
		return leastAllocated(amountsOf(scoredRequests(p)), NewCluster([]*corev1.Node{n}, others, Config{}).nodes[0])
	}
	if got := a(pod("p", asks("1", "1Gi")), node("a")); got != 75 {
		t.Errorf("a quarter asked: %d, want 75", got)
	}
	// 100m: 3900*100/4000 = 97; 200Mi: 3896*100/4096 = 95; mean 96.
	if got := a(pod("p"), node("a")); got != 96 {
		t.Errorf("missing requests: %d, want 96", got)
	}
	if got := a(pod("p"), node("a"), pod("q", on("a"), asks("4", "4Gi"))); got != 0 {
		t.Errorf("beyond full: %d, want 0", got)
	}
	if got := a(pod("p"), node("a", func(n *corev1.Node) { n.Status.Allocatable = nil })); got != 0 {
		t.Errorf("no allocatable: %d, want 0", got)
	}
	for _, tt := range []struct {
		name  string
		nodes []*corev1.Node
		on    []*corev1.Pod
		pod   *corev1.Pod
		want  string
	}{
		{"least allocated", []*corev1.Node{node("a"), node("b")}, []*corev1.Pod{pod("q", on("a"), asks("2", "2Gi"))}, pod("p"), "b"},
		{"a soft taint outweighs load", []*corev1.Node{node("a"), node("b", taint("k", corev1.TaintEffectPreferNoSchedule))},
			[]*corev1.Pod{pod("q", on("a"), asks("3", "3Gi"))}, pod("p"), "a"},
		{"a tolerated soft taint does not count", []*corev1.Node{node("a"), node("b", taint("k", corev1.TaintEffectPreferNoSchedule))},
			[]*corev1.Pod{pod("q", on("a"), asks("3", "3Gi"))},
			pod("p", tolerates(corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists})), "b"},
		{"preferred affinity", []*corev1.Node{node("a", label("z", "1")), node("b")}, []*corev1.Pod{pod("q", on("a"), asks("3", "3Gi"))},
			pod("p", func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
						{Weight: 1, Preference: expr("z", corev1.NodeSelectorOpExists)}}}}
			}), "a"},
		{"N-10.22 room was made here", []*corev1.Node{node("a"), node("b")}, []*corev1.Pod{pod("q", on("a"), asks("2", "2Gi"))},
			pod("p", func(p *corev1.Pod) { p.Status.NominatedNodeName = "a" }), "a"},
	} {
		got, err := NewCluster(tt.nodes, tt.on, Config{}).Place(tt.pod)
		if err != nil || got != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

// randomWorld makes nodes with pods on them, and pods that wait.
func randomWorld(r *rand.Rand) (nodes []*corev1.Node, bound, waiting []*corev1.Pod) {
	for i := range 1 + r.IntN(6) {
		n := node(fmt.Sprintf("n%d", i))
		n.Status.Allocatable = resources(fmt.Sprint(1+r.IntN(4)), fmt.Sprintf("%dGi", 1+r.IntN(4)), int64(1+r.IntN(6)))
		if r.IntN(4) == 0 {
			cordoned(n)
		}
		if r.IntN(4) == 0 {
			taint("soft", corev1.TaintEffectPreferNoSchedule)(n)
		}
		nodes = append(nodes, n)
	}
	for i := range r.IntN(12) {
		p := pod(fmt.Sprintf("p%d", i), prio(int32(r.IntN(4))), asks(fmt.Sprintf("%dm", r.IntN(2000)), fmt.Sprintf("%dMi", r.IntN(2000))),
			starts(int64(r.IntN(5))))
		if r.IntN(5) == 0 {
			port("", 80)(p)
		}
		waiting = append(waiting, p)
	}
	return nodes, bound, waiting
}

// settle places all pods it can, in order, preempting where it may, and says what became of them.
func settle(nodes []*corev1.Node, pods []*corev1.Pod) (string, *Cluster) {
	c := NewCluster(nodes, nil, Config{})
	var log strings.Builder
	for _, p := range pods {
		got, err := c.Place(p)
		var fit *FitError
		if errors.As(err, &fit) {
			way := c.Victims(p, fit)
			fmt.Fprintf(&log, "%s: %v %s", p.Name, err, way.Why)
			if way.Node != "" {
				for _, v := range way.Victims {
					fmt.Fprintf(&log, " -%s", v.Name)
					c.byName[way.Node].remove(v)
				}
				got, err = c.Place(p)
				fmt.Fprintf(&log, " then %s %v", got, err)
			}
		}
		if got != "" {
			fmt.Fprintf(&log, "%s -> %s;", p.Name, got)
			c.Assume(p, got)
		}
	}
	return log.String(), c
}

// TestProperties: never over allocatable, the same answer twice, and whatever order nodes came in; victims are lower,
// needed, and enough.
func TestProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		nodes, _, pods := randomWorld(r)
		first, c := settle(nodes, pods)
		for _, n := range c.nodes {
			used, count := amounts{}, 0
			ports := 0
			for _, p := range n.pods {
				used.add(amountsOf(p.Spec.Containers[0].Resources.Requests))
				ports += len(api.HostPorts(p))
				count++
			}
			if int64(count) > n.allocatable[corev1.ResourcePods] || ports > 1 {
				t.Fatalf("%s holds %d pods, %d on one port\n%s", n.node.Name, count, ports, first)
			}
			for name, v := range used {
				if v > n.allocatable[name] {
					t.Fatalf("%s is over its %s: %d of %d\n%s", n.node.Name, name, v, n.allocatable[name], first)
				}
			}
			if n.node.Spec.Unschedulable && count > 0 {
				t.Fatalf("%s is cordoned\n%s", n.node.Name, first)
			}
		}
		shuffled := slices.Clone(nodes)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again, _ := settle(shuffled, pods); again != first {
			t.Fatalf("the order of nodes mattered:\n%s\n%s", first, again)
		}
		checkVictims(t, r, c)
	}
}

func checkVictims(t *testing.T, r *rand.Rand, c *Cluster) {
	t.Helper()
	p := pod("new", prio(int32(r.IntN(6))), asks(fmt.Sprintf("%dm", r.IntN(3000)), fmt.Sprintf("%dMi", r.IntN(3000))))
	var held []*corev1.Pod
	var nodes []*corev1.Node
	for _, n := range c.nodes {
		nodes = append(nodes, n.node)
		for _, q := range n.pods {
			q = q.DeepCopy()
			q.Spec.NodeName = n.node.Name
			held = append(held, q)
		}
	}
	r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	c = NewCluster(nodes, held, Config{})
	_, err := c.Place(p)
	var fit *FitError
	if !errors.As(err, &fit) {
		return
	}
	way := c.Victims(p, fit)
	if (way.Node == "") == (way.Why == "") {
		t.Fatalf("victims %v and why %q", way, way.Why)
	}
	if way.Node == "" {
		return
	}
	without := func(spared *corev1.Pod) *Cluster {
		left := slices.DeleteFunc(slices.Clone(held), func(q *corev1.Pod) bool { return q != spared && slices.Contains(way.Victims, q) })
		return NewCluster([]*corev1.Node{c.byName[way.Node].node}, left, Config{})
	}
	if _, err := without(nil).Place(p); err != nil {
		t.Fatalf("all victims gone and still %v", err)
	}
	for _, v := range way.Victims {
		if Priority(v) >= Priority(p) {
			t.Fatalf("%s of priority %d for one of %d", v.Name, Priority(v), Priority(p))
		}
		if _, err := without(v).Place(p); err == nil {
			t.Fatalf("%s died for nothing", v.Name)
		}
	}
}

// TestTieSpreads: pods that are alike spread over nodes that are alike (N-10.2).
func TestTieSpreads(t *testing.T) {
	nodes := []*corev1.Node{node("a"), node("b"), node("c")}
	c := NewCluster(nodes, nil, Config{})
	got := map[string]int{}
	for i := range 300 {
		n, err := c.Place(pod(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		got[n]++
	}
	for _, n := range nodes {
		if got[n.Name] < 50 {
			t.Errorf("uneven: %v", got)
		}
	}
}

// BenchmarkPlace is one decision among 10, 100 and 1,000 nodes with five pods each: for a plain pod, and for one that has
// wishes about the others, of which every fifth has wishes too. "snapshot" is what a pass costs before the first.
func BenchmarkPlace(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		var nodes []*corev1.Node
		var pods []*corev1.Pod
		for i := range size {
			nodes = append(nodes, node(fmt.Sprintf("n%d", i), label("zone", fmt.Sprintf("z%d", i%7))))
			for j := range 5 {
				p := pod(fmt.Sprintf("p%d-%d", i, j), on(fmt.Sprintf("n%d", i)), asks("100m", "64Mi"),
					app([]string{"db", "web", "cam", "log", "nil"}[j]))
				if j == 0 {
					apart(of("other"), "zone")(p)
				}
				pods = append(pods, p)
			}
		}
		plain := pod("new", asks("100m", "64Mi"))
		wishing := pod("new", asks("100m", "64Mi"), app("web"), near(of("db"), "zone"), apart(of("other"), "zone"), evenly(5, "zone", of("web")))
		for what, p := range map[string]*corev1.Pod{"plain": plain, "wishing": wishing} {
			b.Run(fmt.Sprintf("nodes=%d/%s", size, what), func(b *testing.B) {
				c := NewCluster(nodes, pods, Config{})
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Place(p); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(fmt.Sprintf("nodes=%d/snapshot", size), func(b *testing.B) {
			for b.Loop() {
				NewCluster(nodes, pods, Config{})
			}
		})
	}
}
