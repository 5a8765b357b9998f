package api

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

func validatePod(p *corev1.Pod) field.ErrorList {
	errs := Unsupported(p)
	errs = append(errs, validatePodSpec(&p.Spec, field.NewPath("spec"))...)
	return append(errs, validatePodAnnotations(p.Annotations, p.Spec.NodeName, field.NewPath("metadata", "annotations"))...)
}

// validatePodAnnotations looks at those that mean something for a pod on a node; "" is none.
func validatePodAnnotations(a map[string]string, node string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if v, ok := a[corev1.MirrorPodAnnotationKey]; ok && node == "" {
		errs = append(errs, field.Invalid(at.Key(corev1.MirrorPodAnnotationKey), v, "must set spec.nodeName if mirror pod annotation is set"))
	}
	return append(errs, validateDeletionCost(a, at)...)
}

// validateDeletionCost: a number as one writes it, without a plus or zeros before it.
func validateDeletionCost(a map[string]string, at *field.Path) field.ErrorList {
	v, ok := a[corev1.PodDeletionCost]
	if !ok {
		return nil
	}
	if n, err := strconv.ParseInt(v, 10, 32); err != nil || strconv.FormatInt(n, 10) != v {
		return field.ErrorList{field.Invalid(at.Key(corev1.PodDeletionCost), v, "must be a 32bit integer")}
	}
	return nil
}

