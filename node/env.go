package node

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
)

type envVar struct{ name, value string }

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ is a container's environment. Only what its pod has set itself can be used as $(NAME), as on Kubernetes.
type environ struct {
	all []envVar
	pod []envVar
}

func (e environ) list() []string {
	out := make([]string, 0, len(e.all))
	for _, v := range e.all {
		out = append(out, v.name+"="+v.value)
	}
	return out
}

// environment is PATH and HOSTNAME, then the image's, then the container's own; later ones win.
func environment(pod *corev1.Pod, c *corev1.Container, img images.Image, hostIPs, podIPs []string) (environ, error) {
	env := environ{all: []envVar{{"PATH", defaultPath}, {"HOSTNAME", hostname(pod)}}}
	for _, kv := range img.Config.Env {
		name, value, _ := strings.Cut(kv, "=")
		env.all = setEnv(env.all, name, value)
	}
	for _, e := range c.Env {
		value := expand(e.Value, env.pod)
		if e.ValueFrom != nil {
			var err error
			if value, err = fieldValue(pod, e.ValueFrom, hostIPs, podIPs); err != nil {
				return environ{}, fmt.Errorf("env %s of container %s: %w", e.Name, c.Name, err)
			}
		}
		env.all, env.pod = setEnv(env.all, e.Name, value), setEnv(env.pod, e.Name, value)
	}
	return env, nil
}

func setEnv(env []envVar, name, value string) []envVar {
	for i := range env {
		if env[i].name == name {
			env[i].value = value
			return env
		}
	}
	return append(env, envVar{name, value})
}

// fieldValue resolves the downward API fields a pod may take into its environment (N-7.47).
func fieldValue(pod *corev1.Pod, from *corev1.EnvVarSource, hostIPs, podIPs []string) (string, error) {
	if from.FieldRef == nil {
		return "", fmt.Errorf("only fieldRef is supported by ledge yet")
	}
	p := from.FieldRef.FieldPath
	if name, key, ok := strings.Cut(p, "['"); ok && strings.HasSuffix(key, "']") {
		key = strings.TrimSuffix(key, "']")
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch p {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return firstOf(hostIPs), nil
	case "status.podIP":
		return firstOf(podIPs), nil
	case "status.hostIPs":
		return strings.Join(hostIPs, ","), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("field %q is not supported", p)
}

func firstOf(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

func expandAll(in []string, env []envVar) []string {
	out := make([]string, len(in))
	for i := range in {
		out[i] = expand(in[i], env)
	}
	return out
}

// expand replaces $(NAME) by its value; $$ is a dollar sign, and a name that is not set stays as written.
func expand(s string, env []envVar) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				b.WriteByte('$')
				continue
			}
			b.WriteString(lookup(env, s[i+2:i+end]))
			i += end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}

func lookup(env []envVar, name string) string {
	for _, e := range env {
		if e.name == name {
			return e.value
		}
	}
	return "$(" + name + ")"
}
