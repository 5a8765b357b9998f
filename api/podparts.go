package api

import corev1 "k8s.io/api/core/v1"

// ContainerNamed finds a container of a pod, be it an init container, a main or an ephemeral one; nil if there is none. Of an
// ephemeral one it is a copy.
func ContainerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			c := corev1.Container(e.EphemeralContainerCommon)
			return &c
		}
	}
	return nil
}

// ContainerStatusNamed finds the status of a container in that of its pod; nil if there is none.
func ContainerStatusNamed(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
