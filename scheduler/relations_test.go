package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func app(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
}

func of(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func podAffinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	}
	return p.Spec.Affinity
}

func near(s *metav1.LabelSelector, key string, edit ...func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := podAffinity(p).PodAffinity
		t := corev1.PodAffinityTerm{LabelSelector: s, TopologyKey: key}
		for _, e := range edit {
			e(&t)
		}
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, t)
	}
}

func apart(s *metav1.LabelSelector, key string, edit ...func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := podAffinity(p).PodAntiAffinity
		t := corev1.PodAffinityTerm{LabelSelector: s, TopologyKey: key}
		for _, e := range edit {
			e(&t)
		}
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, t)
	}
}

func evenly(skew int32, key string, s *metav1.LabelSelector, edit ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.TopologySpreadConstraint{MaxSkew: skew, TopologyKey: key, LabelSelector: s, WhenUnsatisfiable: corev1.DoNotSchedule}
		for _, e := range edit {
			e(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func in(ns string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = ns } }

// shed is three boards: two in the attic, one in the cellar.
func shed() []*corev1.Node {
	return []*corev1.Node{node("a1", label("zone", "attic")), node("a2", label("zone", "attic")), node("c1", label("zone", "cellar"))}
}

// TestRelations: where a pod may go because of others, and why not, in Kubernetes' words (N-10.3, N-10.5).
func TestRelations(t *testing.T) {
	everyNS := func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }
	teamNS := func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = of("team") }
	named := func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"other"} }
	min3 := func(c *corev1.TopologySpreadConstraint) { c.MinDomains = new(int32); *c.MinDomains = 3 }
	honor := func(c *corev1.TopologySpreadConstraint) {
		p := corev1.NodeInclusionPolicyHonor
		c.NodeTaintsPolicy = &p
	}
	version := func(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels["v"] = v } }
	byVersion := func(t *corev1.PodAffinityTerm) { t.MatchLabelKeys = []string{"v"} }
	notVersion := func(t *corev1.PodAffinityTerm) { t.MismatchLabelKeys = []string{"v"} }
	gone := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	for _, tt := range []struct {
		name  string
		nodes []*corev1.Node
		on    []*corev1.Pod
		pod   *corev1.Pod
		want  string // the nodes that take it
		why   string
	}{
		{"near one", nil, []*corev1.Pod{pod("x", on("a1"), app("db"))}, pod("p", near(of("db"), "zone")), "a1 a2",
			"1 node(s) didn't match pod affinity rules"},
		{"near nobody", nil, nil, pod("p", near(of("db"), "zone")), "", "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."},
		{"the first of its group", nil, nil, pod("p", app("db"), near(of("db"), "zone")), "a1 a2 c1", ""},
		{"the second of its group", nil, []*corev1.Pod{pod("x", on("c1"), app("db"))}, pod("p", app("db"), near(of("db"), "zone")), "c1", ""},
		{"near two kinds means one pod that is both", nil, []*corev1.Pod{pod("x", on("a1"), app("db")), pod("y", on("c1"), app("web"))},
			pod("p", near(of("db"), "zone"), near(of("web"), "zone")), "", "3 node(s) didn't match pod affinity rules"},
		{"no such label on the node", []*corev1.Node{node("n")}, nil, pod("p", app("db"), near(of("db"), "zone")), "",
			"1 node(s) didn't match pod affinity rules"},
		{"another namespace does not count", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), in("other"))}, pod("p", near(of("db"), "zone")), "",
			""},
		{"a named one does", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), in("other"))}, pod("p", near(of("db"), "zone", named)), "a1 a2",
			""},
		{"and then not one's own", nil, []*corev1.Pod{pod("x", on("a1"), app("db"))}, pod("p", near(of("db"), "zone", named)), "", ""},
		{"every namespace", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), in("other"))}, pod("p", near(of("db"), "zone", everyNS)), "a1 a2",
			""},
		{"namespaces by label", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), in("other")), pod("y", on("c1"), app("db"), in("team"))},
			pod("p", near(of("db"), "zone", teamNS)), "c1", ""},
		{"apart from one", nil, []*corev1.Pod{pod("x", on("a1"), app("db"))}, pod("p", apart(of("db"), "zone")), "c1",
			"2 node(s) didn't match pod anti-affinity rules"},
		{"one asks others to keep away", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), apart(of("web"), "zone"))}, pod("p", app("web")), "c1",
			"2 node(s) didn't satisfy existing pods anti-affinity rules"},
		{"and does not mean this one", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), apart(of("web"), "zone"))}, pod("p", app("cam")),
			"a1 a2 c1", ""},
		{"one a zone", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), apart(of("db"), "zone"))}, pod("p", app("db"), apart(of("db"), "zone")),
			"c1", ""},
		{"no selector means nobody", nil, []*corev1.Pod{pod("x", on("a1"), app("db"))}, pod("p", apart(nil, "zone")), "a1 a2 c1", ""},
		{"an empty selector means all", nil, []*corev1.Pod{pod("x", on("a1"))}, pod("p", apart(&metav1.LabelSelector{}, "zone")), "c1", ""},
		{"of the same version", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), version("1")), pod("y", on("c1"), app("db"), version("2"))},
			pod("p", app("db"), version("2"), apart(of("db"), "zone", byVersion)), "a1 a2", ""},
		{"of another version", nil, []*corev1.Pod{pod("x", on("a1"), app("db"), version("1")), pod("y", on("c1"), app("db"), version("2"))},
			pod("p", app("db"), version("2"), apart(of("db"), "zone", notVersion)), "c1", ""},
		{"evenly", nil, []*corev1.Pod{pod("x", on("a1"), app("w"))}, pod("p", app("w"), evenly(1, "zone", of("w"))), "c1",
			"2 node(s) didn't match pod topology spread constraints"},
		{"evenly, with some room", nil, []*corev1.Pod{pod("x", on("a1"), app("w"))}, pod("p", app("w"), evenly(2, "zone", of("w"))), "a1 a2 c1",
			""},
		{"those that are going do not count", nil, []*corev1.Pod{pod("x", on("a1"), app("w"), gone)},
			pod("p", app("w"), evenly(1, "zone", of("w"))), "a1 a2 c1", ""},
		{"nor those of another namespace", nil, []*corev1.Pod{pod("x", on("a1"), app("w"), in("other"))},
			pod("p", app("w"), evenly(1, "zone", of("w"))), "a1 a2 c1", ""},
		{"a node without the label", append(shed(), node("n")), nil, pod("p", app("w"), evenly(1, "zone", of("w"))), "a1 a2 c1",
			"1 node(s) didn't match pod topology spread constraints (missing required label)"},
		{"too few domains", nil, []*corev1.Pod{pod("x", on("a1"), app("w")), pod("y", on("c1"), app("w"))},
			pod("p", app("w"), evenly(1, "zone", of("w"), min3)), "", "3 node(s) didn't match pod topology spread constraints"},
		{"a domain the pod cannot go to does not count", append(shed(), node("far", label("zone", "far"))),
			[]*corev1.Pod{pod("x", on("a1"), app("w")), pod("y", on("c1"), app("w"))},
			pod("p", app("w"), evenly(1, "zone", of("w")), affinity(expr("zone", "In", "attic", "cellar"))), "a1 a2 c1",
			"1 node(s) didn't match Pod's node affinity/selector"},
		{"a tainted domain counts", append(shed(), node("far", label("zone", "far"), taint("k", "NoSchedule"))),
			[]*corev1.Pod{pod("x", on("a1"), app("w")), pod("y", on("c1"), app("w"))}, pod("p", app("w"), evenly(1, "zone", of("w"))), "",
			"0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 node(s) didn't match pod topology spread constraints."},
		{"unless taints are honoured", append(shed(), node("far", label("zone", "far"), taint("k", "NoSchedule"))),
			[]*corev1.Pod{pod("x", on("a1"), app("w")), pod("y", on("c1"), app("w"))}, pod("p", app("w"), evenly(1, "zone", of("w"), honor)),
			"a1 a2 c1", ""},
	} {
		nodes := tt.nodes
		if nodes == nil {
			nodes = shed()
		}
		c := NewCluster(nodes, tt.on, Config{Namespaces: func() map[string]labels.Set { return map[string]labels.Set{"team": {"app": "team"}} }})
		var took, refused []string
		l := c.look(tt.pod)
		for _, n := range c.nodes {
			if r := c.filter(l, n); r != nil {
				refused = append(refused, r.reasons...)
			} else {
				took = append(took, n.node.Name)
			}
		}
		if got := strings.Join(took, " "); got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.name, got, tt.want, refused)
		}
		if why := unavailable(len(nodes), refused); !strings.Contains(why, tt.why) {
			t.Errorf("%s: %s, want %s", tt.name, why, tt.why)
		}
		_, err := c.Place(tt.pod)
		var fit *FitError
		if (err == nil) != (tt.want != "") || err != nil && !errors.As(err, &fit) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestCompany: among nodes that would do, those with liked pods, few of the same kind, and the image (N-10.13).
