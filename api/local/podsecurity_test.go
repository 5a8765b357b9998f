package local

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/kinds"
)

// heardBy runs a write as root and answers the warnings that came with it.
func heardBy(t *testing.T, c *Client, obj api.Object) ([]string, error) {
	t.Helper()
	kind, err := kinds.All.Of(obj)
	if err != nil {
		t.Fatal(err)
	}
	var heard []string
	ctx := api.WithWarnings(t.Context(), once(&heard))
	_, err = c.Create(ctx, kind, obj, api.WriteOptions{})
	return heard, err
}

func secured(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels["pod-security.kubernetes.io/"+labels[i]] = labels[i+1]
	}
	return ns
}

func podIn(namespace, name string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := newPod(name, "")
	p.Namespace = namespace
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// hardened is what restricted asks for.
func hardened(s *corev1.PodSpec) {
	s.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	s.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

// TestPodSecurity: what each level lets in, in Kubernetes' words.
func TestPodSecurity(t *testing.T) {
	privileged := func(s *corev1.PodSpec) {
		s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr(true)}
	}
	hostNetwork := func(s *corev1.PodSpec) { s.HostNetwork = true }
	hostPath := func(s *corev1.PodSpec) {
		hardened(s)
		s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	}
	hardenedInit := func(s *corev1.PodSpec) {
		hardened(s)
		s.InitContainers = []corev1.Container{{Name: "i", Image: "x"}}
	}
	for _, tc := range []struct {
		name   string
		labels []string
		pod    func(*corev1.PodSpec)
		refuse string // part of the refusal; "" for none
		warn   string // part of the one warning; "" for none
	}{
		{"no label", nil, privileged, "", ""},
		{"privileged", []string{"enforce", "privileged"}, privileged, "", ""},
		{"baseline", []string{"enforce", "baseline"}, nil, "", ""},
		{"baseline, privileged", []string{"enforce", "baseline"}, privileged,
			`pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)`,
			""},
		{"baseline, host network", []string{"enforce", "baseline"}, hostNetwork,
			`violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`, ""},
		{"baseline, host path", []string{"enforce", "baseline"}, hostPath, `hostPath volumes (volume "v")`, ""},
		{"restricted", []string{"enforce", "restricted"}, hardened, "", ""},
		{"restricted, plain", []string{"enforce", "restricted"}, nil,
			`violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "c" must set ` +
				`securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), ` +
				`runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set ` +
				`securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`, ""},
		{"restricted, init container", []string{"enforce", "restricted"}, hardenedInit, `container "i" must set`, ""},
		{"an older version", []string{"enforce", "restricted", "enforce-version", "v1.7"}, func(s *corev1.PodSpec) {
			hardened(s)
			s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil // asked for since v1.8
		}, "", ""},
		{"warn", []string{"warn", "baseline"}, privileged, "", `would violate PodSecurity "baseline:latest": privileged (container "c"`},
		{"warn of more", []string{"enforce", "baseline", "warn", "restricted"}, nil, "",
			`would violate PodSecurity "restricted:latest": allowPrivilegeEscalation`},
		{"no warning of what is refused", []string{"enforce", "baseline", "warn", "restricted"}, privileged, "violates", ""},
		{"audit", []string{"audit", "baseline"}, privileged, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := open(t, Config{})
			create(t, c, secured("ns", tc.labels...))
			heard, err := heardBy(t, c, podIn("ns", "p", tc.pod))
			if tc.refuse != "" {
				wantCode(t, err, 403, tc.refuse)
			} else if err != nil {
				t.Error(err)
			}
			if tc.warn == "" && len(heard) > 0 || tc.warn != "" && (len(heard) != 1 || !strings.Contains(heard[0], tc.warn)) {
				t.Errorf("warnings %q, want %q", heard, tc.warn)
			}
		})
	}
}

