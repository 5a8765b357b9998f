package pressure

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestStorageOver(t *testing.T) { // N-6.34
	always := corev1.ContainerRestartPolicyAlways
	pod := func(init *corev1.Container, limits ...string) *corev1.Pod {
		p := &corev1.Pod{}
		for i, l := range limits {
			c := corev1.Container{Name: string(rune('a' + i))}
			if l != "" {
				c.Resources.Limits = amounts("ephemeral-storage", l)
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		if init != nil {
			p.Spec.InitContainers = []corev1.Container{*init}
		}
		return p
	}
	before := &corev1.Container{Name: "i", Resources: corev1.ResourceRequirements{Limits: amounts("ephemeral-storage", "9Mi")}}
	beside := before.DeepCopy()
	beside.RestartPolicy = &always
	use := func(a, b, volumes int64) *Usage {
		return &Usage{Rootfs: Files{Bytes: a * mi}, Logs: Files{Bytes: b * mi}, Volumes: Files{Bytes: volumes * mi},
			Containers: []ContainerUsage{{Name: "a", Storage: a * mi}, {Name: "b", Storage: b * mi}}}
	}
	const one = `Container a exceeded its local ephemeral storage limit "1Mi". `
	for _, c := range []struct {
		what string
		pod  *corev1.Pod
		used *Usage
		want string
	}{
		{"no limit", pod(nil, "", ""), use(100, 100, 100), ""},
		{"equal is not above", pod(nil, "1Mi", "2Mi"), use(1, 2, 0), ""},
		{"a container", pod(nil, "1Mi", "2Mi"), use(2, 0, 0), one},
		{"the pod, with its volumes", pod(nil, "1Mi", "2Mi"), use(1, 1, 2),
			"Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. "},
		{"one without a limit adds nothing", pod(nil, "1Mi", ""), use(0, 2, 0),
			"Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
		{"what runs before may take more", pod(before, "1Mi", "1Mi"), use(1, 1, 7), ""},
		{"a sidecar adds", pod(beside, "1Mi", "1Mi"), use(2, 0, 0), one},
		{"a sidecar's sum", pod(beside, "1Mi", "1Mi"), use(1, 1, 10),
			"Pod ephemeral local storage usage exceeds the total limit of containers 11Mi. "},
	} {
		if got := StorageOver(c.pod, c.used); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if got := StorageLimited(c.pod); got != (c.what != "no limit") {
			t.Errorf("%s: limited: %v", c.what, got)
		}
	}
}
