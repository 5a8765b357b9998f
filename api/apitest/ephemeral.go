package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// testPodEphemeral: as kubectl debug does it, containers come into a pod that runs through a subresource, and nothing
// else of the pod changes by it.
func testPodEphemeral(t *testing.T, c api.Client) {
	e := begin(t, c)
	p := e.boundPod("p")
	add := func(data string) (api.Object, error) {
		return e.patch(api.Pods, e.ns, "p", types.StrategicMergePatchType, data, api.WriteOptions{Subresource: api.Ephemeral})
	}
	obj, err := add(`{"metadata":{"labels":{"a":"b"}},"spec":{"terminationGracePeriodSeconds":7,
		"ephemeralContainers":[{"name":"debug","image":"ledge.local/self","targetContainerName":"c"}]}}`)
	e.must(err)
	got := obj.(*corev1.Pod)
	if n := got.Spec.EphemeralContainers; len(n) != 1 || n[0].TerminationMessagePath == "" || n[0].ImagePullPolicy != corev1.PullAlways ||
		got.Generation != p.Generation+1 {
		t.Errorf("got %+v, generation %d", n, got.Generation)
	}
	if len(got.Labels) != len(p.Labels) || *got.Spec.TerminationGracePeriodSeconds != *p.Spec.TerminationGracePeriodSeconds {
		t.Errorf("something else changed: %+v %+v", got.Labels, got.Spec)
	}
	_, err = add(`{"spec":{"ephemeralContainers":[{"name":"more","image":"ledge.local/self"}]}}`)
	e.must(err)
	now := e.get(p).(*corev1.Pod)
	if len(now.Spec.EphemeralContainers) != 2 {
		t.Errorf("got %+v", now.Spec.EphemeralContainers)
	}
	_, err = add(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"other"}]}}`)
	e.fails(err, metav1.StatusReasonInvalid, 422)
	now.Spec.EphemeralContainers = now.Spec.EphemeralContainers[:1]
	_, err = c.Update(e.ctx, api.Pods, now, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonInvalid, 422)
	fresh := e.pod("q")
	fresh.Spec.EphemeralContainers = now.Spec.EphemeralContainers
	_, err = c.Create(e.ctx, api.Pods, fresh, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonInvalid, 422)
}
