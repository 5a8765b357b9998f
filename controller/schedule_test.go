package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/scheduling"
	"ledge/scheduler"
)

// TestBind: a pod gets its node through the store, and everyone can read so (N-10.2).
func TestBind(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.pod("p")
		p := r.getPod("p")
		if p.Spec.NodeName != "n" || condition(p, corev1.PodScheduled).Status != corev1.ConditionTrue {
			t.Errorf("node %q, %+v", p.Spec.NodeName, p.Status.Conditions)
		}
		r.want("events", r.events("Scheduled"), "default-scheduler Normal Scheduled p: Successfully assigned default/p to n")
	})
}

// TestNotOurs: pods of another scheduler, with a node already, or gated are left alone (N-10.1, N-10.4, N-10.26).
func TestNotOurs(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.pod("theirs", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })
		r.pod("manual", func(p *corev1.Pod) { p.Spec.NodeName = "elsewhere" })
		r.pass(10 * time.Second)
		if r.getPod("theirs").Spec.NodeName != "" || r.getPod("manual").Spec.NodeName != "elsewhere" {
			t.Error("meddled")
		}
		r.want("events", r.events("Scheduled", "FailedScheduling"))
	})
}

// TestGatedOnce: a pod whose gates are closed is looked at until its status says so, and again when they are open (N-10.4). A pass
// copies each pod that is due, and comes with each change of any pod.
func TestGatedOnce(t *testing.T) {
	s := &Schedule{waiting: map[types.UID]*waiting{}, bound: map[types.UID]string{}}
	due := func(p *corev1.Pod) int {
		list, _ := s.queue([]*corev1.Pod{p}, time.Now())
		return len(list)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	p.Spec.SchedulerName, p.Spec.SchedulingGates = scheduler.DefaultName, []corev1.PodSchedulingGate{{Name: "example.com/a"}}
	if due(p) != 1 {
		t.Error("nothing says yet that its gates are closed")
	}
	setCondition(p, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
		Message: "by somebody else"}, time.Now())
	if due(p) != 1 {
		t.Error("its status says something else")
	}
	setCondition(p, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
		Message: gatedMessage}, time.Now())
	if due(p) != 0 {
		t.Error("it is due again, though nothing is to be done")
	}
	if p.Spec.SchedulingGates = nil; due(p) != 1 {
		t.Error("its gates are open")
	}
}

// TestUnschedulable: why, in condition and event; again when something changes for the better, and no sooner (N-10.3).
func TestUnschedulable(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		r.pod("big", asks("3"))
		r.pod("p", asks("2"))
		want := "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
		c := condition(r.getPod("p"), corev1.PodScheduled)
		if c.Status != corev1.ConditionFalse || c.Reason != "Unschedulable" || c.Message != want {
			t.Errorf("condition %+v", c)
		}
		r.want("events", r.events("FailedScheduling"), "default-scheduler Warning FailedScheduling p: "+want)
		before := r.writes.Load()
		r.pass(4 * time.Minute)
		if now := r.writes.Load(); now != before {
			t.Errorf("%d writes while nothing changed", now-before)
		}
		r.report("big", corev1.PodSucceeded)
		if got := r.getPod("p").Spec.NodeName; got != "n" {
			t.Errorf("room was made: %q", got)
		}
	})
}

// TestNoNodes: what is said on an empty cluster, and that a new node ends the wait.
func TestNoNodes(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.pod("p")
		if c := condition(r.getPod("p"), corev1.PodScheduled); c.Message != "no nodes available to schedule pods" {
			t.Errorf("condition %+v", c)
		}
		r.pass(time.Minute)
		r.node("n")
		r.pass(2 * time.Second) // refused once more while the node was not ready yet
		if got := r.getPod("p").Spec.NodeName; got != "n" {
			t.Errorf("node %q", got)
		}
	})
}

// TestCordon: N-1.68, N-3.14, N-10.7.
func TestCordon(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.pod("before")
		cordon := func(on bool) {
			_, err := r.Patch(r.ctx, api.Nodes, "", "n",
				api.Patch{Type: types.StrategicMergePatchType, Data: fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on)}, api.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r.pass(0)
		}
		cordon(true)
		if got := taintsOf(r.getNode("n")); !slices.Equal(got, []string{"unschedulable:NoSchedule"}) {
			t.Errorf("taints %v", got)
		}
		r.pod("after")
		if c := condition(r.getPod("after"), corev1.PodScheduled); !strings.HasPrefix(c.Message,
			"0/1 nodes are available: 1 node(s) were unschedulable.") {
			t.Errorf("condition %+v", c)
		}
		if r.getPod("before").Spec.NodeName != "n" {
			t.Error("cordon touched a pod")
		}
		cordon(false)
		r.pass(time.Second)
		if got := taintsOf(r.getNode("n")); len(got) != 0 || r.getPod("after").Spec.NodeName != "n" {
			t.Errorf("uncordoned: taints %v, pod on %q", got, r.getPod("after").Spec.NodeName)
		}
	})
}

// TestClosedNode: nothing is bound to a board that is shutting down, before its status says so (N-5.31).
func TestClosedNode(t *testing.T) {
	plane(t, Config{Schedule: scheduler.Config{Closed: func(n string) bool { return n == "a" }}}, func(r *rig) {
		r.node("a")
		r.node("b")
		for i := range 5 {
			r.pod(fmt.Sprint("p", i))
			if got := r.getPod(fmt.Sprint("p", i)).Spec.NodeName; got != "b" {
				t.Errorf("bound to %q", got)
			}
		}
	})
}

