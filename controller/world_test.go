package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/policy"
)

// Kinds without objects are not followed, and loops that look at them do not wait; the first object is acted upon.
func TestWorldFollowsWhatThereIs(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		follows := func(kind *api.Kind) bool {
			_, ok := r.watched.Load(kind)
			return ok
		}
		for _, k := range []*api.Kind{api.Nodes, api.Pods, coordination.Leases, policy.PodDisruptionBudgets, api.ReplicationControllers} {
			if follows(k) {
				t.Errorf("%s are followed, and there are none", k)
			}
		}
		r.node("n")
		r.pass(time.Second)
		if !follows(api.Nodes) || follows(api.ReplicationControllers) {
			t.Error("with a node, nodes are followed and controllers are not")
		}
		rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		rc.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		_, err := api.Create(r.ctx, r.Client, api.ReplicationControllers, rc)
		must(r, rc, err)
		r.pass(time.Second)
		list, err := r.Client.List(r.ctx, api.Pods, api.ListOptions{})
		if err != nil || len(list.Items) != 1 || !follows(api.ReplicationControllers) || !follows(api.Pods) {
			t.Errorf("after the first controller there are %d pods, %v", len(list.Items), err)
		}
	})
}
