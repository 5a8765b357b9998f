package allocate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

// families fills ipFamilyPolicy and ipFamilies: of a service with addresses, by what it says and what the cluster has. A service
// is never moved between one family and two unless its policy says so.
func families(s, old *corev1.Service, known []corev1.IPFamily) field.ErrorList {
	if s.Spec.IPFamilyPolicy == nil {
		policy := policyOf(s, old)
		s.Spec.IPFamilyPolicy = &policy
	}
	if errs := api.ValidateServiceAddresses(s, old); len(errs) > 0 {
		return errs
	}
	single := *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	errs := shorten(s, old, single)
	if single {
		errs = append(errs, onlyOne(&s.Spec)...)
	}
	errs = append(errs, infer(&s.Spec, known)...)
	if len(errs) > 0 {
		return errs
	}
	// What nobody selects has the addresses that its slices say, of whatever family.
	open := s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0
	if !open {
		if errs := configured(&s.Spec, known); len(errs) > 0 {
			return errs
		}
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{known[0]}
	}
	if !single && len(s.Spec.IPFamilies) == 1 && (open || len(known) == 2) {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies[:1:1], other(s.Spec.IPFamilies[0]))
	}
	return nil
}

// samePreference: who would like both families keeps what there was at that time, also when the cluster gets or loses one.
func samePreference(s, old *corev1.Service) bool {
	prefers := func(s *corev1.Service) bool {
		return s.Spec.IPFamilyPolicy == nil || *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	}
	return old != nil && s.Spec.IPFamilyPolicy != nil && s.Spec.Type == old.Spec.Type && prefers(s) && prefers(old) &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

func policyOf(s, old *corev1.Service) corev1.IPFamilyPolicy {
	switch {
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		return *old.Spec.IPFamilyPolicy
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		return corev1.IPFamilyPolicyRequireDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// shorten gives the second family up when the policy turns to one; without that it cannot be left out.
func shorten(s, old *corev1.Service, single bool) field.ErrorList {
	if old == nil {
		return nil
	}
	ips, was := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	list, wasList := s.Spec.IPFamilies, old.Spec.IPFamilies
	if single {
		if slices.Equal(ips, was) && len(ips) > 1 {
			s.Spec.ClusterIPs = ips[:1:1]
		}
		if slices.Equal(list, wasList) && len(list) > 1 {
			s.Spec.IPFamilies = list[:1:1]
		}
		return nil
	}
	var errs field.ErrorList
	at := field.NewPath("spec", "ipFamilyPolicy")
	if len(ips) > 0 && len(ips) < len(was) {
		errs = append(errs, field.Invalid(at, s.Spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if len(list) > 0 && len(list) < len(wasList) {
		errs = append(errs, field.Invalid(at, s.Spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

func onlyOne(s *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec", "ipFamilyPolicy")
	const must = "must be 'RequireDualStack' or 'PreferDualStack' when multiple "
	if len(s.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(at, s.IPFamilyPolicy, must+"cluster IPs are specified"))
	}
	if len(s.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(at, s.IPFamilyPolicy, must+"IP families are specified"))
	}
	return errs
}

// infer takes the families that are missing from the addresses that are asked for.
func infer(s *corev1.ServiceSpec, known []corev1.IPFamily) field.ErrorList {
	var errs field.ErrorList
	for i := len(s.IPFamilies); i < len(s.ClusterIPs) && s.ClusterIPs[i] != corev1.ClusterIPNone; i++ {
		f := api.FamilyOf(s.ClusterIPs[i])
		if !slices.Contains(known, f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), s.ClusterIPs,
				fmt.Sprintf("%s is not configured on this cluster", f)))
			break
		}
		s.IPFamilies = append(s.IPFamilies, f)
	}
	return errs
}

func configured(s *corev1.ServiceSpec, known []corev1.IPFamily) field.ErrorList {
	var errs field.ErrorList
	if *s.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(known) < 2 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), s.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services"))
	}
	for i, f := range s.IPFamilies {
		if !slices.Contains(known, f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	return errs
}

func other(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
