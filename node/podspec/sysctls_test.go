package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func withSysctl(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{}
		for _, n := range names {
			p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls, corev1.Sysctl{Name: n, Value: "1"})
		}
	}
}

// TestSysctls: which a pod may set, and which a board may allow.
func TestSysctls(t *testing.T) {
	if err := (Sysctls{}).Check(aPod("p", withSysctl(safeSysctls...))); err != nil {
		t.Errorf("safe ones: %v", err)
	}
	host := withSysctl("kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies")
	for want, edit := range map[string]func(*corev1.Pod){
		`"net.ipv4.tcp_syncookies" not allowed with host net enabled`: func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		`"kernel.shm_rmid_forced" not allowed with host ipc enabled`:  func(p *corev1.Pod) { p.Spec.HostIPC = true },
	} {
		if err := (Sysctls{}).Check(aPod("p", host, edit)); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, bad := range []string{"kernel.core_pattern", "vm.*", "*", "fs.file-max", "kernel.*"} {
		if _, err := NewSysctls([]string{bad}); err == nil || !strings.Contains(err.Error(), "are not known to be namespaced") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
