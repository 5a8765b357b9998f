package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
)

// TestSurplus: N-3.46 and N-6.36, per board.
func TestSurplus(t *testing.T) {
	ended := func(name, node string, age int, reason string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))}}
		p.Spec.NodeName, p.Status.Phase, p.Status.Reason = node, corev1.PodFailed, reason
		return p
	}
	running := ended("running", "a", 999, "")
	running.Status.Phase = corev1.PodRunning
	pods := []*corev1.Pod{ended("y", "a", 1, ""), running, ended("old", "a", 9, ""), ended("x", "a", 1, ""),
		ended("evicted", "a", 0, "Evicted"), ended("b", "b", 99, "")}
	for keep, want := range map[int][]string{-1: nil, 0: {"b", "evicted", "old", "x", "y"}, 2: {"evicted", "old"}, 1: {"evicted", "old", "x"},
		4: nil} {
		var got []string
		for _, p := range surplus(pods, keep) {
			got = append(got, p.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("keep %d: %v, want %v", keep, got, want)
		}
	}
}

// TestTerminatedPods: ended pods do not pile up on the card, those that a shutdown or an eviction has ended among them
// (N-3.45, N-3.46, N-5.43, N-6.36).
func TestTerminatedPods(t *testing.T) {
	plane(t, Config{TerminatedPods: 3}, func(r *rig) {
		r.node("n")
		for i := range 6 {
			r.pod(fmt.Sprint("p", i))
			r.report(fmt.Sprint("p", i), []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[i%2])
			r.pass(2 * time.Second)
		}
		r.pass(20 * time.Second)
		for i := range 6 {
			if gone := r.gone(api.Pods, "default", fmt.Sprint("p", i)); gone != (i < 3) {
				t.Errorf("p%d gone: %v", i, gone)
			}
		}
	})
}

// TestOrphans: pods and lease of a deleted node go after the quarantine, and say why (N-3.47, N-3.50).
func TestOrphans(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		stop := r.alive("n")
		r.pod("p")
		r.report("p", corev1.PodRunning)
		r.pod("q")
		r.report("q", corev1.PodSucceeded)
		w, err := r.Watch(r.ctx, api.Pods, api.WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		stop()
		if _, err := r.Delete(r.ctx, api.Nodes, "", "n", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(39 * time.Second)
		if r.gone(api.Pods, "default", "p") {
			t.Error("no quarantine")
		}
		r.pass(22 * time.Second)
		if !r.gone(api.Pods, "default", "p") || !r.gone(api.Pods, "default", "q") || !r.gone(coordination.Leases, "kube-node-lease", "n") {
			t.Error("still there after a minute")
		}
		for {
			e, err := w.Next()
			if err != nil {
				t.Fatal(err)
			}
			if p := e.Object.(*corev1.Pod); e.Type == api.Deleted && p.Name == "p" {
				c := condition(p, corev1.DisruptionTarget)
				if p.Status.Phase != corev1.PodFailed || c.Reason != "DeletionByPodGC" || c.Message != "PodGC: node no longer exists" {
					t.Errorf("went as %s %+v", p.Status.Phase, c)
				}
				break
			}
		}
	})
}

// TestOrphansSpared: a node that comes back within the quarantine keeps its pods; its stale lease does not survive it,
// a lease of the node as it is now does.
func TestOrphansSpared(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		stop := r.alive("n")
		r.pod("p")
		stop()
		if _, err := r.Delete(r.ctx, api.Nodes, "", "n", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(30 * time.Second)
		r.node("n")
		defer r.alive("n")()
		r.pass(5 * time.Minute)
		if r.gone(api.Pods, "default", "p") {
			t.Error("pods of a node that is back")
		}
		l, err := api.Get[interface {
			api.Object
		}](r.ctx, r.Client, coordination.Leases, "kube-node-lease", "n")
		if err != nil || l.GetOwnerReferences()[0].UID != r.getNode("n").UID {
			t.Errorf("lease %v, %v", l, err)
		}
	})
}

// TestUnscheduledTerminating: N-3.48. A finalizer keeps the object; the pod is marked failed all the same.
func TestUnscheduledTerminating(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.pod("p", func(p *corev1.Pod) { p.Finalizers = []string{"ledge.dev/test"} })
		if _, err := r.Delete(r.ctx, api.Pods, "default", "p", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(21 * time.Second)
		if p := r.getPod("p"); p.Status.Phase != corev1.PodFailed {
			t.Errorf("phase %s", p.Status.Phase)
		}
	})
}
