package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func starts(sec int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: time.Unix(sec, 0)} }
}

// TestVictims: N-10.19 to N-10.23.
func TestVictims(t *testing.T) {
	two := func(n *corev1.Node) { n.Status.Allocatable = resources("2", "4Gi", 110) }
	never := corev1.PreemptNever
	gone := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	for _, tt := range []struct {
		name  string
		nodes []*corev1.Node
		on    []*corev1.Pod
		pod   *corev1.Pod
		want  string // node: victims
		why   string
	}{
		{name: "lowest goes", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(1), asks("1", "1")), pod("y", on("a"), prio(2), asks("1", "1"))},
			pod: pod("p", prio(5), asks("1", "1")), want: "a: x"},
		{name: "N-10.20 the one that ran longer stays", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), asks("1", "1"), starts(10)), pod("y", on("a"), asks("1", "1"), starts(20))},
			pod: pod("p", prio(5), asks("1", "1")), want: "a: y"},
		{name: "N-10.20 only as many as needed", nodes: []*corev1.Node{node("a", two)},
			on: []*corev1.Pod{pod("big", on("a"), prio(1), asks("1500m", "1")), pod("s", on("a"), prio(2), asks("500m", "1"))},
			// With both gone 2 cores are free; s fits beside p, big does not.
			pod: pod("p", prio(5), asks("1", "1")), want: "a: big"},
		{name: "N-10.19 equal priority is safe", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(5), asks("2", "1"))},
			pod: pod("p", prio(5), asks("1", "1")), why: "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		{name: "N-10.19 Never", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), asks("2", "1"))},
			pod: pod("p", prio(5), asks("1", "1"), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never }),
			why: "preemption: not eligible due to preemptionPolicy=Never."},
		{name: "N-10.19 not taints, not more than the node has",
			nodes: []*corev1.Node{node("a", two), node("b", taint("k", corev1.TaintEffectNoSchedule))},
			on:    []*corev1.Pod{pod("x", on("a"), asks("2", "1")), pod("y", on("b"), asks("4", "1"))},
			pod:   pod("p", prio(5), asks("3", "1")), why: "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."},
		{name: "N-10.19 ports", nodes: []*corev1.Node{node("a")},
			on:  []*corev1.Pod{pod("x", on("a"), port("", 80)), pod("y", on("a"))},
			pod: pod("p", prio(5), port("", 80)), want: "a: x"},
		{name: "N-10.19 victims still leaving", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(1), asks("1", "1"), gone), pod("y", on("a"), prio(2), asks("1", "1"))},
			pod: pod("p", prio(5), asks("1", "1"), func(p *corev1.Pod) { p.Status.NominatedNodeName = "a" }),
			why: "preemption: not eligible due to terminating pod on the nominated node."},
		{name: "N-10.22 no mirror pods", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), asks("2", "1"), mirror)},
			pod: pod("p", prio(5), asks("1", "1")), why: "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		{name: "does not fit even then", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(9), asks("1", "1")), pod("y", on("a"), asks("1", "1"))},
			pod: pod("p", prio(5), asks("2", "1")), why: "preemption: 0/1 nodes are available: 1 Insufficient cpu."},
		{name: "N-10.21 lowest top victim", nodes: []*corev1.Node{node("a", two), node("b", two)},
			on: []*corev1.Pod{pod("x", on("a"), prio(3), asks("2", "1")), pod("y", on("b"), prio(1), asks("1", "1")),
				pod("z", on("b"), prio(1), asks("1", "1"))},
			pod: pod("p", prio(5), asks("2", "1")), want: "b: y z"},
		{name: "N-10.21 smallest sum, fewest", nodes: []*corev1.Node{node("a", two), node("b", two)},
			on: []*corev1.Pod{pod("x", on("a"), prio(3), asks("1", "1")), pod("w", on("a"), prio(-9), asks("1", "1")),
				pod("y", on("b"), prio(3), asks("2", "1"))},
			pod: pod("p", prio(5), asks("2", "1")), want: "b: y"},
		{name: "N-10.21 latest start", nodes: []*corev1.Node{node("a", two), node("b", two)},
			on:  []*corev1.Pod{pod("x", on("a"), asks("2", "1"), starts(10)), pod("y", on("b"), asks("2", "1"), starts(20))},
			pod: pod("p", prio(5), asks("2", "1")), want: "b: y"},
		{name: "N-10.21 first", nodes: []*corev1.Node{node("b", two), node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), asks("2", "1"), starts(10)), pod("y", on("b"), asks("2", "1"), starts(10))},
			pod: pod("p", prio(5), asks("2", "1")), want: "a: x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCluster(tt.nodes, tt.on, Config{})
			_, err := c.Place(tt.pod)
			var fit *FitError
			if !errors.As(err, &fit) {
				t.Fatalf("fits without victims: %v", err)
			}
			way := c.Victims(tt.pod, fit)
			got := ""
			if way.Node != "" {
				got = way.Node + ":"
				for _, v := range way.Victims {
					got += " " + v.Name
				}
			}
			if got != tt.want || way.Why != tt.why || way.Ineligible != strings.Contains(tt.why, "not eligible") {
				t.Fatalf("got %q %q\nwant %q %q", got, way.Why, tt.want, tt.why)
			}
		})
	}
}