// TestNeverOverAllocatable: a flood of pods in one go, decided faster than the store's word comes back (N-10.8).
func TestNeverOverAllocatable(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("a")
		r.node("b")
		for i := range 30 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i)}}
			p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
			asks("700m")(p)
			if _, err := api.Create(r.ctx, r.Client, api.Pods, p); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(time.Minute)
		count := map[string]int{}
		for i := range 30 {
			count[r.getPod(fmt.Sprint("p", i)).Spec.NodeName]++
		}
		if count["a"] != 5 || count["b"] != 5 { // 5 x 700m of 4 cores
			t.Errorf("placed %v", count)
		}
	})
}

// TestBackoff: a pod that keeps failing is tried after 1, 2, 4, 8, 10, 10 s while things keep changing, and every five
// minutes when nothing does (N-10.3).
func TestBackoff(t *testing.T) {
	w := &waiting{}
	p := &corev1.Pod{}
	now := time.Now()
	var got []time.Duration
	for i := range 7 {
		got = append(got, w.wait(p, i, now))
		w.tries, w.last, w.hope = w.tries+1, now, i
	}
	if want := []time.Duration{0, 1, 2, 4, 8, 10, 10}; fmt.Sprint(got) != fmt.Sprint(scale(want)) {
		t.Errorf("got %v, want %v s", got, want)
	}
	if d := w.wait(p, w.hope, now); d != 5*time.Minute {
		t.Errorf("nothing changed: %s", d)
	}
	p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}}
	if d := w.wait(p, w.hope, now); d != 10*time.Second {
		t.Errorf("the pod changed: %s", d)
	}
	w.tries = 1000
	if d := w.wait(p, -2, now); d != 10*time.Second {
		t.Errorf("after many tries: %s", d)
	}
}

func scale(list []time.Duration) []time.Duration {
	out := slices.Clone(list)
	for i := range out {
		out[i] *= time.Second
	}
	return out
}

// TestBindFails: a store that fails for a moment is no reason to wait five minutes.
func TestBindFails(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.fail("create binding pods")
		r.pod("p")
		r.pass(5 * time.Second)
		r.fail("")
		r.pass(10 * time.Second)
		if got := r.getPod("p").Spec.NodeName; got != "n" {
			t.Errorf("node %q", got)
		}
	})
}

func class(r *rig, name string, value int32) {
	r.Helper()
	_, err := r.Create(r.ctx, scheduling.PriorityClasses, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value},
		api.WriteOptions{})
	if err != nil {
		r.Fatal(err)
	}
}

// TestPreemption: N-10.19 to N-10.22, from the victim's condition to the preemptor's place, with a lesser pod that would
// like to slip in between.
func TestPreemption(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		class(r, "high", 1000)
		r.node("n")
		defer r.alive("n")()
		r.pod("low", asks("3"))
		r.report("low", corev1.PodRunning)
		high := r.pod("high", asks("3"), func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" })
		low := r.getPod("low")
		c := condition(low, corev1.DisruptionTarget)
		if low.DeletionTimestamp == nil || *low.DeletionGracePeriodSeconds != 30 || c.Reason != "PreemptionByScheduler" ||
			c.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
			t.Fatalf("victim %+v %+v", low.ObjectMeta, c)
		}
		r.want("events", r.events("Preempted"), fmt.Sprintf("default-scheduler Normal Preempted low: Preempted by pod %s on node n", high.UID))
		p := r.getPod("high")
		if p.Status.NominatedNodeName != "n" || p.Spec.NodeName != "" {
			t.Errorf("preemptor nominated to %q, on %q", p.Status.NominatedNodeName, p.Spec.NodeName)
		}
		if m := condition(p, corev1.PodScheduled).Message; m != "0/1 nodes are available: 1 Insufficient cpu." {
			t.Errorf("message %q", m)
		}
		r.pass(20 * time.Second)
		r.pod("thief", asks("2"))
		r.confirm("low")
		r.pass(30 * time.Second)
		if got := r.getPod("high").Spec.NodeName; got != "n" {
			t.Errorf("preemptor on %q: %q", got, condition(r.getPod("high"), corev1.PodScheduled).Message)
		}
		if got := r.getPod("thief").Spec.NodeName; got != "" {
			t.Error("the room was stolen")
		}
	})
}

// TestCompanyComes: a pod that wants others near is placed when they come (N-10.3), also others of a namespace that is
// chosen by its labels.
func TestCompanyComes(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("a", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "attic"} })
		defer r.alive("a")()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"kind": "team"}}}
		if _, err := api.Create(r.ctx, r.Client, api.Namespaces, ns); err != nil {
			t.Fatal(err)
		}
		r.pod("p", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "team"}}}}}}
		})
		r.pass(time.Minute)
		r.want("events", r.events("FailedScheduling"), "default-scheduler Warning FailedScheduling p: 0/1 nodes are available: "+
			"1 node(s) didn't match pod affinity rules. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")
		r.pod("db", func(p *corev1.Pod) { p.Namespace, p.Labels = "team", map[string]string{"app": "db"} })
		r.pass(11 * time.Second)
		if r.getPod("p").Spec.NodeName != "a" {
			t.Error("still waiting")
		}
	})
}
