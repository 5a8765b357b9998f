// Package downward says what a pod may learn about itself: the values behind fieldRef and resourceFieldRef, in the
// environment and in volumes alike (N-7.47). It is pure.
package downward

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
)

// Facts is a pod with what its node knows and the pod's spec does not say.
type Facts struct {
	Pod             *corev1.Pod
	HostIPs, PodIPs []string
	// Allocatable of the node stands in for a limit that a container does not have.
	Allocatable corev1.ResourceList
}

// Field is the value of a fieldRef.
func (f Facts) Field(path string) (string, error) {
	p := f.Pod
	if what, key, ok := api.SplitSubscript(path); ok {
		switch what {
		case "metadata.labels":
			return p.Labels[key], nil
		case "metadata.annotations":
			return p.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return lines(p.Labels), nil
	case "metadata.annotations":
		return lines(p.Annotations), nil
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(f.HostIPs), nil
	case "status.podIP":
		return first(f.PodIPs), nil
	case "status.hostIPs":
		return strings.Join(f.HostIPs, ","), nil
	case "status.podIPs":
		return strings.Join(f.PodIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// lines writes a map as the downward API's files have it: key="value", sorted, no newline at the end.
func lines(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(out, "\n")
}

// Resource is the value of a resourceFieldRef; container is the one that asks, for a reference that names none.
func (f Facts) Resource(ref *corev1.ResourceFieldSelector, container string) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	c := f.container(container)
	if c == nil {
		return "", fmt.Errorf("container %s not found", container)
	}
	what, name, _ := strings.Cut(ref.Resource, ".")
	var q resource.Quantity
	switch what {
	case "limits":
		q = f.limit(c, corev1.ResourceName(name))
	case "requests":
		q = c.Resources.Requests[corev1.ResourceName(name)]
	default:
		return "", fmt.Errorf("unsupported container resource: %s", ref.Resource)
	}
	return fmt.Sprint(divide(q, ref.Divisor, name == string(corev1.ResourceCPU))), nil
}

// limit is the container's own, else its pod's, or all that the node has to give.
func (f Facts) limit(c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	if q, ok := c.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		if q, ok := api.WithPodLimits(c, f.Pod).Resources.Limits[name]; ok && !q.IsZero() {
			return q
		}
		return f.Allocatable[name]
	}
	return resource.Quantity{}
}

// divide rounds up, so that a tenth of a core is 1 and not 0. A divisor of 0 means 1, as on Kubernetes.
func divide(q, divisor resource.Quantity, milli bool) int64 {
	if divisor.IsZero() {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	if milli {
		return int64(math.Ceil(float64(q.MilliValue()) / float64(divisor.MilliValue())))
	}
	return int64(math.Ceil(float64(q.Value()) / float64(divisor.Value())))
}

func (f Facts) container(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{f.Pod.Spec.InitContainers, f.Pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
