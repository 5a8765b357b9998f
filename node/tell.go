package node

import (
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/volume"
)

// tellMounts puts into a status how the volumes of each container are mounted, or will be.
func tellMounts(pod *corev1.Pod, out *corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{out.InitContainerStatuses, out.ContainerStatuses, out.EphemeralContainerStatuses} {
		for i := range list {
			if c := api.ContainerNamed(pod, list[i].Name); c != nil {
				list[i].VolumeMounts = volume.MountStatuses(c)
			}
		}
	}
}
