package api

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeerOf keeps of a pod what a board must know of other boards' pods to hold network policies: its name, its labels, its addresses, its
// named ports, and whether it is a static pod. What else is in it, such as the values of variables, is no business of a board that may be
// stolen.
func PeerOf(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{TypeMeta: p.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Labels,
		ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp}}
	if IsMirror(p) {
		out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
	}
	out.Spec.HostNetwork, out.Spec.NodeName = p.Spec.HostNetwork, p.Spec.NodeName
	out.Status.Phase, out.Status.PodIP, out.Status.PodIPs = p.Status.Phase, p.Status.PodIP, p.Status.PodIPs
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range list {
			kept := corev1.Container{Name: c.Name}
			for _, port := range c.Ports {
				if port.Name != "" {
					kept.Ports = append(kept.Ports, corev1.ContainerPort{Name: port.Name, Protocol: port.Protocol, ContainerPort: port.ContainerPort})
				}
			}
			if len(kept.Ports) > 0 {
				out.Spec.Containers = append(out.Spec.Containers, kept)
			}
		}
	}
	return out
}
