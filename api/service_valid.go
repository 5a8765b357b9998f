package api

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

func validateService(s, old *corev1.Service) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateServiceType(s, at)
	errs = append(errs, validateServicePorts(s, at.Child("ports"))...)
	errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, at.Child("selector"))...)
	errs = append(errs, validateSession(&s.Spec, at)...)
	errs = append(errs, ValidateServiceAddresses(s, old)...)
	errs = append(errs, validateOutside(s, old, at)...)
	errs = append(errs, validatePolicies(s, at)...)
	hints, mode := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints], s.Annotations[corev1.AnnotationTopologyMode]
	if hints != "" && mode != "" && hints != mode {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
			fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints)))
	}
	return errs
}

func validateServiceType(s *corev1.Service, at *field.Path) field.ErrorList {
	errs := valid.OneOf(s.Spec.Type, at.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	if len(s.Spec.Ports) == 0 && !IsHeadless(s) && hasAddresses(s) {
		errs = append(errs, field.Required(at.Child("ports"), ""))
	}
	if IsExternal(s) && IsHeadless(s) {
		errs = append(errs, field.Invalid(at.Child("clusterIPs").Index(0), s.Spec.ClusterIPs[0],
			fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
	}
	if hasAddresses(s) {
		return errs
	}
	const not = "may not be set for ExternalName services"
	if len(s.Spec.ClusterIPs) > 0 || s.Spec.ClusterIP != "" {
		errs = append(errs, field.Forbidden(at.Child("clusterIPs"), not))
	}
	if len(s.Spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(at.Child("ipFamilies"), not))
	}
	if s.Spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(at.Child("ipFamilyPolicy"), not))
	}
	name := strings.TrimSuffix(s.Spec.ExternalName, ".") // a dot says that the name is whole
	if name == "" {
		return append(errs, field.Required(at.Child("externalName"), ""))
	}
	return append(errs, valid.Name(name, at.Child("externalName"))...)
}

// maxServicePorts is far above what a service has, and bounds what one costs every board. Kubernetes has no such limit.
const maxServicePorts = 250

