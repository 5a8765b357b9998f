package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
			pod: pod("p", prio(5), asks("1", "1"), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never }), why: "preemption: not eligible due to preemptionPolicy=Never."},
		{name: "N-10.19 not taints, not more than the node has", nodes: []*corev1.Node{node("a", two), node("b", taint("k", corev1.TaintEffectNoSchedule))},
			on:  []*corev1.Pod{pod("x", on("a"), asks("2", "1")), pod("y", on("b"), asks("4", "1"))},
			pod: pod("p", prio(5), asks("3", "1")), why: "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."},
		{name: "N-10.19 ports", nodes: []*corev1.Node{node("a")},
			on:  []*corev1.Pod{pod("x", on("a"), port("", 80)), pod("y", on("a"))},
			pod: pod("p", prio(5), port("", 80)), want: "a: x"},
		{name: "N-10.19 victims still leaving", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(1), asks("1", "1"), gone), pod("y", on("a"), prio(2), asks("1", "1"))},
			pod: pod("p", prio(5), asks("1", "1"), func(p *corev1.Pod) { p.Status.NominatedNodeName = "a" }), why: "preemption: not eligible due to terminating pod on the nominated node."},
		{name: "N-10.22 no mirror pods", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), asks("2", "1"), mirror)},
			pod: pod("p", prio(5), asks("1", "1")), why: "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		{name: "does not fit even then", nodes: []*corev1.Node{node("a", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(9), asks("1", "1")), pod("y", on("a"), asks("1", "1"))},
			pod: pod("p", prio(5), asks("2", "1")), why: "preemption: 0/1 nodes are available: 1 Insufficient cpu."},
		{name: "N-10.21 lowest top victim", nodes: []*corev1.Node{node("a", two), node("b", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(3), asks("2", "1")), pod("y", on("b"), prio(1), asks("1", "1")), pod("z", on("b"), prio(1), asks("1", "1"))},
			pod: pod("p", prio(5), asks("2", "1")), want: "b: y z"},
		{name: "N-10.21 smallest sum, fewest", nodes: []*corev1.Node{node("a", two), node("b", two)},
			on:  []*corev1.Pod{pod("x", on("a"), prio(3), asks("1", "1")), pod("w", on("a"), prio(-9), asks("1", "1")), pod("y", on("b"), prio(3), asks("2", "1"))},
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
