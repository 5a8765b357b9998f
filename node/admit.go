package node

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/podspec"
	"ledge/node/podstate"
	"ledge/runtime"
)

// refusal is why this board does not take a pod, in Kubernetes' words.
type refusal struct{ reason, message string }

// admit asks whether this board can give a pod what it is to be run under (N-7.4), in Kubernetes' order: a pod that
// could run only with less is refused.
func (d admission) admit(pod *corev1.Pod) *refusal {
	info := d.a.engine.last()
	if err := d.a.cfg.Sysctls.Check(pod); err != nil {
		return &refusal{"SysctlForbidden", "forbidden sysctl: " + err.Error()}
	}
	if podspec.OwnUsers(pod) && d.a.board().OnHostNetwork(pod) {
		return &refusal{"UnexpectedAdmissionError",
			"Unexpected error hostUsers: this board has all pods on its own network, where a pod with users of its own cannot be"}
	}
	if podspec.OwnUsers(pod) && asksByResource(pod) {
		return &refusal{"UnexpectedAdmissionError", "Unexpected error hostUsers: a pod with users of its own cannot have devices " +
			"(ledge.local/...): leave hostUsers out, the device needs no privileges"}
	}
	if err := admitAppArmor(pod, info); err != nil {
		return &refusal{"AppArmor", "Cannot enforce AppArmor: " + err.Error()}
	}
	if info.SELinux && asksSELinux(pod) {
		return &refusal{"UnexpectedAdmissionError",
			"Unexpected error seLinuxOptions: this board enforces SELinux and ledge cannot label containers yet"}
	}
	return nil
}

func (d admission) turnAway(pod *corev1.Pod, why *refusal) *podstate.Stop {
	d.a.event(pod, corev1.EventTypeWarning, why.reason, why.message)
	return &podstate.Stop{Reason: why.reason, Message: "Pod was rejected: " + why.message}
}

// admitAppArmor: a profile is enforced or the pod does not run.
func admitAppArmor(pod *corev1.Pod, info runtime.Info) (err error) {
	each(pod, func(c *corev1.Container) {
		p := podspec.AppArmor(pod, c)
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
