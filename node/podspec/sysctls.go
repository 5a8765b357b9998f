package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// Sysctls are the unsafe ones that pods may set on this board (--allowed-unsafe-sysctls): names, or beginnings of names
// that end in *.
type Sysctls []string

// NewSysctls refuses what belongs to no namespace: it would be set for the whole board.
func NewSysctls(list []string) (Sysctls, error) {
	var out Sysctls
	for _, name := range list {
		key := api.SysctlName(name)
		if namespaceOf(strings.TrimSuffix(key, "*")) == "" {
			return nil, fmt.Errorf("the sysctls %q are not known to be namespaced", name)
		}
		out = append(out, key)
	}
	return out, nil
}

// safeSysctls touch nothing but their own pod, and cannot be used to hurt another.
var safeSysctls = []string{"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports",
	"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}

// namespaceOf says which namespace a sysctl belongs to: ipc, net, or none.
func namespaceOf(name string) string {
	switch {
	case strings.HasPrefix(name, "net."):
		return "net"
	case strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem",
		strings.HasPrefix(name, "fs.mqueue."):
		return "ipc"
	}
	return ""
}

// Check refuses a pod that sets what it may not.
func (s Sysctls) Check(pod *corev1.Pod) error {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, x := range pod.Spec.SecurityContext.Sysctls {
		name := api.SysctlName(x.Name)
		allowed := slices.Contains(safeSysctls, name) || slices.ContainsFunc(s, func(pattern string) bool {
			beginning, open := strings.CutSuffix(pattern, "*")
			return pattern == name || open && strings.HasPrefix(name, beginning)
		})
		switch ns := namespaceOf(name); {
		case !allowed:
			return fmt.Errorf("%q not allowlisted", x.Name)
		case ns == "net" && pod.Spec.HostNetwork:
			return fmt.Errorf("%q not allowed with host net enabled", x.Name)
		case ns == "ipc" && pod.Spec.HostIPC:
			return fmt.Errorf("%q not allowed with host ipc enabled", x.Name)
		}
	}
	return nil
}

// sysctls are the sysctls of a pod, for the engine.
func sysctls(pod *corev1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, x := range pod.Spec.SecurityContext.Sysctls {
		out[api.SysctlName(x.Name)] = x.Value
	}
	return out
}
