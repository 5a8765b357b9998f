package controller

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
)

func exists(key string, seconds ...int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if len(seconds) > 0 {
		t.TolerationSeconds = &seconds[0]
	}
	return t
}

// TestFreshNode: registered, tainted by admission until it is Ready, then free (N-1.6, N-3.4, N-3.20).
func TestFreshNode(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		_, err := r.Create(r.ctx, kindOf(&corev1.Node{}), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
			Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "arm64"}}}, noOptions)
		if err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		r.want("taints", taintsOf(r.getNode("n")), "not-ready:NoSchedule")
		if l := r.getNode("n").Labels; l["beta.kubernetes.io/os"] != "linux" || l["beta.kubernetes.io/arch"] != "arm64" {
			t.Errorf("labels %v", l)
		}
		r.want("events", r.events("RegisteredNode"), "node-controller Normal RegisteredNode n: Node n event: Registered Node n in Controller")
		r.post("n", corev1.ConditionTrue)
		r.pass(0)
		r.want("taints", taintsOf(r.getNode("n")))
	})
}

// TestLostNode, from silence to the last pod: N-3.8, N-3.12, N-3.14, N-3.16, N-3.22, N-3.24, N-3.26, N-3.33.
// Conditions are written before taints, and no new pod comes (N-3.3, N-3.21); it is an ordinary DELETE (N-3.27).
func TestLostNode(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("a")
		defer r.alive("a")()
		r.node("b", func(n *corev1.Node) { n.Labels = map[string]string{"b": "b"} })
		stop := r.alive("b")
		onB := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"b": "b"} }
		r.pod("default", onB)
		r.pod("short", onB, tolerating(exists(corev1.TaintNodeUnreachable, 60)))
		r.pod("forever", onB, tolerating(exists(corev1.TaintNodeUnreachable)))
		for _, p := range []string{"default", "short", "forever"} {
			r.report(p, corev1.PodRunning, func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			})
		}
		r.pass(time.Hour)
		r.want("a healthy hour", r.events("NodeNotReady", "TaintManagerEviction"))
		stop()
		l, err := api.Get[*coordinationv1.Lease](r.ctx, r.Client, coordination.Leases, corev1.NamespaceNodeLease, "b")
		heard := must(r, l, err).Spec.RenewTime.Time // jitter decides how long ago
		r.pass(time.Until(heard.Add(39 * time.Second)))
		if len(taintsOf(r.getNode("b"))) != 0 {
			t.Fatal("lost before the grace")
		}
		r.pass(20 * time.Second)
		r.want("taints", taintsOf(r.getNode("b")), "unreachable:NoExecute", "unreachable:NoSchedule")
		if c := r.getNode("b").Status.Conditions[0]; c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusUnknown" {
			t.Errorf("condition %+v", c)
		}
		r.want("events", r.events("NodeNotReady"),
			"node-controller Normal NodeNotReady b: Node b status is now: NodeNotReady",
			"node-controller Warning NodeNotReady default: Node is not ready",
			"node-controller Warning NodeNotReady forever: Node is not ready",
			"node-controller Warning NodeNotReady short: Node is not ready")
		for _, p := range []string{"default", "short", "forever"} {
			if p := r.getPod(p); condition(p, corev1.PodReady).Status != corev1.ConditionFalse || p.Status.Phase != corev1.PodRunning {
				t.Errorf("%s is %s, %+v", p.Name, p.Status.Phase, condition(p, corev1.PodReady))
			}
		}
		r.pass(65 * time.Second)
		p := r.getPod("short")
		if c := condition(p, corev1.DisruptionTarget); p.DeletionTimestamp == nil || c.Reason != "DeletionByTaintManager" ||
			c.Message != "Taint manager: deleting due to NoExecute taint" {
			t.Errorf("short: %+v", c)
		}
		if r.getPod("default").DeletionTimestamp != nil {
			t.Error("300 s are not over")
		}
		r.pass(4 * time.Minute)
		if r.getPod("default").DeletionTimestamp == nil || r.getPod("forever").DeletionTimestamp != nil {
			t.Error("after 300 s the default is over and for ever is not")
		}
		r.want("events", r.events("TaintManagerEviction"),
			"taint-eviction-controller Normal TaintManagerEviction default: Marking for deletion Pod default/default",
			"taint-eviction-controller Normal TaintManagerEviction short: Marking for deletion Pod default/short")
		before := r.writes.Load()
		r.pass(30 * time.Minute)
		if now := r.writes.Load(); now != before {
			t.Errorf("%d writes about a node that is known to be lost", now-before)
		}
		if r.getPod("short").DeletionTimestamp == nil {
			t.Error("nobody but the agent may remove it")
		}
	})
}

// TestNodeReturns: taints go, the pending deletion is off (N-3.17, N-3.25).
func TestNodeReturns(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("a")
		defer r.alive("a")()
		r.node("b", func(n *corev1.Node) { n.Labels = map[string]string{"b": "b"} })
		r.pod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"b": "b"} })
		r.pass(time.Minute)
		r.want("taints", taintsOf(r.getNode("b")), "unreachable:NoExecute", "unreachable:NoSchedule")
		r.post("b", corev1.ConditionTrue)
		defer r.alive("b")()
		r.pass(time.Second)
		r.want("taints", taintsOf(r.getNode("b")))
		r.want("events", r.events("TaintManagerEviction"),
			"taint-eviction-controller Normal TaintManagerEviction p: Cancelling deletion of Pod default/p")
		r.pass(time.Hour)
		if r.getPod("p").DeletionTimestamp != nil {
			t.Error("evicted all the same")
		}
	})
}

// TestLoneBoard: N-3.43. One node that is lost keeps its pods, for ever.
// A Node that nobody backs is kept (N-1.5).
func TestLoneBoard(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.pod("p")
		r.pass(2 * time.Hour)
		r.want("taints", taintsOf(r.getNode("n")), "unreachable:NoSchedule")
		if r.getPod("p").DeletionTimestamp != nil {
			t.Error("evicted with nowhere to go")
		}
	})
}

// TestIdle: a healthy cluster costs the card nothing, lease renewals apart (promise 6).
func TestIdle(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("a")
		defer r.alive("a")()
		r.pod("p")
		r.report("p", corev1.PodRunning)
		r.pass(time.Minute)
		before := r.writes.Load()
		r.pass(24 * time.Hour)
		if now := r.writes.Load(); now != before {
			t.Errorf("%d writes in a quiet day", now-before)
		}
	})
}

// TestWritesFailMeanwhile: what could not be written is written later (N-3.9).
func TestWritesFailMeanwhile(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		r.pod("p")
		r.report("p", corev1.PodRunning, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		})
		r.fail("update status nodes")
		r.pass(2 * time.Minute)
		if c := r.getNode("n").Status.Conditions[0]; c.Status != corev1.ConditionTrue {
			t.Fatal("the fault does not bite")
		}
		r.fail("update nodes")
		r.pass(20 * time.Second)
		if c := r.getNode("n").Status.Conditions[0]; c.Status != corev1.ConditionUnknown || len(taintsOf(r.getNode("n"))) != 0 {
			t.Errorf("conditions follow: %+v %v", c, taintsOf(r.getNode("n")))
		}
		r.fail("update status pods")
		r.pass(20 * time.Second)
		r.want("taints", taintsOf(r.getNode("n")), "unreachable:NoSchedule")
		r.fail("")
		r.pass(20 * time.Second)
		if c := condition(r.getPod("p"), corev1.PodReady); c.Status != corev1.ConditionFalse {
			t.Errorf("pods follow: %+v", c)
		}
	})
}
