package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// taint adds a taint to a node, as its operator does.
func (r *rig) taint(name string, t corev1.Taint) {
	r.Helper()
	n := r.getNode(name)
	n.Spec.Taints = append(n.Spec.Taints, t)
	_, err := api.Update(r.ctx, r.Client, api.Nodes, n)
	must(r, n, err)
	r.pass(0)
}

// lostWithPods is two boards, of which b falls silent with three pods: one that a user deletes, one that only the
// time-out would, and one that tolerates everything.
func lostWithPods(r *rig) {
	r.node("a")
	r.alive("a")
	r.node("b", func(n *corev1.Node) { n.Labels = map[string]string{"b": "b"} })
	stop := r.alive("b")
	onB := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"b": "b"} }
	r.pod("deleted", onB)
	r.pod("waits", onB)
	r.pod("tolerates", onB, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}))
	for _, p := range []string{"deleted", "waits", "tolerates"} {
		r.report(p, corev1.PodRunning)
	}
	stop()
	r.pass(2 * time.Minute)
	_, err := r.Delete(r.ctx, api.Pods, "default", "deleted", api.DeleteOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.pass(10 * time.Minute) // the default toleration is over as well
}

func (r *rig) left() string {
	r.Helper()
	list, err := r.List(r.ctx, api.Pods, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		mark := ""
		if o.GetDeletionTimestamp() != nil {
			mark = "-"
		}
		out = append(out, o.GetName()+mark)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestOutOfService: pods of a lost board stay, being deleted, until the operator vouches that it is off (N-4.1, N-4.2,
// N-4.3); then they go, and what they held in a second step (N-4.7). Tolerations decide only who is deleted (N-4.4), and
// nobody takes the taint away (N-4.8).
func TestOutOfService(t *testing.T) {
	for _, c := range []struct {
		effect corev1.TaintEffect
		value  string
	}{{corev1.TaintEffectNoExecute, "nodeshutdown"}, {corev1.TaintEffectNoSchedule, ""}, {corev1.TaintEffectPreferNoSchedule, "x"}} {
		m := NewMetrics()
		plane(t, Config{Metrics: m}, func(r *rig) {
			lostWithPods(r)
			if got := r.left(); got != "deleted- tolerates waits-" {
				t.Fatalf("before the taint: %s", got)
			}
			n := r.getNode("b")
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "disk"}}
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{"disk"}
			_, err := api.UpdateStatus(r.ctx, r.Client, api.Nodes, n)
			must(r, n, err)
			r.taint("b", corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: c.value, Effect: c.effect})
			r.pass(25 * time.Second)
			if got := r.left(); got != "tolerates" {
				t.Errorf("%s: left %s", c.effect, got)
			}
			r.want("events", r.events("OutOfServicePodsDeleted", "OutOfServiceVolumesReleased"),
				"pod-garbage-collector Normal OutOfServicePodsDeleted b: Deleted by force, the node being out of service: default/deleted, default/waits",
				"pod-garbage-collector Normal OutOfServiceVolumesReleased b: Released the volumes of 2 pods")
			if n := r.getNode("b"); len(n.Status.VolumesAttached) != 1 {
				t.Error("a pod that is still there lost its volume")
			}
			if _, err := r.Delete(r.ctx, api.Pods, "default", "tolerates", api.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			r.pass(25 * time.Second)
			if n := r.getNode("b"); r.left() != "" || len(n.Status.VolumesAttached)+len(n.Status.VolumesInUse) != 0 {
				t.Errorf("left %s, attached %v", r.left(), n.Status.VolumesAttached)
			}
			r.pass(time.Hour)
			if !slices.ContainsFunc(r.getNode("b").Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }) {
				t.Error("somebody took the taint away")
			}
			r.post("b", corev1.ConditionTrue)
			r.alive("b")
			r.pod("later", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"b": "b"} })
			r.pass(time.Minute)
			if placed := r.getPod("later").Spec.NodeName != ""; placed != (c.effect == corev1.TaintEffectPreferNoSchedule) {
				t.Errorf("%s: a new pod was placed: %v", c.effect, placed)
			}
		})
		text := m.Text()
		for _, want := range []string{ // N-3.34, N-3.44, N-3.49
			"pod_gc_collector_force_delete_pods_total{namespace=\"default\",reason=\"out-of-service\"} 3\n",
			"taint_eviction_controller_pod_deletions_total 1\n",
			"taint_eviction_controller_pod_deletion_duration_seconds_count 1\n",
			"node_collector_evictions_total{zone=\"\"} 1\n",
			"node_collector_zone_size{zone=\"\"} 2\n", "node_collector_zone_health{zone=\"\"} 100\n",
			"node_collector_unhealthy_nodes_in_zone{zone=\"\"} 0\n",
			"node_collector_update_node_health_duration_seconds_bucket{le=\"+Inf\"}",
			"node_collector_update_all_nodes_health_duration_seconds_count",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("metrics lack %q:\n%s", want, text)
			}
		}
	}
}

