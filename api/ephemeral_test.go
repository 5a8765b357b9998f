package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/api/valid"
)

// TestEphemeral: ephemeral containers come through their own subresource, and neither change nor go.
func TestEphemeral(t *testing.T) {
	const e1 = "spec.ephemeralContainers[1]."
	debug := func(name string) corev1.EphemeralContainer {
		return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "busybox:1",
			ImagePullPolicy: "IfNotPresent", TerminationMessagePath: "/x", TerminationMessagePolicy: "File"}}
	}
	for _, tc := range []struct {
		name        string
		change      func(e *corev1.EphemeralContainer)
		field, text string
	}{
		{"another", func(*corev1.EphemeralContainer) {}, "", ""},
		{"with a target", func(e *corev1.EphemeralContainer) { e.TargetContainerName = "c" }, "", ""},
		{"no such target", func(e *corev1.EphemeralContainer) { e.TargetContainerName = "x" }, e1 + "targetContainerName", "Not found"},
		{"target ephemeral", func(e *corev1.EphemeralContainer) { e.TargetContainerName = "old" }, e1 + "targetContainerName", "Not found"},
		{"name of a container", func(e *corev1.EphemeralContainer) { e.Name = "c" }, e1 + "name", "Duplicate"},
		{"name twice", func(e *corev1.EphemeralContainer) { e.Name = "old" }, e1 + "name", "Duplicate"},
		{"no image", func(e *corev1.EphemeralContainer) { e.Image = "" }, e1 + "image", "Required"},
		{"probe", func(e *corev1.EphemeralContainer) { e.LivenessProbe = goodProbe() }, e1 + "livenessProbe",
			"cannot be set for an Ephemeral Container"},
		{"hook", func(e *corev1.EphemeralContainer) { e.Lifecycle = &corev1.Lifecycle{} }, e1 + "lifecycle", "cannot be set"},
		{"resources", func(e *corev1.EphemeralContainer) { e.Resources.Limits = res("1", "") }, e1 + "resources", "cannot be set"},
		{"restarts", func(e *corev1.EphemeralContainer) { e.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways) }, e1 + "restartPolicy",
			"cannot be set"},
		{"port", func(e *corev1.EphemeralContainer) {
			e.Ports = []corev1.ContainerPort{{ContainerPort: 1, Protocol: "TCP"}}
		}, e1 + "ports", "cannot be set"},
		{"mount of nothing", func(e *corev1.EphemeralContainer) {
			e.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}, e1 + "volumeMounts[0].name", "Not found"},
		{"device of nothing", func(e *corev1.EphemeralContainer) {
			e.VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
		}, e1 + "volumeDevices[0].name", "Not found"},
		{"not yet", func(e *corev1.EphemeralContainer) {
			e.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", BindMountOptions: []string{"x"}}}
		}, e1 + "volumeMounts[0].bindMountOptions", valid.NotYet},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := validPod()
			first(old).Name, old.ResourceVersion = "c", "1"
			old.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug("old")}
			p := old.DeepCopy()
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, debug("new"))
			tc.change(&p.Spec.EphemeralContainers[1])
			wants(t, validateUpdate(p, old, Ephemeral), tc.field, tc.text)
		})
	}
	old := validPod()
	old.ResourceVersion = "1"
	old.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug("old")}
	p := old.DeepCopy()
	p.Spec.EphemeralContainers[0].Image = "other"
	wants(t, validateUpdate(p, old, Ephemeral), "spec.ephemeralContainers", "may not be changed")
	p.Spec.EphemeralContainers = nil
	wants(t, validateUpdate(p, old, Ephemeral), "spec.ephemeralContainers", "may not be removed")
	wants(t, validateUpdate(p, old, ""), "spec", "pod updates may not change fields")
	wants(t, validate(old), "spec.ephemeralContainers", "cannot be set on create")
	old.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p = old.DeepCopy()
	if err := validateUpdate(p, old, Ephemeral); err == nil ||
		!strings.Contains(err.Error(), "static pods do not support ephemeral containers") {
		t.Errorf("a static pod: %v", err)
	}
}
