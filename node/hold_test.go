package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// TestHold: a node that holds its pods starts none, stops none, and says so, until they are released.
func TestHold(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("old")
		r.pass(time.Minute)
		old := r.get("old").Status.ContainerStatuses[0].ContainerID
		r.cfg.Hold = "held for a reason"
		r.begin()
		r.pod("new")
		if _, err := r.Delete(r.Context(), api.Pods, "default", "old", api.DeleteOptions{}); err != nil {
			r.Fatal(err)
		}
		r.pass(5 * time.Minute)
		if st, err := r.engine.List(r.Context()); err != nil || len(st.Containers) != 1 ||
			r.get("old").Status.ContainerStatuses[0].ContainerID != old {
			t.Errorf("%d containers, %v", len(st.Containers), err)
		}
		if p := r.get("new").Status.Phase; p != corev1.PodPending || r.agent.Held() == "" {
			t.Errorf("the new pod is %s", p)
		}
		ready := func() corev1.NodeCondition {
			n, err := api.Get[*corev1.Node](r.Context(), r.Client, api.Nodes, "", "n")
			if err != nil {
				r.Fatal(err)
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return c
				}
			}
			return corev1.NodeCondition{}
		}
		if c := ready(); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "held for a reason") {
			t.Errorf("the Node is %+v", c)
		}
		r.agent.Release()
		r.agent.Release()
		synctest.Wait()
		r.pass(2 * time.Minute)
		if p := r.get("new").Status.Phase; p != corev1.PodRunning || r.agent.Held() != "" {
			t.Errorf("released, the new pod is %s", p)
		}
		if _, err := api.Get[*corev1.Pod](r.Context(), r.Client, api.Pods, "default", "old"); err == nil {
			t.Error("the deleted pod is still there")
		}
		if c := ready(); c.Status != corev1.ConditionTrue {
			t.Errorf("the Node is %+v", c)
		}
	})
}