// TestVictimsOfBudgets: whom a budget holds is spared while others will do, and goes when nobody else will (N-10.20,
// N-10.21).
func TestVictimsOfBudgets(t *testing.T) {
	two := func(n *corev1.Node) { n.Status.Allocatable = resources("2", "4Gi", 110) }
	web := app("web")
	held := func(allowed int32, edit ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
		b.Spec.Selector, b.Status.DisruptionsAllowed = of("web"), allowed
		for _, f := range edit {
			f(b)
		}
		return b
	}
	elsewhere := func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }
	everybody := func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = &metav1.LabelSelector{} }
	leaving := func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptedPods = map[string]metav1.Time{"x": {}} }
	one := []*corev1.Node{node("a", two)}
	// y is the more important of the two, x is held.
	pair := []*corev1.Pod{pod("x", on("a"), asks("1", "1"), web), pod("y", on("a"), prio(1), asks("1", "1"))}
	for _, tt := range []struct {
		name    string
		nodes   []*corev1.Node
		on      []*corev1.Pod
		budgets []*policyv1.PodDisruptionBudget
		cpu     string
		want    string // node: victims, violations
	}{
		{"no budget", one, pair, nil, "1", "a: x, 0"},
		{"the held one stays", one, pair, []*policyv1.PodDisruptionBudget{held(0)}, "1", "a: y, 0"},
		{"one may go", one, pair, []*policyv1.PodDisruptionBudget{held(1)}, "1", "a: x, 0"},
		{"going already", one, pair, []*policyv1.PodDisruptionBudget{held(0, leaving)}, "1", "a: x, 0"},
		{"another namespace", one, pair, []*policyv1.PodDisruptionBudget{held(0, elsewhere)}, "1", "a: x, 0"},
		{"an empty selector", one, pair, []*policyv1.PodDisruptionBudget{held(0, everybody)}, "1", "a: x, 0"},
		{"both are needed", one, pair, []*policyv1.PodDisruptionBudget{held(0)}, "2", "a: y x, 1"},
		{"of two budgets one says no", one, pair, []*policyv1.PodDisruptionBudget{held(1), held(0)}, "1", "a: y, 0"},
		{"a node without violations before lower victims", []*corev1.Node{node("a", two), node("b", two)},
			[]*corev1.Pod{pod("x", on("a"), asks("2", "1"), web), pod("y", on("b"), prio(3), asks("2", "1"))},
			[]*policyv1.PodDisruptionBudget{held(0)}, "1", "b: y, 0"},
		{"fewest violations", []*corev1.Node{node("a", two), node("b", two)},
			[]*corev1.Pod{pod("x", on("a"), asks("1", "1"), web), pod("y", on("a"), asks("1", "1"), web),
				pod("z", on("b"), prio(3), asks("2", "1"), web)},
			[]*policyv1.PodDisruptionBudget{held(0)}, "2", "b: z, 1"},
	} {
		c := NewCluster(tt.nodes, tt.on, Config{Budgets: tt.budgets})
		p := pod("p", prio(5), asks(tt.cpu, "1"))
		_, err := c.Place(p)
		var fit *FitError
		if !errors.As(err, &fit) {
			t.Fatalf("%s: fits without victims: %v", tt.name, err)
		}
		way := c.Victims(p, fit)
		got := way.Node + ":"
		for _, v := range way.Victims {
			got += " " + v.Name
		}
		if got = fmt.Sprintf("%s, %d", got, way.Violations); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestNominatedRoomIsKept: room made by victims is not taken by an equal or lesser pod meanwhile; a greater one may.
func TestNominatedRoomIsKept(t *testing.T) {
	waiting := pod("w", prio(10), asks("3", "1Gi"), func(p *corev1.Pod) { p.Status.NominatedNodeName = "a" })
	c := NewCluster([]*corev1.Node{node("a")}, []*corev1.Pod{waiting}, Config{})
	for p, want := range map[int32]bool{5: false, 10: false, 11: true} {
		if _, err := c.Place(pod("p", prio(p), asks("2", "1Gi"))); (err == nil) != want {
			t.Errorf("priority %d: %v", p, err)
		}
	}
	if got, err := c.Place(waiting); got != "a" {
		t.Errorf("the waiting pod itself: %v", err)
	}
	c.Assume(waiting, "a")
	if _, err := c.Place(pod("p", prio(10), asks("1", "1Gi"))); err != nil {
		t.Errorf("counted twice after Assume: %v", err)
	}
	if _, err := c.Place(pod("p", prio(11), asks("2", "1Gi"))); err == nil {
		t.Error("Assume did not count")
	}
}
