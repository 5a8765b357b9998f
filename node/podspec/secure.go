package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// secure applies the security contexts; the container's beats the pod's.
func (b Board) secure(out *runtime.Container, pod *corev1.Pod, c *corev1.Container, needs Needs) error {
	sc, psc := c.SecurityContext, pod.Spec.SecurityContext
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	if psc == nil {
		psc = &corev1.PodSecurityContext{}
	}
	out.Privileged = sc.Privileged != nil && *sc.Privileged
	out.ReadonlyRootfs = sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem
	out.NoNewPrivs = sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation
	if sc.ProcMount != nil {
		out.ProcMount = string(*sc.ProcMount)
	}
	out.Capabilities, out.DropCaps = capabilities(sc.Capabilities)
	if p := AppArmor(pod, c); p != nil && p.Type == corev1.AppArmorProfileTypeLocalhost {
		out.AppArmor = *p.LocalhostProfile
	}
	return b.seccomp(out, needs, firstSet(sc.SeccompProfile, psc.SeccompProfile))
}

func firstSet[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func (b Board) seccomp(out *runtime.Container, needs Needs, profile *corev1.SeccompProfile) (err error) {
	switch {
	case out.Privileged:
		out.Seccomp.Unconfined = true
	case profile == nil:
		out.Seccomp.Unconfined = b.Unconfined
	case profile.Type == corev1.SeccompProfileTypeUnconfined:
		out.Seccomp.Unconfined = true
	case profile.Type == corev1.SeccompProfileTypeLocalhost:
		out.Seccomp.Profile, err = needs.SeccompProfile(*profile.LocalhostProfile)
	}
	return err
}

// AppArmor is the profile a container asks for, nil if none: its own, its pod's, or that of the annotation which they
// replaced.
func AppArmor(pod *corev1.Pod, c *corev1.Container) *corev1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	switch text := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; {
	case text == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case text == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case strings.HasPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		name := strings.TrimPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}

// defaultCaps are the capabilities of a container that asks for none: the set of Docker and containerd.
var defaultCaps = []string{"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
	"NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}

const capAll = "ALL" // in any case of letters, in add as in drop

// capabilities are those a container gets and those taken off again, as containerd reads them: ALL first, on either
// side, then one by one, where drop has the last word.
func capabilities(want *corev1.Capabilities) (give, drop []string) {
	have := map[string]bool{}
	for _, c := range defaultCaps {
		have["CAP_"+c] = true
	}
	if want != nil {
		has := func(list []corev1.Capability) bool {
			return slices.ContainsFunc(list, func(c corev1.Capability) bool { return trimCap(c) == capAll })
		}
		all, none := has(want.Add), has(want.Drop)
		if all || none {
			clear(have)
		}
		if all && !none {
			give = append(give, capAll)
		}
		for _, c := range want.Add {
			if name := trimCap(c); name != capAll {
				have["CAP_"+name] = true
			}
		}
		for _, c := range want.Drop {
			if name := trimCap(c); name != capAll {
				delete(have, "CAP_"+name)
				drop = append(drop, "CAP_"+name)
			}
		}
	}
	for c := range have {
		give = append(give, c)
	}
	slices.Sort(give)
	slices.Sort(drop)
	return give, drop
}

func trimCap(c corev1.Capability) string {
	return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
}