// TestPodSecurityOfBoards: the default that a board sets counts where there is no label, and not for the system's own pods.
func TestPodSecurityOfBoards(t *testing.T) {
	c := open(t, Config{PodSecurity: "baseline"})
	create(t, c, secured("free", "enforce", "privileged"))
	host := func(s *corev1.PodSpec) { s.HostNetwork = true }
	_, err := heardBy(t, c, podIn("default", "p", host))
	wantCode(t, err, 403, `violates PodSecurity "baseline:latest"`)
	for _, ns := range []string{"free", "kube-system"} {
		if _, err := heardBy(t, c, podIn(ns, "p", host)); err != nil {
			t.Errorf("%s: %v", ns, err)
		}
	}
	if _, err := New(Config{Store: c.store, PodSecurity: "strict"}); err == nil ||
		!strings.Contains(err.Error(), `pod security "strict": must be one of privileged, baseline, restricted`) {
		t.Errorf("a level that is none: %v", err)
	}
}

// TestPodSecurityOfChanges: what changes in a pod that is there is asked about when it brings other images, labels are
// when they are set, and templates only warn.
func TestPodSecurityOfChanges(t *testing.T) {
	c := open(t, Config{})
	create(t, c, secured("ns"))
	for _, name := range []string{"b", "a", "d"} {
		create(t, c, podIn("ns", name, func(s *corev1.PodSpec) { s.HostNetwork = true }))
	}
	create(t, c, podIn("ns", "c", func(s *corev1.PodSpec) { s.HostPID = true; s.HostIPC = true }))
	create(t, c, podIn("ns", "good", hardened))
	label := func(data string) ([]string, error) {
		var heard []string
		ctx := api.WithWarnings(t.Context(), once(&heard))
		_, err := c.Patch(ctx, api.Namespaces, "", "ns",
			api.Patch{Type: types.MergePatchType, Data: []byte(`{"metadata":{"labels":` + data + `}}`)}, api.WriteOptions{})
		return heard, err
	}
	heard, err := label(`{"pod-security.kubernetes.io/enforce":"baseline"}`)
	if err != nil || !slices.Equal(heard, []string{`existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"`,
		"a (and 2 other pods): host namespaces", "c: host namespaces"}) && !slices.Equal(heard, []string{
		`existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"`, "a (and 3 other pods): host namespaces"}) {
		t.Errorf("labelled: %q %v", heard, err)
	}
	if heard, err := label(`{"x":"y"}`); err != nil || len(heard) > 0 {
		t.Errorf("another label: %q %v", heard, err)
	}
	_, err = label(`{"pod-security.kubernetes.io/enforce":"strict"}`)
	wantCode(t, err, 422, `metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`)
	_, err = label(`{"pod-security.kubernetes.io/warn-version":"1.30"}`)
	wantCode(t, err, 422, `must be "latest" or "v1.x"`)
	_, err = heardBy(t, c, secured("odd", "audit", "x"))
	wantCode(t, err, 422, "metadata.labels[pod-security.kubernetes.io/audit]")

	patch := func(sub, data string) error {
		_, err := c.Patch(t.Context(), api.Pods, "ns", "a", api.Patch{Type: types.MergePatchType, Data: []byte(data)},
			api.WriteOptions{Subresource: sub})
		return err
	}
	if err := patch("", `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("a label of a pod that was there: %v", err)
	}
	if err := patch("status", `{"status":{"phase":"Running"}}`); err != nil {
		t.Errorf("the status of a pod that was there: %v", err)
	}
	wantCode(t, patch("", `{"spec":{"containers":[{"name":"c","image":"other"}]}}`), 403, "violates PodSecurity")
	wantCode(t, patch(api.Ephemeral, `{"spec":{"ephemeralContainers":[{"name":"e","image":"x","terminationMessagePolicy":"File","imagePullPolicy":"Always"}]}}`), 403, "violates PodSecurity")

	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}}
	template.Template.Spec = podIn("ns", "x", func(s *corev1.PodSpec) { s.HostNetwork = true }).Spec
	if heard, err := heardBy(t, c, template); err != nil || len(heard) != 1 || !strings.Contains(heard[0], "would violate") {
		t.Errorf("a template: %q %v", heard, err)
	}
	if heard, err := label(`{"pod-security.kubernetes.io/enforce":"privileged"}`); err != nil || len(heard) > 0 {
		t.Errorf("relaxed: %q %v", heard, err)
	}
}
