package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/podstate"
	"ledge/runtime"
)

// refusal is why this board does not take a pod, in Kubernetes' words.
type refusal struct{ reason, message string }

// admit asks whether this board can give a pod what it is to be run under (N-7.4), in Kubernetes' order: a pod that
// could run only with less is refused.
func (a *Agent) admit(pod *corev1.Pod) *refusal {
	a.mu.Lock()
	info := a.engine.info
	a.mu.Unlock()
	if err := a.cfg.Sysctls.check(pod); err != nil {
		return &refusal{"SysctlForbidden", "forbidden sysctl: " + err.Error()}
	}
	if ownUsers(pod) && a.onHostNetwork(pod) {
		return &refusal{"UnexpectedAdmissionError", "Unexpected error hostUsers: this board has all pods on its own network, where a pod with users of its own cannot be"}
	}
	if err := admitAppArmor(pod, info); err != nil {
		return &refusal{"AppArmor", "Cannot enforce AppArmor: " + err.Error()}
	}
	if info.SELinux && asksSELinux(pod) {
		return &refusal{"UnexpectedAdmissionError", "Unexpected error seLinuxOptions: this board enforces SELinux and ledge cannot label containers yet"}
	}
	return nil
}

func (a *Agent) turnAway(pod *corev1.Pod, why *refusal) *podstate.Stop {
	a.event(pod, corev1.EventTypeWarning, why.reason, why.message)
	return &podstate.Stop{Reason: why.reason, Message: "Pod was rejected: " + why.message}
}

// admitAppArmor: a profile is enforced or the pod does not run.
func admitAppArmor(pod *corev1.Pod, info runtime.Info) (err error) {
	each(pod, func(c *corev1.Container) {
		p := appArmor(pod, c)
		switch {
		case err != nil || p == nil || p.Type == corev1.AppArmorProfileTypeUnconfined:
		case !info.AppArmor:
			err = said("AppArmor is not enabled on the host")
		case p.Type == corev1.AppArmorProfileTypeRuntimeDefault:
			err = errors.New("ledge brings no default profile; load one and name it with type Localhost")
		}
	})
	return err
}

func asksSELinux(pod *corev1.Pod) (asks bool) {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SELinuxOptions != nil {
		return true
	}
	each(pod, func(c *corev1.Container) {
		asks = asks || c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil
	})
	return asks
}

func each(pod *corev1.Pod, fn func(*corev1.Container)) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			fn(&list[i])
		}
	}
}

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
	case strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem", strings.HasPrefix(name, "fs.mqueue."):
		return "ipc"
	}
	return ""
}

func (s Sysctls) check(pod *corev1.Pod) error {
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

// sysctls are those of the pod, for the engine.
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
