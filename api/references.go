package api

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// References are the ConfigMaps and Secrets that a pod names anywhere in its spec, each once. They decide what the pod's
// node may read, and so what a node must not name in pods that it makes itself (N-1.36, N-1.40).
func References(pod *corev1.Pod) (configMaps, secrets []string) {
	add := func(to *[]string, name string) {
		if name != "" && !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(&secrets, s.Name)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.ConfigMap != nil {
			add(&configMaps, v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add(&secrets, v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(&configMaps, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(&secrets, s.Secret.Name)
			}
		}
	}
	environment := func(env []corev1.EnvVar, from []corev1.EnvFromSource) {
		for _, e := range from {
			if e.ConfigMapRef != nil {
				add(&configMaps, e.ConfigMapRef.Name)
			}
			if e.SecretRef != nil {
				add(&secrets, e.SecretRef.Name)
			}
		}
		for _, e := range env {
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				add(&configMaps, e.ValueFrom.ConfigMapKeyRef.Name)
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				add(&secrets, e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		environment(c.Env, c.EnvFrom)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		environment(c.Env, c.EnvFrom)
	}
	return configMaps, secrets
}