// TestOutOfServiceEvicts: with NoExecute the pods that nobody has marked yet are, and go, without waiting for the
// time-out (N-4.4); a switch has NoSchedule do so too (N-4.5), and another has the taint do nothing (N-4.10).
func TestOutOfServiceEvicts(t *testing.T) {
	for _, c := range []struct {
		effect corev1.TaintEffect
		cfg    OutOfService
		left   string
	}{
		{corev1.TaintEffectNoExecute, OutOfService{}, ""},
		{corev1.TaintEffectNoSchedule, OutOfService{}, "p"},
		{corev1.TaintEffectNoSchedule, OutOfService{NoScheduleEvicts: true}, ""},
		{corev1.TaintEffectNoExecute, OutOfService{Ignored: true}, "p-"},
	} {
		plane(t, Config{OutOfService: c.cfg}, func(r *rig) {
			r.node("a")
			r.alive("a")
			r.node("b", func(n *corev1.Node) { n.Labels = map[string]string{"b": "b"} })
			stop := r.alive("b")
			r.pod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"b": "b"} })
			r.report("p", corev1.PodRunning)
			stop()
			r.pass(2 * time.Minute)
			r.taint("b", corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: c.effect})
			r.pass(time.Minute)
			if got := r.left(); got != c.left {
				t.Errorf("%s %+v: left %q, want %q", c.effect, c.cfg, got, c.left)
			}
		})
	}
}

// TestOutOfServiceAndReady: on a board that is heard the taint forces nothing; its agent ends the pods (N-4.6, N-4.9).
func TestOutOfServiceAndReady(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.alive("n")
		r.pod("p")
		r.report("p", corev1.PodRunning)
		r.taint("n", corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
		r.pass(5 * time.Minute)
		if got := r.left(); got != "p-" {
			t.Fatalf("left %q", got)
		}
		r.confirm("p")
		if got := r.left(); got != "" {
			t.Errorf("left %q", got)
		}
		r.want("events", r.events("OutOfServicePodsDeleted"))
	})
}

// TestNewPodOnLostNode: a pod that is bound to a node nobody hears is not ready there (N-3.13).
func TestNewPodOnLostNode(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.pass(2 * time.Minute)
		for i := range 2 {
			name := fmt.Sprint("p", i)
			r.pod(name, func(p *corev1.Pod) { p.Spec.NodeName = "n" })
			r.report(name, corev1.PodRunning, func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			})
			if r.fail("update status pods"); i == 0 {
				r.fail("")
			}
			r.pass(10 * time.Second)
			r.fail("") // what could not be written is written at the next look
			r.pass(10 * time.Second)
			if c := condition(r.getPod(name), corev1.PodReady); c.Status != corev1.ConditionFalse {
				t.Errorf("%s: %+v", name, c)
			}
		}
		r.want("events", r.events("NodeNotReady"), "node-controller Normal NodeNotReady n: Node n status is now: NodeNotReady",
			"node-controller Warning NodeNotReady p0: Node is not ready", "node-controller Warning NodeNotReady p1: Node is not ready")
	})
}

// TestMirrorsAreDeletedToo, once, like any pod: it changes nothing on the node (N-3.28).
func TestMirrorsAreDeletedToo(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		n := r.node("n")
		r.alive("n")
		yes := true
		r.pod("static", func(p *corev1.Pod) {
			p.Spec.NodeName = "n"
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			p.OwnerReferences = append(p.OwnerReferences,
				metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: n.UID, Controller: &yes})
		})
		r.pod("going")
		if _, err := r.Delete(r.ctx, api.Pods, "default", "going", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		at := r.getPod("going").DeletionTimestamp
		r.taint("n", corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoExecute})
		r.pass(time.Second)
		if got := r.left(); got != "going- static-" && got != "going-" {
			t.Errorf("left %q", got)
		}
		if now := r.getPod("going").DeletionTimestamp; !now.Equal(at) {
			t.Errorf("a pod that was going got another end: %s, was %s", now, at)
		}
	})
}
