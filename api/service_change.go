package api

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What may change of a service, and what of the old one stays when its type changes. Who replaces a service by its manifest need not
// know what it was given; who changes its type need not take out what the new one has no use for.

// keepAllocated gives a service again what the old one was given, where it says nothing itself.
func keepAllocated(s, old *corev1.Service) {
	if hasAddresses(s) && hasAddresses(old) {
		setEmpty(&s.Spec.ClusterIP, old.Spec.ClusterIP)
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if WantsNodePorts(s) && WantsNodePorts(old) {
		keepNodePorts(s, old)
	}
	if HasHealthCheck(s) && HasHealthCheck(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
	matchClusterIPs(s, old)
}

func hasAddresses(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

// keepNodePorts goes by the names of the ports. A number that the new one asks for elsewhere is not given twice.
func keepNodePorts(s, old *corev1.Service) {
	asked, was := nodePorts(s), map[string]int32{}
	for _, p := range old.Spec.Ports {
		was[p.Name] = p.NodePort
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.NodePort == 0 && !slices.Contains(asked, was[p.Name]) {
			p.NodePort = was[p.Name]
		}
	}
}

// nodePorts are the ports on the boards that a service names.
func nodePorts(s *corev1.Service) (out []int32) {
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, p.NodePort)
		}
	}
	return out
}

// MatchClusterIPs fills clusterIPs of a new service from clusterIP: who writes only the older field means the first of the newer.
func MatchClusterIPs(s *corev1.Service) {
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// matchClusterIPs does the same for a change: who changed or cleared only clusterIP means clusterIPs as well.
func matchClusterIPs(s, old *corev1.Service) {
	if s.Spec.ClusterIP == old.Spec.ClusterIP || !slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		return
	}
	if s.Spec.ClusterIPs = nil; s.Spec.ClusterIP != "" {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// dropForeign takes out what the type of a service has no use for, if it is as it was: what was changed is told of by validation.
func dropForeign(s, old *corev1.Service) {
	if hasAddresses(old) && !hasAddresses(s) {
		if s.Spec.ClusterIP == old.Spec.ClusterIP && slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		}
		dropSame(&s.Spec.IPFamilies, old.Spec.IPFamilies)
		dropSame(&s.Spec.IPFamilyPolicy, old.Spec.IPFamilyPolicy)
	}
	if IsExternal(old) && !IsExternal(s) {
		if was := nodePorts(old); !slices.ContainsFunc(nodePorts(s), func(n int32) bool { return !slices.Contains(was, n) }) {
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort = 0
			}
		}
		dropSame(&s.Spec.ExternalTrafficPolicy, old.Spec.ExternalTrafficPolicy)
	}
	if HasHealthCheck(old) && !HasHealthCheck(s) {
		dropSame(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer {
		dropSame(&s.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts)
		dropSame(&s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass)
	}
	s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
}

func dropSame[T any](p *T, was T) {
	if apiequality.Semantic.DeepEqual(*p, was) {
		var zero T
		*p = zero
	}
}

// validateServiceChange: a second address or family may come and go; the first stays, unless there is none before or after.
func validateServiceChange(s, old *corev1.Service) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if hasAddresses(s) && hasAddresses(old) {
		if !IsHeadless(s) || !IsHeadless(old) {
			errs = append(errs, firstStays(at.Child("clusterIPs"), s.Spec.ClusterIPs, old.Spec.ClusterIPs, s, "clusterIP")...)
		}
		if !IsHeadless(s) && !IsHeadless(old) {
			errs = append(errs, firstStays(at.Child("ipFamilies"), s.Spec.IPFamilies, old.Spec.IPFamilies, s, "ipFamily")...)
		}
	}
	if HasHealthCheck(s) && HasHealthCheck(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(at.Child("healthCheckNodePort"), "field is immutable"))
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		!apiequality.Semantic.DeepEqual(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(at.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set"))
	}
	return errs
}

func firstStays[T ~string](at *field.Path, now, was []T, s *corev1.Service, what string) field.ErrorList {
	const stays = "may not change once set"
	if len(now) == len(was) {
		for i := range now {
			if now[i] != was[i] {
				return field.ErrorList{field.Invalid(at.Index(i), now, stays)}
			}
		}
		return nil
	}
	var errs field.ErrorList
	switch {
	case len(was) > 0 && len(now) == 0:
		errs = append(errs, field.Invalid(at.Index(0), now, "primary "+what+" can not be unset"))
	case len(was) > 0 && now[0] != was[0]:
		errs = append(errs, field.Invalid(at.Index(0), now, stays))
	}
	if policy := s.Spec.IPFamilyPolicy; len(now) == 1 && len(was) > 1 && (policy == nil || *policy != corev1.IPFamilyPolicySingleStack) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), policy,
			"must be set to 'SingleStack' when releasing the secondary "+what))
	}
	return errs
}
