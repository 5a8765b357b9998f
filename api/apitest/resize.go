package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// testPodResize: cpu and memory of a pod's containers, and nothing else, change through the subresource.
func testPodResize(t *testing.T, c api.Client) {
	e := begin(t, c)
	amount := resource.MustParse
	p := e.pod("p")
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": amount("100m"), "memory": amount("10Mi"), "ephemeral-storage": amount("1Mi")},
		Limits:   corev1.ResourceList{"memory": amount("20Mi")}}
	p = e.create(p).(*corev1.Pod)
	if got := p.Spec.Containers[0].ResizePolicy; len(got) != 0 {
		t.Errorf("a resizePolicy nobody wrote: %+v", got)
	}
	resize := func(data string) (api.Object, error) {
		return e.patch(api.Pods, e.ns, "p", types.StrategicMergePatchType, data, api.WriteOptions{Subresource: api.Resize})
	}
	obj, err := resize(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","resources":{
		"requests":{"cpu":"250m","memory":"12Mi"},"limits":{"memory":"40Mi"}}}]}}`)
	e.must(err)
	got := obj.(*corev1.Pod)
	r := got.Spec.Containers[0].Resources
	if r.Requests.Cpu().String() != "250m" || r.Requests.Memory().String() != "12Mi" || r.Limits.Memory().String() != "40Mi" ||
		got.Generation != p.Generation+1 {
		t.Errorf("resized to %+v, generation %d", r, got.Generation)
	}
	if len(got.Labels) != len(p.Labels) {
		t.Errorf("labels changed through resize: %v", got.Labels)
	}
	for what, data := range map[string]string{
		"storage":       `{"spec":{"containers":[{"name":"c","resources":{"requests":{"ephemeral-storage":"2Mi"}}}]}}`,
		"removed limit": `{"spec":{"containers":[{"name":"c","resources":{"limits":{"memory":null}}}]}}`,
		"class":         `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"40Mi"},"limits":{"cpu":"1"}}}]}}`,
		"above limit":   `{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"41Mi"}}}]}}`,
		"one more":      `{"spec":{"containers":[{"name":"d","image":"x"}]}}`,
	} {
		_, err := resize(data)
		if err == nil {
			t.Errorf("%s: changed through resize", what)
			continue
		}
		e.fails(err, metav1.StatusReasonInvalid, 422)
	}
	_, err = e.patch(api.Pods, e.ns, "p", types.StrategicMergePatchType,
		`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonInvalid, 422)
}
