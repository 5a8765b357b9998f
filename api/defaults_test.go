package api

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// validPod is an ordinary pod with its defaults filled in.
func validPod() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}}},
	}
	fill(pod)
	return pod
}

func TestPodDefaults(t *testing.T) { // N-7.1
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		HostNetwork:              true,
		DeprecatedServiceAccount: "sa",
		Volumes: []corev1.Volume{{Name: "e"},
			{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}}},
		Containers: []corev1.Container{{
			Name: "c", Image: "busybox",
			Ports: []corev1.ContainerPort{{ContainerPort: 80}},
			Env:   []corev1.EnvVar{{Name: "N", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("1.0000001"), "memory": resource.MustParse("1Gi")},
				Requests: corev1.ResourceList{"memory": resource.MustParse("1Mi")},
			},
		}},
		InitContainers: []corev1.Container{{Name: "i", Image: "busybox:1.36"}},
	}}
	pod.Status.PodIP = "10.1.2.3"
	fill(pod)
	s, c := pod.Spec, pod.Spec.Containers[0]
	for what, ok := range map[string]bool{
		"restartPolicy":      s.RestartPolicy == corev1.RestartPolicyAlways,
		"grace":              *s.TerminationGracePeriodSeconds == 30,
		"dnsPolicy":          s.DNSPolicy == corev1.DNSClusterFirst,
		"schedulerName":      s.SchedulerName == "default-scheduler",
		"securityContext":    s.SecurityContext != nil,
		"enableServiceLinks": *s.EnableServiceLinks,
		"pull of no tag":     c.ImagePullPolicy == corev1.PullAlways,
		"pull of a tag":      s.InitContainers[0].ImagePullPolicy == corev1.PullIfNotPresent,
		"message path":       c.TerminationMessagePath == "/dev/termination-log",
		"message policy":     c.TerminationMessagePolicy == corev1.TerminationMessageReadFile,
		"protocol":           c.Ports[0].Protocol == corev1.ProtocolTCP,
		"host port":          c.Ports[0].HostPort == 80,
		"fieldRef":           c.Env[0].ValueFrom.FieldRef.APIVersion == "v1",
		"request of a limit": c.Resources.Requests.Cpu().String() == "1001m",
		"own request":        c.Resources.Requests.Memory().String() == "1Mi",
		"emptyDir":           s.Volumes[0].EmptyDir != nil,
		"hostPath type":      s.Volumes[1].HostPath.Type != nil,
		"service account":    s.ServiceAccountName == "sa",
		"podIPs":             len(pod.Status.PodIPs) == 1 && pod.Status.PodIPs[0].IP == "10.1.2.3",
	} {
		if !ok {
			t.Errorf("%s: wrong default", what)
		}
	}
	again := pod.DeepCopy()
	fill(again)
	if !apiequality.Semantic.DeepEqual(pod, again) {
		t.Error("defaults applied twice differ")
	}
}

func TestImageTag(t *testing.T) {
	for ref, want := range map[string]string{
		"a": "latest", "a:latest": "latest", "a:1": "1", "host:5000/a": "latest", "host:5000/a:2": "2",
		"a@sha256:0": "", "a:latest@sha256:0": "",
	} {
		if got := imageTag(ref); got != want {
			t.Errorf("%s: got %q, want %q", ref, got, want)
		}
	}
}

func TestOtherDefaults(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": resource.MustParse("4")}}}
	node.Spec.PodCIDR = "10.0.0.0/24"
	fill(node)
	if node.Status.Allocatable.Cpu().Value() != 4 || len(node.Spec.PodCIDRs) != 1 { // N-1.10
		t.Errorf("node: %+v", node)
	}
	secret := &corev1.Secret{StringData: map[string]string{"a": "b"}}
	fill(secret)
	if secret.Type != corev1.SecretTypeOpaque || string(secret.Data["a"]) != "b" || secret.StringData != nil {
		t.Errorf("secret: %+v", secret)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	fill(ns)
	if ns.Labels["kubernetes.io/metadata.name"] != "x" {
		t.Errorf("namespace: %+v", ns)
	}
}