// IsMirror says whether a pod only shows a static pod of its node (N-7.50).
func IsMirror(p *corev1.Pod) bool {
	_, ok := p.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

func validatePodSpec(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	errs := valid.OneOf(s.RestartPolicy, at.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	errs = append(errs, valid.OneOf(s.DNSPolicy, at.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst,
		corev1.DNSDefault, corev1.DNSNone)...)
	if s.DNSPolicy == corev1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(at.Child("dnsConfig", "nameservers"),
			fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone)))
	}
	errs = append(errs, validateDNSConfig(s.DNSConfig, at.Child("dnsConfig"))...)
	errs = append(errs, validateHostAliases(s.HostAliases, at.Child("hostAliases"))...)
	errs = append(errs, validateHostnames(s, at)...)
	errs = append(errs, validateActiveDeadline(s.ActiveDeadlineSeconds, at.Child("activeDeadlineSeconds"))...)
	volumes, more := validateVolumes(s.Volumes, at.Child("volumes"))
	errs = append(errs, more...)
	errs = append(errs, validateContainers(s, volumes, at)...)
	errs = append(errs, validateFileVolumes(s)...)
	errs = append(errs, validatePodResources(s, at.Child("resources"))...)
	errs = append(errs, validateClass(s, at)...)
	errs = append(errs, validateLife(s, at)...)
	errs = append(errs, validateNewEphemeral(s, at)...)
	errs = append(errs, validatePodNames(s, at)...)
	errs = append(errs, validatePodSecurity(s.SecurityContext, at.Child("securityContext"))...)
	if s.SecurityContext != nil {
		errs = append(errs, validateSysctls(s.SecurityContext.Sysctls, s, at.Child("securityContext", "sysctls"))...)
	}
	errs = append(errs, validateProcMount(s)...)
	errs = append(errs, validateHostUsers(s, at)...)
	if s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID {
		errs = append(errs, field.Invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	errs = append(errs, validateAffinity(s.Affinity, at.Child("affinity"))...)
	errs = append(errs, ValidateTolerations(s.Tolerations, at.Child("tolerations"))...)
	errs = append(errs, validateSpread(s.TopologySpreadConstraints, at.Child("topologySpreadConstraints"))...)
	if s.PreemptionPolicy != nil {
		errs = append(errs, valid.OneOf(*s.PreemptionPolicy, at.Child("preemptionPolicy"),
			corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

func validateActiveDeadline(seconds *int64, at *field.Path) field.ErrorList {
	if seconds == nil || *seconds >= 1 && *seconds <= math.MaxInt32 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *seconds, validation.InclusiveRangeError(1, math.MaxInt32))}
}

// validatePodNames checks the fields of a pod that name other things.
func validatePodNames(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct{ child, name string }{
		{"serviceAccountName", s.ServiceAccountName}, {"nodeName", s.NodeName}, {"priorityClassName", s.PriorityClassName},
		{"schedulerName", s.SchedulerName},
	} {
		if n.name != "" {
			errs = append(errs, valid.Name(n.name, at.Child(n.child))...)
		}
	}
	for _, n := range []struct{ child, label string }{{"hostname", s.Hostname}, {"subdomain", s.Subdomain}} {
		if n.label != "" {
			errs = append(errs, isLabel(n.label, at.Child(n.child))...)
		}
	}
	return errs
}

func isLabel(name string, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsDNS1123Label(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

const podUpdateForbidden = "pod updates may not change fields other than `spec.containers[*].image`," +
	"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// validatePodUpdate lets through only what may change in a pod that exists (N-7.3).
func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if p.Annotations[corev1.MirrorPodAnnotationKey] != old.Annotations[corev1.MirrorPodAnnotationKey] || IsMirror(p) != IsMirror(old) {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey),
			"may not add, remove or update mirror pod annotation"))
	}
	if p.Annotations[corev1.PodDeletionCost] != old.Annotations[corev1.PodDeletionCost] {
		errs = append(errs, validateDeletionCost(p.Annotations, field.NewPath("metadata", "annotations"))...)
	}
	s, o := &p.Spec, &old.Spec
	if len(s.Containers) != len(o.Containers) {
		return append(errs, field.Forbidden(at.Child("containers"), "pod updates may not add or remove containers"))
	}
	if len(s.InitContainers) != len(o.InitContainers) {
		return append(errs, field.Forbidden(at.Child("initContainers"), "pod updates may not add or remove containers"))
	}
	errs = append(errs, validateImages(s.Containers, at.Child("containers"))...)
	errs = append(errs, validateImages(s.InitContainers, at.Child("initContainers"))...)
	errs = append(errs, ValidateTolerations(s.Tolerations, at.Child("tolerations"))...)
	if !tolerationsKept(s.Tolerations, o.Tolerations) {
		errs = append(errs, field.Forbidden(at.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds"))
	}
	errs = append(errs, validateDeadlineUpdate(s.ActiveDeadlineSeconds, o.ActiveDeadlineSeconds, at.Child("activeDeadlineSeconds"))...)

	// Put back what may change: the rest must be as it was.
	same := s.DeepCopy()
	for i := range same.Containers {
		same.Containers[i].Image = o.Containers[i].Image
	}
	for i := range same.InitContainers {
		same.InitContainers[i].Image = o.InitContainers[i].Image
	}
	errs = append(errs, gatesOnlyOpen(s.SchedulingGates, o.SchedulingGates, at.Child("schedulingGates"))...)
	same.SchedulingGates = o.SchedulingGates
	if len(o.SchedulingGates) > 0 { // nobody has placed it yet: where it may go may still be narrowed
		errs = append(errs, placementOnlyNarrower(s, o, at)...)
		same.NodeSelector, same.Affinity = o.NodeSelector, o.Affinity
	}
	same.Tolerations, same.ActiveDeadlineSeconds = o.Tolerations, o.ActiveDeadlineSeconds
	if g := same.TerminationGracePeriodSeconds; g != nil && *g == 1 && o.TerminationGracePeriodSeconds != nil &&
		*o.TerminationGracePeriodSeconds < 0 {
		same.TerminationGracePeriodSeconds = o.TerminationGracePeriodSeconds
	}
	if !apiequality.Semantic.DeepEqual(same, o) {
		errs = append(errs, field.Forbidden(at, podUpdateForbidden+"\n"+strings.Join(difference(at, same, o), "\n")))
	}
	return errs
}

func validateImages(list []corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, validateImage(list[i].Image, at.Index(i).Child("image"))...)
	}
	return errs
}

// tolerationsKept: each old toleration is still there; only its seconds may differ.
func tolerationsKept(list, old []corev1.Toleration) bool {
	for _, o := range old {
		if !slices.ContainsFunc(list, func(t corev1.Toleration) bool {
			t.TolerationSeconds, o.TolerationSeconds = nil, nil
			return t == o
		}) {
			return false
		}
	}
	return true
}

func validateDeadlineUpdate(now, old *int64, at *field.Path) field.ErrorList {
	errs := validateActiveDeadline(now, at)
	switch {
	case old != nil && now == nil:
		errs = append(errs, field.Invalid(at, now, "must not update from a positive integer to nil value"))
	case old != nil && *now > *old:
		errs = append(errs, field.Invalid(at, *now, "must be less than or equal to previous value"))
	}
	return errs
}

func validatePodStatusUpdate(p, old *corev1.Pod) field.ErrorList {
	at := field.NewPath("status")
	errs := apivalidation.ValidateImmutableField(p.Status.QOSClass, old.Status.QOSClass, at.Child("qosClass"))
	if n := p.Status.NominatedNodeName; n != "" && n != old.Status.NominatedNodeName {
		errs = append(errs, valid.Name(n, at.Child("nominatedNodeName"))...)
	}
	for i, ip := range p.Status.PodIPs {
		errs = append(errs, validation.IsValidIP(at.Child("podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	for i, ip := range p.Status.HostIPs {
		errs = append(errs, validation.IsValidIP(at.Child("hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return errs
}
