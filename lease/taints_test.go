package lease

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// TestNoScheduleTable: N-3.14, N-3.15, N-3.18, N-1.68, N-6.36.
// Same key and effect is replaced, not doubled (N-3.19).
func TestNoScheduleTable(t *testing.T) {
	set := func(ct corev1.NodeConditionType, s corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			if c := api.NodeCondition(n, ct); c != nil {
				c.Status = s
				return
			}
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: ct, Status: s})
		}
	}
	for _, tt := range []struct {
		name string
		edit func(*corev1.Node)
		want []string
	}{
		{"healthy", func(*corev1.Node) {}, nil},
		{"not ready", set(corev1.NodeReady, corev1.ConditionFalse), []string{"node.kubernetes.io/not-ready:NoSchedule"}},
		{"unknown", set(corev1.NodeReady, corev1.ConditionUnknown), []string{"node.kubernetes.io/unreachable:NoSchedule"}},
		{"memory", set(corev1.NodeMemoryPressure, corev1.ConditionTrue), []string{"node.kubernetes.io/memory-pressure:NoSchedule"}},
		{"disk", set(corev1.NodeDiskPressure, corev1.ConditionTrue), []string{"node.kubernetes.io/disk-pressure:NoSchedule"}},
		{"pid", set(corev1.NodePIDPressure, corev1.ConditionTrue), []string{"node.kubernetes.io/pid-pressure:NoSchedule"}},
		{"network", set(corev1.NodeNetworkUnavailable, corev1.ConditionTrue), []string{"node.kubernetes.io/network-unavailable:NoSchedule"}},
		{"pressure unknown", set(corev1.NodeDiskPressure, corev1.ConditionUnknown), nil},
		{"cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, []string{"node.kubernetes.io/unschedulable:NoSchedule"}},
	} {
		n := newFleet(Settings{}).add("n", nil, corev1.ConditionTrue)
		tt.edit(n)
		var got []string
		for _, x := range taints(n, ExecuteKeep, epoch) {
			got = append(got, x.Key+":"+string(x.Effect))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	// Old ones of ours go, foreign ones and our keys with another effect stay, in their places.
	n := newFleet(Settings{}).add("n", nil, corev1.ConditionTrue)
	n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	c := Change{}
	if !c.Apply(n, epoch) || len(n.Spec.Taints) != 3 || n.Spec.Taints[0].Key != "mine" ||
		n.Spec.Taints[2].Effect != corev1.TaintEffectNoExecute {
		t.Errorf("taints %+v", n.Spec.Taints)
	}
	if c.Apply(n, epoch.Add(time.Hour)) {
		t.Error("not idempotent")
	}
}

// TestFreshNode keeps the taint of admission until it is seen Ready, and never gets it from us (N-1.6).
func TestFreshNode(t *testing.T) {
	f := newFleet(Settings{})
	f.add("a", nil, "").Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule,
		TimeAdded: &metav1.Time{}}}
	f.add("b", nil, "")
	f.step()
	if a, b := f.taintsOf("a"), f.taintsOf("b"); len(a) != 1 || len(b) != 0 {
		t.Errorf("taints %v %v", a, b)
	}
	f.post("a", corev1.ConditionTrue)
	f.step()
	if a := f.taintsOf("a"); len(a) != 0 {
		t.Errorf("ready, taints %v", a)
	}
}

// TestBetaLabels: N-3.20.
func TestBetaLabels(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "linux", "beta.kubernetes.io/os": "old"}}}
	if c := (Change{}); !c.Apply(n, epoch) || n.Labels["beta.kubernetes.io/os"] != "linux" || len(n.Labels) != 2 {
		t.Errorf("labels %v", n.Labels)
	}
	if c := (Change{}); c.Apply(&corev1.Node{}, epoch) {
		t.Error("a node with no labels is left alone")
	}
}