func TestCompany(t *testing.T) {
	likes := func(weight int32, s *metav1.LabelSelector) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			w := []corev1.WeightedPodAffinityTerm{{Weight: max(weight, -weight),
				PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: s, TopologyKey: "zone"}}}
			if weight > 0 {
				podAffinity(p).PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = w
			} else {
				podAffinity(p).PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = w
			}
		}
	}
	anyway := func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	has := func(image string, mb int64) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Images = []corev1.ContainerImage{{Names: []string{image}, SizeBytes: mb << 20}}
		}
	}
	wants := func(image string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }
	}
	for _, tt := range []struct {
		name  string
		nodes []*corev1.Node
		on    []*corev1.Pod
		pod   *corev1.Pod
		want  string
	}{
		{"liked", nil, []*corev1.Pod{pod("x", on("c1"), app("db"))}, pod("p", likes(10, of("db"))), "c1"},
		{"disliked", nil, []*corev1.Pod{pod("x", on("a1"), app("db")), pod("y", on("a2"), app("z"))}, pod("p", likes(-10, of("db"))), "c1"},
		{"liked by another", nil, []*corev1.Pod{pod("x", on("c1"), app("db"), likes(10, of("web")))}, pod("p", app("web")), "c1"},
		{"needed by another", nil, []*corev1.Pod{pod("x", on("c1"), app("db"), near(of("web"), "zone"))}, pod("p", app("web")), "c1"},
		{"disliked by another", nil, []*corev1.Pod{pod("x", on("a1"), likes(-10, of("web"))), pod("y", on("a2"))}, pod("p", app("web")), "c1"},
		{"evenly if possible", nil, []*corev1.Pod{pod("x", on("a1"), app("w")), pod("y", on("a2"), app("z"), asks("1m", "1")),
			pod("z", on("c1"), app("z"), asks("1", "1Gi"))},
			pod("p", app("w"), evenly(1, "zone", of("w"), anyway)), "c1"},
		{"where the image is", []*corev1.Node{node("a"), node("b", has("docker.io/library/nginx:latest", 900)), node("c")}, nil,
			pod("p", wants("nginx")), "b"},
		{"not for a small image", []*corev1.Node{node("a", has("x:1", 5)), node("b")}, []*corev1.Pod{pod("x", on("a"), asks("1", "1Gi"))},
			pod("p", wants("x:1")), "b"},
	} {
		nodes := tt.nodes
		if nodes == nil {
			nodes = shed()
		}
		got, err := NewCluster(nodes, tt.on, Config{}).Place(tt.pod)
		if err != nil || got != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

// TestRelatedVictims: what keeps a pod out because of lower ones can be cured by their end (N-10.19, N-10.20); what wants
// company cannot.
func TestRelatedVictims(t *testing.T) {
	for _, tt := range []struct {
		name string
		on   []*corev1.Pod
		pod  *corev1.Pod
		want string
	}{
		{"apart", []*corev1.Pod{pod("x", on("a1"), app("db")), pod("y", on("c1"), app("db"), prio(9)), pod("z", on("a1"))},
			pod("p", prio(5), apart(of("db"), "zone")), "a1 [x]"},
		{"repelled", []*corev1.Pod{pod("x", on("a1"), apart(of("web"), "zone"), prio(9)), pod("y", on("c1"), apart(of("web"), "zone"))},
			pod("p", prio(5), app("web")), "c1 [y]"},
		{"uneven", []*corev1.Pod{pod("x", on("a1"), app("w")), pod("y", on("a2"), app("w"), prio(9)),
			pod("f", on("c1"), asks("4", "4Gi"), prio(9))},
			pod("p", prio(5), app("w"), asks("1", "1"), evenly(2, "zone", of("w"))), "a1 [x]"},
		{"alone", []*corev1.Pod{pod("x", on("a1"))}, pod("p", prio(5), near(of("db"), "zone")), " []"},
	} {
		c := NewCluster(shed(), tt.on, Config{})
		_, err := c.Place(tt.pod)
		var fit *FitError
		if !errors.As(err, &fit) {
			t.Errorf("%s: placed", tt.name)
			continue
		}
		way := c.Victims(tt.pod, fit)
		var names []string
		for _, v := range way.Victims {
			names = append(names, v.Name)
		}
		if got := fmt.Sprint(way.Node, " ", names); got != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, got, way.Why, tt.want)
		}
	}
}

