package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"ledge/runtime"
)

// TestToldOfContainers: the status says how volumes are mounted, and as whom a container runs or ran, also when another
// brain had started it.
func TestToldOfContainers(t *testing.T) {
	with(t, nil, func(r *rig) {
		id := func(n int64) *int64 { return &n }
		enabled, disabled := corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyDisabled
		r.begin()
		p := r.pod("p", volumeOf(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: id(1000), RunAsGroup: id(7), SupplementalGroups: []int64{9}}
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.InitContainers = []corev1.Container{*p.Spec.Containers[0].DeepCopy()}
			p.Spec.InitContainers[0].Name = "i"
			c := &p.Spec.Containers[0]
			c.SecurityContext = &corev1.SecurityContext{RunAsUser: id(0)}
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/ro", ReadOnly: true},
				corev1.VolumeMount{Name: "v", MountPath: "/below", ReadOnly: true, RecursiveReadOnly: &enabled})
		})
		r.pass(time.Second)
		init := []corev1.VolumeMountStatus{{Name: "v", MountPath: "/v"}}
		main := append(init, corev1.VolumeMountStatus{Name: "v", MountPath: "/ro", ReadOnly: true, RecursiveReadOnly: &disabled},
			corev1.VolumeMountStatus{Name: "v", MountPath: "/below", ReadOnly: true, RecursiveReadOnly: &enabled})
		check := func(what string, wantInit, wantMain *corev1.LinuxContainerUser) {
			t.Helper()
			for i, st := range []corev1.ContainerStatus{r.get("p").Status.InitContainerStatuses[0], r.get("p").Status.ContainerStatuses[0]} {
				mounts, user := [][]corev1.VolumeMountStatus{init, main}[i], []*corev1.LinuxContainerUser{wantInit, wantMain}[i]
				if !equality.Semantic.DeepEqual(st.VolumeMounts, mounts) {
					t.Errorf("%s: %s has mounts %+v", what, st.Name, st.VolumeMounts)
				}
				if (st.User != nil) != (user != nil) || user != nil && !equality.Semantic.DeepEqual(st.User.Linux, user) {
					t.Errorf("%s: %s is of user %+v", what, st.Name, st.User)
				}
			}
		}
		user, root := &corev1.LinuxContainerUser{UID: 1000, GID: 7, SupplementalGroups: []int64{7, 9}},
			&corev1.LinuxContainerUser{GID: 7, SupplementalGroups: []int64{7, 9}}
		check("while init runs", user, nil)
		r.engine.End(containerID(p, "i", 0), runtime.Exit{})
		r.pass(time.Second)
		check("while it runs", user, root)
		r.begin()
		r.pass(time.Second)
		check("for another brain", user, root)
		r.engine.End(containerID(p, "c", 0), runtime.Exit{})
		r.pass(time.Minute)
		check("at the end", user, root)
		r.delete("p", nil)
		r.pass(time.Minute)
	})
}
