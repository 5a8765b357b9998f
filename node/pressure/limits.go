package pressure

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
)

// StorageLimited says whether a container of a pod may take only so much of the disk.
func StorageLimited(pod *corev1.Pod) bool { return storageLimit(pod) != nil }

// storageLimit returns the greater of the sum over containers that run together and the largest init container's
// limit; nil if no container has one. As on Kubernetes, a container without a limit adds nothing.
func storageLimit(pod *corev1.Pod) *resource.Quantity {
	var sum, most *resource.Quantity
	plus := func(c *corev1.Container) {
		if q, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
			if sum == nil {
				sum = &resource.Quantity{Format: q.Format}
			}
			sum.Add(q)
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if api.IsSidecar(c) {
			plus(c)
		} else if q, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok && (most == nil || q.Cmp(*most) > 0) {
			most = &q
		}
	}
	for i := range pod.Spec.Containers {
		plus(&pod.Spec.Containers[i])
	}
	if sum == nil || most != nil && most.Cmp(*sum) > 0 {
		return most
	}
	return sum
}

// StorageOver says in Kubernetes' words which limit for files a pod exceeds, or "". It checks the whole pod first,
// with its volumes, then each container (N-6.34).
func StorageOver(pod *corev1.Pod, used *Usage) string {
	all := used.Rootfs.Plus(used.Logs).Plus(used.Volumes)
	if limit := storageLimit(pod); limit != nil && all.Bytes > limit.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for _, u := range used.Containers {
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			if limit, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok && c.Name == u.Name && u.Storage > limit.Value() {
				return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
			}
		}
	}
	return ""
}
