package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/runtime"
)

// TestSecure: what the security contexts come to.
func TestSecure(t *testing.T) {
	yes, no := true, false
	unmasked := corev1.UnmaskedProcMount
	seccomp := func(typ corev1.SeccompProfileType) *corev1.SeccompProfile { return &corev1.SeccompProfile{Type: typ} }
	for _, c := range []struct {
		what       string
		unconfined bool // seccompDefault: false
		pod        *corev1.PodSecurityContext
		con        *corev1.SecurityContext
		want       runtime.Container
	}{
		{"nothing said", false, nil, nil, runtime.Container{}},
		{"nothing said, as a kubelet", true, nil, nil, runtime.Container{Seccomp: runtime.Seccomp{Unconfined: true}}},
		{"privileged", false, nil, &corev1.SecurityContext{Privileged: &yes, SeccompProfile: seccomp("RuntimeDefault")},
			runtime.Container{Privileged: true, Seccomp: runtime.Seccomp{Unconfined: true}}},
		{"not privileged", false, nil, &corev1.SecurityContext{Privileged: &no}, runtime.Container{}},
		{"pod unconfined", false, &corev1.PodSecurityContext{SeccompProfile: seccomp("Unconfined")}, nil,
			runtime.Container{Seccomp: runtime.Seccomp{Unconfined: true}}},
		{"container beats pod", false, &corev1.PodSecurityContext{SeccompProfile: seccomp("Unconfined")},
			&corev1.SecurityContext{SeccompProfile: seccomp("RuntimeDefault")}, runtime.Container{}},
		{"confined where nothing is by default", true, nil, &corev1.SecurityContext{SeccompProfile: seccomp("RuntimeDefault")},
			runtime.Container{}},
		{"no new privileges", false, nil, &corev1.SecurityContext{AllowPrivilegeEscalation: &no}, runtime.Container{NoNewPrivs: true}},
		{"new privileges", false, nil, &corev1.SecurityContext{AllowPrivilegeEscalation: &yes}, runtime.Container{}},
		{"read only", false, nil, &corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}, runtime.Container{ReadonlyRootfs: true}},
		{"proc", false, nil, &corev1.SecurityContext{ProcMount: &unmasked}, runtime.Container{ProcMount: "Unmasked"}},
	} {
		var got runtime.Container
		pod := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: c.pod}}
		if err := (Board{Unconfined: c.unconfined}).secure(&got, pod, &corev1.Container{SecurityContext: c.con}, nil); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got.Privileged != c.want.Privileged || got.ReadonlyRootfs != c.want.ReadonlyRootfs || got.NoNewPrivs != c.want.NoNewPrivs ||
			got.ProcMount != c.want.ProcMount || got.Seccomp.Unconfined != c.want.Seccomp.Unconfined {
			t.Errorf("%s: %+v", c.what, got)
		}
		if len(got.Capabilities) != len(defaultCaps) {
			t.Errorf("%s: capabilities %v", c.what, got.Capabilities)
		}
	}
}

func TestCapabilities(t *testing.T) {
	type caps = []corev1.Capability
	all := func(less string, more ...string) []string {
		var out []string
		for _, c := range defaultCaps {
			if c != less {
				out = append(out, "CAP_"+c)
			}
		}
		out = append(out, more...)
		slices.Sort(out)
		return out
	}
	for _, c := range []struct {
		add, drop caps
		want      []string
	}{
		{nil, nil, all("")},
		{caps{"NET_ADMIN"}, nil, all("", "CAP_NET_ADMIN")},
		{caps{"CAP_NET_ADMIN", "net_admin"}, nil, all("", "CAP_NET_ADMIN")},
		{nil, caps{"NET_RAW"}, all("NET_RAW")},
		{nil, caps{"CAP_NET_RAW"}, all("NET_RAW")},
		{nil, caps{"ALL"}, nil},
		{caps{"NET_BIND_SERVICE"}, caps{"ALL"}, []string{"CAP_NET_BIND_SERVICE"}},
		{caps{"SYS_TIME"}, caps{"SYS_TIME"}, all("")},
		{caps{"ALL"}, nil, []string{"ALL"}},
		{caps{"all"}, caps{"NET_RAW"}, []string{"ALL"}},
		{caps{"ALL"}, caps{"ALL"}, nil},
		{caps{"ALL", "KILL"}, caps{"ALL"}, []string{"CAP_KILL"}},
	} {
		got, drop := capabilities(&corev1.Capabilities{Add: c.add, Drop: c.drop})
		if !slices.Equal(got, c.want) {
			t.Errorf("add %v drop %v: %v, want %v", c.add, c.drop, got, c.want)
		}
		for _, d := range c.drop {
			if name := "CAP_" + trimCap(d); name != "CAP_ALL" && !slices.Contains(drop, name) {
				t.Errorf("drop %v: %v", c.drop, drop)
			}
		}
	}
}