// TestRelationsFollow: counting what changes comes to the same as counting anew.
func TestRelationsFollow(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	names := []string{"db", "web", "cam"}
	some := func() *metav1.LabelSelector { return of(names[rng.IntN(3)]) }
	random := func(name string) *corev1.Pod {
		p := pod(name, app(names[rng.IntN(3)]))
		if rng.IntN(2) == 0 {
			apart(some(), "zone")(p)
		}
		if rng.IntN(2) == 0 {
			near(some(), "zone")(p)
		}
		if rng.IntN(2) == 0 {
			evenly(1, "zone", some())(p)
		}
		return p
	}
	for round := range 200 {
		var before []*corev1.Pod
		for i := range rng.IntN(6) {
			p := random(fmt.Sprint("b", i))
			p.Spec.NodeName = shed()[rng.IntN(3)].Name
			before = append(before, p)
		}
		come := random("come")
		come.Spec.NodeName = shed()[rng.IntN(3)].Name
		p := random("p")
		c := NewCluster(shed(), before, Config{})
		n := c.byName[come.Spec.NodeName]
		grown := c.relate(p).with(n, []*corev1.Pod{come}, 1)
		shrunk := grown.with(n, []*corev1.Pod{come}, -1)
		anew := NewCluster(shed(), append(before, come), Config{}).relate(p)
		for _, node := range shed() {
			for what, pair := range map[string][2]*relations{"with one more": {grown, anew}, "and without it": {shrunk, c.relate(p)}} {
				got, want := fmt.Sprint(pair[0].refuse(node)), fmt.Sprint(pair[1].refuse(node))
				if pair[0].refuse(node) != nil && pair[1].refuse(node) != nil {
					got, want = fmt.Sprint(*pair[0].refuse(node)), fmt.Sprint(*pair[1].refuse(node))
				}
				if got != want {
					t.Fatalf("round %d, %s, %s: %s, counted anew %s", round, node.Name, what, got, want)
				}
			}
		}
	}
}
