package httpd

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// Every way in which a pod can refer to a ConfigMap or Secret lets its node read exactly that.
func TestRefersTo(t *testing.T) {
	ref := corev1.LocalObjectReference{Name: "x"}
	env := func(v *corev1.EnvVarSource) corev1.Container {
		return corev1.Container{Env: []corev1.EnvVar{{Name: "PLAIN"}, {Name: "E", ValueFrom: v}}}
	}
	spec := func(c corev1.Container) corev1.PodSpec { return corev1.PodSpec{Containers: []corev1.Container{c}} }
	volume := func(v corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{}}, {VolumeSource: v}}}
	}
	projected := func(s corev1.VolumeProjection) corev1.PodSpec {
		return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{s}}})
	}
	secretEnv := env(&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref}})
	for name, tc := range map[string]struct {
		kind *api.Kind
		spec corev1.PodSpec
	}{
		"env":      {api.Secrets, spec(secretEnv)},
		"init env": {api.Secrets, corev1.PodSpec{InitContainers: []corev1.Container{secretEnv}}},
		"ephemeral env": {api.Secrets, corev1.PodSpec{
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: secretEnv.Env}}}}},
		"env of config": {api.ConfigMaps, spec(env(&corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref}}))},
		"env from": {api.Secrets, spec(corev1.Container{
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref}}}})},
		"env from config": {api.ConfigMaps, spec(corev1.Container{
			EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref}}}})},
		"volume":           {api.Secrets, volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}})},
		"volume of config": {api.ConfigMaps, volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref}})},
		"projected":        {api.Secrets, projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: ref}})},
		"projected config": {api.ConfigMaps, projected(corev1.VolumeProjection{
			ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref}})},
		"image pull": {api.Secrets, corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{ref}}},
	} {
		for _, k := range []*api.Kind{api.ConfigMaps, api.Secrets} {
			for _, object := range []string{"x", "y", ""} {
				want := k == tc.kind && object == "x"
				if got := refersTo(&corev1.Pod{Spec: tc.spec}, k, object); got != want {
					t.Errorf("%s: refers to %s %q: %v, want %v", name, k, object, got, want)
				}
			}
		}
	}
}
