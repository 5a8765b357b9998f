package downward

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func facts() Facts {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1",
		Labels:      map[string]string{"b": "2", "a": "1"},
		Annotations: map[string]string{"note": "say \"hi\"\nthen go", "x/y": "z"}}}
	p.Spec.NodeName, p.Spec.ServiceAccountName = "n", "sa"
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"cpu": resource.MustParse("1250m"), "memory": resource.MustParse("64Mi")},
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("33Mi"),
			"ephemeral-storage": resource.MustParse("1k")}}},
		{Name: "open"}}
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"cpu": resource.MustParse("0")}}}}
	return Facts{Pod: p, HostIPs: []string{"192.0.2.1", "2001:db8::1"}, PodIPs: []string{"10.0.0.2", "fd00::2"},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("1Gi"),
			"ephemeral-storage": resource.MustParse("2Gi")}}
}

func TestField(t *testing.T) { // N-7.47, N-7.48
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "u1",
		"metadata.labels": "a=\"1\"\nb=\"2\"", "metadata.labels['a']": "1", "metadata.labels['none']": "",
		"metadata.annotations": "note=\"say \\\"hi\\\"\\nthen go\"\nx/y=\"z\"", "metadata.annotations['x/y']": "z",
		"spec.nodeName": "n", "spec.serviceAccountName": "sa",
		"status.hostIP": "192.0.2.1", "status.hostIPs": "192.0.2.1,2001:db8::1",
		"status.podIP": "10.0.0.2", "status.podIPs": "10.0.0.2,fd00::2",
	} {
		if got, err := facts().Field(path); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "status.phase", "spec.nodeName['x']", "metadata.labels['']"} {
		if got, err := facts().Field(path); err == nil {
			t.Errorf("%q was taken: %q", path, got)
		}
	}
	if got, err := (Facts{Pod: &corev1.Pod{}}).Field("status.podIP"); got != "" || err != nil {
		t.Errorf("without an address: %q %v", got, err)
	}
}

func TestResource(t *testing.T) { // N-7.47
	for _, c := range []struct{ container, resource, divisor, want string }{
		{"", "limits.cpu", "", "2"}, // rounded up
		{"", "limits.cpu", "1m", "1250"},
		{"", "limits.cpu", "1", "2"},
		{"", "limits.memory", "", "67108864"},
		{"", "limits.memory", "1Mi", "64"},
		{"", "limits.memory", "1Gi", "1"},
		{"", "requests.cpu", "", "1"},
		{"", "requests.memory", "10Mi", "4"},
		{"", "requests.ephemeral-storage", "1k", "1"},
		{"", "limits.ephemeral-storage", "1Gi", "2"}, // the node's: the container has none
		{"open", "limits.cpu", "", "4"},
		{"open", "limits.memory", "1Mi", "1024"},
		{"open", "requests.cpu", "1m", "0"},
		{"open", "limits.hugepages-2Mi", "", "0"},
		{"i", "limits.cpu", "", "4"}, // zero is no limit
	} {
		ref := &corev1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource}
		if c.divisor != "" {
			ref.Divisor = resource.MustParse(c.divisor)
		}
		if got, err := facts().Resource(ref, "c"); got != c.want || err != nil {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
	whole := facts()
	whole.Pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("3")}}
	if got, err := whole.Resource(&corev1.ResourceFieldSelector{ContainerName: "open", Resource: "limits.cpu"}, "c"); got != "3" ||
		err != nil {
		t.Errorf("a limit of the whole pod: %q %v", got, err)
	}
	for _, ref := range []corev1.ResourceFieldSelector{{ContainerName: "none", Resource: "limits.cpu"}, {Resource: "cpu"},
		{Resource: "wishes.cpu"}} {
		if got, err := facts().Resource(&ref, "c"); err == nil {
			t.Errorf("%+v was taken: %q", ref, got)
		}
	}
}
