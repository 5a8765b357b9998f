package api

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Default fills what Kubernetes fills when a caller leaves it empty (N-7.1, N-1.10). It is applied to every
// object on its way in, before validation, and changes nothing when applied twice.
func Default(obj Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		defaultPod(o)
	case *corev1.Node:
		defaultNode(o)
	case *corev1.Namespace:
		defaultNamespace(o)
	case *corev1.Secret:
		defaultSecret(o)
	case *corev1.PodTemplate:
		defaultPodSpec(&o.Template.Spec)
	case *corev1.ReplicationController:
		defaultReplicationController(o)
	case *corev1.Service:
		defaultService(o)
	case *rbacv1.RoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *schedulingv1.PriorityClass:
		setDefault(&o.PreemptionPolicy, corev1.PreemptLowerPriority)
	}
}

func defaultNode(n *corev1.Node) {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	roundUp(n.Status.Capacity)
	roundUp(n.Status.Allocatable)
	// podCIDR is the old singular of podCIDRs. Who says one of them means both; where they differ, validation says so.
	switch {
	case n.Spec.PodCIDR == "" && len(n.Spec.PodCIDRs) > 0:
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	case len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "":
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	}
}

func defaultNamespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return // generateName: called again once there is a name
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func defaultSecret(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		for k, v := range s.StringData {
			s.Data[k] = []byte(v)
		}
	}
	s.StringData = nil // write-only: never stored, never shown
}

func defaultService(s *corev1.Service) {
	setEmpty(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	setEmpty(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	setDefault(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
}

// roundUp cuts quantities to thousandths, the finest step Kubernetes keeps.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func setEmpty[T ~string](p *T, v T) {
	if *p == "" {
		*p = v
	}
}

// sameIP lets podIP and podIPs be compared whatever way an address was spelled.
func sameIP(a, b string) bool {
	x, errA := netip.ParseAddr(a)
	y, errB := netip.ParseAddr(b)
	return a == b || errA == nil && errB == nil && x.Unmap() == y.Unmap()
}
