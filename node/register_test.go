package node

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// TestObject is the Node as first posted (N-1.28, N-1.14).
func TestObject(t *testing.T) {
	taint := corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}
	f := someFacts(func(f *facts) {
		f.reg = Registration{Labels: map[string]string{"tier": "edge", corev1.LabelArchStable: "mine"}, Taints: []corev1.Taint{taint}, External: true}
	})
	n := f.object()
	want := map[string]string{"kubernetes.io/hostname": "n", "kubernetes.io/os": "linux", "kubernetes.io/arch": "mine",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64", "tier": "edge"}
	if n.Name != "n" || !maps.Equal(n.Labels, want) {
		t.Errorf("%s %v", n.Name, n.Labels)
	}
	if len(n.Spec.Taints) != 2 || n.Spec.Taints[0] != taint || n.Spec.Taints[1].Key != "node.cloudprovider.kubernetes.io/uninitialized" {
		t.Errorf("taints %v", n.Spec.Taints)
	}
	if len(n.Status.Conditions) != 4 || n.Status.NodeInfo.BootID != "boot-1" {
		t.Errorf("status %+v", n.Status)
	}
	if len(f.reg.Taints) != 1 || len(f.reg.Labels) != 2 {
		t.Error("the registration was changed")
	}
}

// TestReconcileLabels of N-1.31: a restart brings the default keys it has, and no other label.
func TestReconcileLabels(t *testing.T) {
	type labels = map[string]string
	for _, c := range []struct {
		what            string
		old, fresh, out labels
		changed         bool
	}{
		{"nothing to do", labels{"kubernetes.io/os": "linux", "x": "y"}, labels{"kubernetes.io/os": "linux"}, labels{"kubernetes.io/os": "linux", "x": "y"}, false},
		{"missing", nil, labels{"kubernetes.io/os": "linux"}, labels{"kubernetes.io/os": "linux"}, true},
		{"wrong", labels{"kubernetes.io/arch": "amd64"}, labels{"kubernetes.io/arch": "arm64"}, labels{"kubernetes.io/arch": "arm64"}, true},
		{"a new zone", labels{"topology.kubernetes.io/zone": "a"}, labels{"topology.kubernetes.io/zone": "b"}, labels{"topology.kubernetes.io/zone": "b"}, true},
		{"every default key", nil, labels{"kubernetes.io/hostname": "1", "topology.kubernetes.io/zone": "2", "topology.kubernetes.io/region": "3",
			"failure-domain.beta.kubernetes.io/zone": "4", "failure-domain.beta.kubernetes.io/region": "5", "beta.kubernetes.io/instance-type": "6",
			"node.kubernetes.io/instance-type": "7", "kubernetes.io/os": "8", "kubernetes.io/arch": "9", "beta.kubernetes.io/os": "10", "beta.kubernetes.io/arch": "11"},
			labels{"kubernetes.io/hostname": "1", "topology.kubernetes.io/zone": "2", "topology.kubernetes.io/region": "3",
				"failure-domain.beta.kubernetes.io/zone": "4", "failure-domain.beta.kubernetes.io/region": "5", "beta.kubernetes.io/instance-type": "6",
				"node.kubernetes.io/instance-type": "7", "kubernetes.io/os": "8", "kubernetes.io/arch": "9", "beta.kubernetes.io/os": "10", "beta.kubernetes.io/arch": "11"}, true},
		{"a label of one's own is not brought", labels{"x": "old"}, labels{"tier": "edge", "x": "new"}, labels{"x": "old"}, false},
		{"a key the fresh one has not stays", labels{"topology.kubernetes.io/zone": "a"}, labels{"kubernetes.io/os": "linux"},
			labels{"topology.kubernetes.io/zone": "a", "kubernetes.io/os": "linux"}, true},
		{"an empty value takes the key away", labels{"topology.kubernetes.io/zone": "a", "x": "y"}, labels{"topology.kubernetes.io/zone": ""}, labels{"x": "y"}, true},
		{"an empty value where there is none", labels{"x": "y"}, labels{"topology.kubernetes.io/zone": ""}, labels{"x": "y"}, false},
	} {
		old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(c.old)}}
		changed := reconcileLabels(old, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: c.fresh}})
		if changed != c.changed || !maps.Equal(old.Labels, c.out) {
			t.Errorf("%s: changed %v to %v, want %v %v", c.what, changed, old.Labels, c.changed, c.out)
		}
	}
}

// TestRegisteredBefore: what a restart changes on a Node that exists, and what it does not (N-1.30 to N-1.33, N-1.19).
func TestRegisteredBefore(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.cfg.Registration = Registration{Labels: map[string]string{"tier": "edge", corev1.LabelTopologyZone: "a"},
			Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}}
		r.begin()
		r.pass(time.Minute)
		uid := r.node().UID
		patch := api.Patch{Type: types.MergePatchType, Data: []byte(`{"metadata":{"labels":{"mine":"x","kubernetes.io/os":"windows"}},"spec":{"taints":null}}`)}
		if _, err := r.Patch(r.Context(), api.Nodes, "", "n", patch, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(11 * time.Second)
		if os := r.node().Labels[corev1.LabelOSStable]; os != "linux" { // N-1.33: at every look
			t.Errorf("os %q", os)
		}
		r.cfg.Registration = Registration{Labels: map[string]string{"tier": "core", "other": "y", corev1.LabelTopologyZone: "b"},
			Taints: []corev1.Taint{{Key: "k2", Effect: corev1.TaintEffectNoSchedule}}}
		r.begin()
		r.pass(time.Minute)
		n := r.node()
		for key, want := range map[string]string{corev1.LabelTopologyZone: "b", "tier": "edge", "other": "", "mine": "x"} {
			if n.Labels[key] != want {
				t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
			}
		}
		if len(n.Spec.Taints) > 0 || n.UID != uid {
			t.Errorf("taints %v, uid %s, was %s", n.Spec.Taints, n.UID, uid)
		}
	})
}

func TestSameStatus(t *testing.T) {
	a := someFacts().object().Status
	for what, c := range map[string]struct {
		edit func(*corev1.NodeStatus)
		same bool
	}{
		"heartbeat":  {func(s *corev1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		"transition": {func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() }, false},
		"reason":     {func(s *corev1.NodeStatus) { s.Conditions[3].Reason = "x" }, false},
		"address":    {func(s *corev1.NodeStatus) { s.Addresses[0].Address = "192.0.2.9" }, false},
		"image":      {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{{}} }, false},
		"no images":  {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{} }, true},
		"amount, written otherwise": {func(s *corev1.NodeStatus) {
			s.Capacity = amounts("cpu", "4000m", "memory", "4096Mi", "ephemeral-storage", "34359738368", "pods", "110")
		}, true},
	} {
		b := *a.DeepCopy()
		c.edit(&b)
		kept := b.DeepCopy()
		if got := sameStatus(&a, &b); got != c.same {
			t.Errorf("%s: same is %v", what, got)
		}
		if !b.Conditions[0].LastHeartbeatTime.Equal(&kept.Conditions[0].LastHeartbeatTime) {
			t.Errorf("%s: comparing changed it", what)
		}
	}
}
