package volume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// Mounts are the volume mounts of one container.
func (v *Volumes) Mounts(pod *corev1.Pod, c *corev1.Container) ([]runtime.Mount, error) {
	var out []runtime.Mount
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(vol corev1.Volume) bool { return vol.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s mounts volume %q, which the pod does not have", c.Name, m.Name)
		}
		vol := &pod.Spec.Volumes[i]
		out = append(out, runtime.Mount{Source: v.path(pod, vol), Target: m.MountPath,
			ReadOnly: m.ReadOnly || OfObjects(vol), Recursive: true})
	}
	return out, nil
}
