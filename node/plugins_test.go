package node

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/node/devices"
)

// TestPluginRoom: a pod that asks plugins for more than there is is turned away in a kubelet's words, but not while plugins may be about to
// register, and whoever has no plugin is left to the Node.
func TestPluginRoom(t *testing.T) {
	pod := func(n int64) *corev1.Pod {
		list := corev1.ResourceList{"example.com/radio": *resource.NewQuantity(n, resource.DecimalSI)}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
			Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}}}}
	}
	r := room{allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}, pods: []*corev1.Pod{pod(1)},
		plugins: map[string]devices.Count{"example.com/radio": {Capacity: 3, Allocatable: 2}}}
	if why, _ := r.refuses(pod(1)); why != nil {
		t.Errorf("one is free: %+v", why)
	}
	why, lack := r.refuses(pod(2))
	if why == nil || why.reason != "UnexpectedAdmissionError" || lack["example.com/radio"] != 1 || !strings.Contains(why.message,
		"Allocate failed due to requested number of devices unavailable for example.com/radio. Requested: 2, Available: 1, which is unexpected") {
		t.Errorf("%+v %v", why, lack)
	}
	r.pluginsYoung = true
	if why, _ := r.refuses(pod(2)); why != nil {
		t.Errorf("plugins may be about to register: %+v", why)
	}
	r.plugins, r.pluginsYoung = nil, false
	if why, _ := r.refuses(pod(2)); why != nil {
		t.Errorf("nobody counts them: %+v", why)
	}
}