func validateServicePorts(s *corev1.Service, at *field.Path) field.ErrorList {
	if n := len(s.Spec.Ports); n > maxServicePorts {
		return field.ErrorList{field.TooMany(at, n, maxServicePorts)}
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	var errs field.ErrorList
	names, ports, onNodes := map[string]bool{}, map[number]bool{}, map[number]bool{}
	for i := range s.Spec.Ports {
		p, at := &s.Spec.Ports[i], at.Index(i)
		errs = append(errs, validateServicePort(p, len(s.Spec.Ports) > 1, at)...)
		if p.Name != "" && names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		if ports[number{p.Protocol, p.Port}] {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		names[p.Name], ports[number{p.Protocol, p.Port}] = true, true
		if p.NodePort == 0 {
			continue
		}
		if s.Spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		if onNodes[number{p.Protocol, p.NodePort}] {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
		}
		onNodes[number{p.Protocol, p.NodePort}] = true
	}
	return errs
}

func validateServicePort(p *corev1.ServicePort, named bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, label(p.Name, at.Child("name"))...)
	} else if named {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	errs = append(errs, isPort(p.Port, at.Child("port"))...)
	errs = append(errs, valid.OneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	if target := p.TargetPort; target.Type == intstr.Int {
		errs = append(errs, isPort(target.IntVal, at.Child("targetPort"))...)
	} else {
		errs = append(errs, valid.Each(validation.IsValidPortName(target.StrVal), func(msg string) *field.Error {
			return field.Invalid(at.Child("targetPort"), target.StrVal, msg)
		})...)
	}
	return append(errs, appProtocol(p.AppProtocol, at.Child("appProtocol"))...)
}

func label(name string, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsDNS1123Label(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

func appProtocol(p *string, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	return qualified(*p, at)
}

func qualified(name string, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsQualifiedName(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

// maxAffinity is how long a client may keep its pod, in seconds.
const maxAffinity = 86400

func validateSession(s *corev1.ServiceSpec, at *field.Path) field.ErrorList {
	errs := valid.OneOf(s.SessionAffinity, at.Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	of := at.Child("sessionAffinityConfig")
	switch c := s.SessionAffinityConfig; s.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if c != nil {
			errs = append(errs, field.Forbidden(of, "must not be set when session affinity is None"))
		}
	case corev1.ServiceAffinityClientIP:
		of = of.Child("clientIP", "timeoutSeconds")
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			errs = append(errs, field.Required(of, "when session affinity type is ClientIP"))
		} else if n := *c.ClientIP.TimeoutSeconds; n <= 0 || n > maxAffinity {
			errs = append(errs, field.Invalid(of, n, fmt.Sprintf("must be greater than 0 and less than %d", maxAffinity)))
		}
	}
	return errs
}

// Why a service may not have an address of its choice outside.
const (
	noExternalIPs = "spec.externalIPs is deprecated and may no longer be implemented in some clusters: ledge does not; " +
		"with type LoadBalancer a service has the addresses of the boards"
	noLoadBalancerIP = "an address of one's choice is not supported by ledge: a service of type LoadBalancer has the addresses of the boards"
)

// validateOutside is about how a service is reached from outside of the cluster.
func validateOutside(s, old *corev1.Service, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	onlyBalanced := func(at *field.Path, set bool) {
		if set && !balanced {
			errs = append(errs, field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
		}
	}
	if len(s.Spec.ExternalIPs) > 0 {
		errs = append(errs, field.Forbidden(at.Child("externalIPs"), noExternalIPs))
	}
	if balanced && s.Spec.LoadBalancerIP != "" && s.Spec.LoadBalancerClass == nil {
		errs = append(errs, field.Forbidden(at.Child("loadBalancerIP"), noLoadBalancerIP))
	}
	onlyBalanced(at.Child("loadBalancerSourceRanges"), len(s.Spec.LoadBalancerSourceRanges) > 0)
	onlyBalanced(at.Child("allocateLoadBalancerNodePorts"), s.Spec.AllocateLoadBalancerNodePorts != nil)
	onlyBalanced(at.Child("loadBalancerClass"), s.Spec.LoadBalancerClass != nil)
	_, annotated := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	onAnnotation := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	onlyBalanced(onAnnotation, annotated)
	if balanced && s.Spec.LoadBalancerClass != nil {
		errs = append(errs, qualified(*s.Spec.LoadBalancerClass, at.Child("loadBalancerClass"))...)
	}
	if len(s.Spec.LoadBalancerSourceRanges) == 0 && annotated {
		at = onAnnotation
	} else {
		at = at.Child("loadBalancerSourceRanges")
	}
	var was []string
	if old != nil {
		was = SourceRanges(old)
	}
	for i, r := range SourceRanges(s) {
		errs = append(errs, validation.IsValidCIDRForLegacyField(at.Index(i), r, true, was)...)
	}
	return errs
}

// SourceRanges are the addresses that a LoadBalancer takes connections from, of its spec or its annotation; none: from all.
func SourceRanges(s *corev1.Service) (out []string) {
	list := s.Spec.LoadBalancerSourceRanges
	if text := strings.TrimSpace(s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]); len(list) == 0 && text != "" {
		list = strings.Split(text, ",")
	}
	for _, r := range list {
		out = append(out, strings.TrimSpace(r))
	}
	return out
}

func validatePolicies(s *corev1.Service, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	external := at.Child("externalTrafficPolicy")
	if IsExternal(s) {
		errs = append(errs, valid.OneOf(s.Spec.ExternalTrafficPolicy, external, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)...)
	} else if s.Spec.ExternalTrafficPolicy != "" {
		errs = append(errs, field.Invalid(external, s.Spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	health := at.Child("healthCheckNodePort")
	if HasHealthCheck(s) {
		errs = append(errs, isPort(s.Spec.HealthCheckNodePort, health)...)
	} else if s.Spec.HealthCheckNodePort != 0 {
		errs = append(errs, field.Invalid(health, s.Spec.HealthCheckNodePort,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		errs = append(errs, valid.OneOf(*p, at.Child("internalTrafficPolicy"), corev1.ServiceInternalTrafficPolicyCluster,
			corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		errs = append(errs, valid.OneOf(*d, at.Child("trafficDistribution"), corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

// ValidateServiceAddresses looks at what a service says of its addresses and families, before they are allocated as well as after.
func ValidateServiceAddresses(s, old *corev1.Service) field.ErrorList {
	if !hasAddresses(s) {
		return nil
	}
	at := field.NewPath("spec")
	errs := validateFamilies(&s.Spec, at)
	more := validateClusterIPs(s, old, at.Child("clusterIPs"))
	if errs = append(errs, more...); len(more) > 0 || IsHeadless(s) {
		return errs
	}
	for i, ip := range s.Spec.ClusterIPs {
		if i < len(s.Spec.IPFamilies) && s.Spec.IPFamilies[i] != FamilyOf(ip) {
			errs = append(errs, field.Invalid(at.Child("clusterIPs").Index(i), ip,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", s.Spec.IPFamilies[i], i)))
		}
	}
	return errs
}

func validateFamilies(s *corev1.ServiceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, f := range s.IPFamilies {
		errs = append(errs, valid.OneOf(f, at.Child("ipFamilies").Index(i), corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if slices.Contains(s.IPFamilies[:i], f) {
			errs = append(errs, field.Duplicate(at.Child("ipFamilies").Index(i), f))
		}
	}
	if p := s.IPFamilyPolicy; p != nil {
		errs = append(errs, valid.OneOf(*p, at.Child("ipFamilyPolicy"), corev1.IPFamilyPolicyPreferDualStack,
			corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	}
	return errs
}

func validateClusterIPs(s, old *corev1.Service, at *field.Path) field.ErrorList {
	all := s.Spec.ClusterIPs
	var was []string
	if old != nil {
		was = old.Spec.ClusterIPs
	}
	var errs field.ErrorList
	switch {
	case s.Spec.ClusterIP != "" && len(all) == 0:
		errs = append(errs, field.Required(at, ""))
	case s.Spec.ClusterIP != "" && all[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(at, all, "first value must match `clusterIP`"))
	case s.Spec.ClusterIP == "" && len(all) > 0:
		errs = append(errs, field.Invalid(at, all, "must be empty when `clusterIP` is not specified"))
	}
	if len(all) > 2 {
		return append(errs, field.Invalid(at, all, "may only hold up to 2 values"))
	}
	for i, ip := range all {
		switch {
		case i == 0 && ip == corev1.ClusterIPNone && len(all) == 1:
		case i == 0 && ip == corev1.ClusterIPNone:
			return append(errs, field.Invalid(at, all, "'None' must be the first and only value"))
		default:
			errs = append(errs, validation.IsValidIPForLegacyField(at.Index(i), ip, true, was)...)
		}
	}
	if len(errs) == 0 && len(all) == 2 && FamilyOf(all[0]) == FamilyOf(all[1]) {
		errs = append(errs, field.Invalid(at, all, "may specify no more than one IP for each IP family"))
	}
	return errs
}

// FamilyOf is the family of an address; "" where it is none.
func FamilyOf(ip string) corev1.IPFamily {
	switch a, err := netip.ParseAddr(ip); {
	case err != nil:
		return ""
	case a.Is4():
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	at := field.NewPath("status", "loadBalancer", "ingress")
	list := s.Status.LoadBalancer.Ingress
	var errs field.ErrorList // conditions are not looked at, as on Kubernetes: its suite writes some without a time
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(list) > 0 {
		return append(errs, field.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'"))
	}
	for i := range list {
		in, at := &list[i], at.Index(i)
		known := slices.ContainsFunc(old.Status.LoadBalancer.Ingress, func(o corev1.LoadBalancerIngress) bool { return o.IP == in.IP })
		if in.IP != "" && !known {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), in.IP, true, nil)...)
		}
		switch {
		case in.IP != "" && in.IPMode == nil:
			errs = append(errs, field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
		case in.IP == "" && in.IPMode != nil:
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		case in.IPMode != nil:
			errs = append(errs, valid.OneOf(*in.IPMode, at.Child("ipMode"), corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
		if in.Hostname == "" {
			continue
		}
		errs = append(errs, valid.Name(in.Hostname, at.Child("hostname"))...)
		if FamilyOf(in.Hostname) != "" {
			errs = append(errs, field.Invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}

func serviceWarnings(s *corev1.Service) []string {
	var out []string
	at := field.NewPath("spec")
	if _, old := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; old {
		out = append(out, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if IsHeadless(s) && s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
		out = append(out, "spec.SessionAffinity is ignored for headless services")
	}
	for i, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			out = append(out, validation.GetWarningsForIP(at.Child("clusterIPs").Index(i), ip)...)
		}
	}
	for i, r := range s.Spec.LoadBalancerSourceRanges {
		out = append(out, validation.GetWarningsForCIDR(at.Child("loadBalancerSourceRanges").Index(i), strings.TrimSpace(r))...)
	}
	if hasAddresses(s) && s.Spec.ExternalName != "" {
		out = append(out, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		out = append(out, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return out
}
