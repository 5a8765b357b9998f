package api

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

func validatePodSecurity(sc *corev1.PodSecurityContext, at *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := isID(sc.RunAsUser, at.Child("runAsUser"), validation.IsValidUserID)
	errs = append(errs, isID(sc.RunAsGroup, at.Child("runAsGroup"), validation.IsValidGroupID)...)
	for i := range sc.SupplementalGroups {
		errs = append(errs, isID(&sc.SupplementalGroups[i], at.Child("supplementalGroups").Index(i), validation.IsValidGroupID)...)
	}
	errs = append(errs, isID(sc.FSGroup, at.Child("fsGroup"), validation.IsValidGroupID)...)
	if sc.FSGroupChangePolicy != nil {
		errs = append(errs, valid.OneOf(*sc.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways,
			corev1.FSGroupChangeOnRootMismatch)...)
	}
	if sc.SupplementalGroupsPolicy != nil {
		errs = append(errs, valid.OneOf(*sc.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"),
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	if p := sc.SELinuxChangePolicy; p != nil {
		errs = append(errs, valid.OneOf(*p, at.Child("seLinuxChangePolicy"), corev1.SELinuxChangePolicyRecursive,
			corev1.SELinuxChangePolicyMountOption)...)
	}
	return append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
}

func validateSecurity(sc *corev1.SecurityContext, at *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := isID(sc.RunAsUser, at.Child("runAsUser"), validation.IsValidUserID)
	errs = append(errs, isID(sc.RunAsGroup, at.Child("runAsGroup"), validation.IsValidGroupID)...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	if sc.ProcMount != nil {
		errs = append(errs, valid.OneOf(*sc.ProcMount, at.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
	}
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return errs
	}
	if sc.Privileged != nil && *sc.Privileged {
		errs = append(errs, field.Invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		errs = append(errs, field.Invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
	}
	return errs
}

func isID(id *int64, at *field.Path, check func(int64) []string) field.ErrorList {
	if id == nil {
		return nil
	}
	return valid.Each(check(*id), func(msg string) *field.Error { return field.Invalid(at, *id, msg) })
}

func validateSeccomp(p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := valid.OneOf(p.Type, at.Child("type"), corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault,
		corev1.SeccompProfileTypeUnconfined)
	if p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil {
		errs = append(errs, validateDescending(*p.LocalhostProfile, at.Child("localhostProfile"))...)
	}
	return append(errs, validateLocalhost(p.LocalhostProfile, p.Type == corev1.SeccompProfileTypeLocalhost, at)...)
}

// validateProcMount: all of /proc would be the host's to change, were it not for a user namespace.
func validateProcMount(s *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	eachContainer(&corev1.Pod{Spec: *s}, func(c *corev1.Container, at *field.Path) {
		if sc := c.SecurityContext; sc != nil && sc.ProcMount != nil && *sc.ProcMount == corev1.UnmaskedProcMount &&
			(s.HostUsers == nil || *s.HostUsers) {
			errs = append(errs, field.Invalid(at.Child("securityContext", "procMount"), *sc.ProcMount,
				"`hostUsers` must be false to use `Unmasked`"))
		}
	})
	return errs
}

// validateHostUsers: what belongs to the board's users cannot be shared by who has users of its own.
func validateHostUsers(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	if s.HostUsers == nil || *s.HostUsers {
		return nil
	}
	var errs field.ErrorList
	for _, x := range []struct {
		child string
		on    bool
	}{{"hostNetwork", s.HostNetwork}, {"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}} {
		if x.on {
			errs = append(errs, field.Forbidden(at.Child(x.child), "when `hostUsers` is false"))
		}
	}
	eachContainer(&corev1.Pod{Spec: *s}, func(c *corev1.Container, at *field.Path) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(at.Child("volumeDevices"), "when `hostUsers` is false"))
		}
	})
	return errs
}

func validateAppArmor(p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := valid.OneOf(p.Type, at.Child("type"), corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault,
		corev1.AppArmorProfileTypeUnconfined)
	return append(errs, validateLocalhost(p.LocalhostProfile, p.Type == corev1.AppArmorProfileTypeLocalhost, at)...)
}

// validateLocalhost: a profile file is named exactly when the type says that one is used.
func validateLocalhost(profile *string, wanted bool, at *field.Path) field.ErrorList {
	at = at.Child("localhostProfile")
	switch {
	case wanted && (profile == nil || *profile == ""):
		return field.ErrorList{field.Required(at, "must be set when type is Localhost")}
	case !wanted && profile != nil:
		return field.ErrorList{field.Invalid(at, *profile, "can only be set when type is Localhost")}
	}
	return nil
}
