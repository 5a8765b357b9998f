package podspec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/images"
	"ledge/node/downward"
	"ledge/node/volume"
)

type envVar struct{ name, value string }

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// mostTexts bounds the variables of a container and its arguments, each in bytes: with more the kernel starts no program (E2BIG), and
// variables that name each other twice grow to any size.
const mostTexts = 2 << 20

// environ is a container's environment. Only what its pod has set itself can be used as $(NAME), as on Kubernetes.
type environ struct {
	all   []envVar
	pod   []envVar
	bytes int // that its pod has set
}

// bounded counts what was set, and says if it is too much.
func (e *environ) bounded(bytes int) error {
	if e.bytes += bytes; e.bytes > mostTexts {
		return fmt.Errorf("the variables of a container take more than %d bytes, with which no program starts", mostTexts)
	}
	return nil
}

func (e *environ) set(name, value string) {
	e.all, e.pod = setEnv(e.all, name, value), setEnv(e.pod, name, value)
}

func (e environ) list() []string {
	out := make([]string, 0, len(e.all))
	for _, v := range e.all {
		out = append(out, v.name+"="+v.value)
	}
	return out
}

// envMaker makes the environments of one pod's containers.
type envMaker struct {
	downward.Facts
	hostname string
	services []envVar // where the API and other Services are
	from     Needs
}

// environment is PATH and HOSTNAME, then the image's, then where Services are, then what envFrom brings, then the
// container's own; later ones win.
func (m envMaker) environment(ctx context.Context, c *corev1.Container, img images.Image) (environ, error) {
	env := environ{all: []envVar{{"PATH", defaultPath}, {"HOSTNAME", m.hostname}}}
	for _, kv := range img.Config.Env {
		name, value, _ := strings.Cut(kv, "=")
		env.all = setEnv(env.all, name, value)
	}
	env.all, env.pod = setAll(env.all, m.services), slices.Clone(m.services)
	for i := range c.EnvFrom {
		if err := m.addAll(ctx, &env, &c.EnvFrom[i]); err != nil {
			return environ{}, err
		}
	}
	for i := range c.Env {
		e := &c.Env[i]
		value, found := expand(e.Value, env.pod), true
		if e.ValueFrom != nil {
			var err error
			if value, found, err = m.value(ctx, e.ValueFrom, c.Name); err != nil {
				return environ{}, err
			}
		}
		if found {
			env.set(e.Name, value)
		}
		if err := env.bounded(len(value)); err != nil {
			return environ{}, err
		}
	}
	return env, nil
}

// expandAll is for what makes no sense with a name left standing in it.
func (e environ) expandAll(s string) (string, error) {
	out, unset := expandStrict(s, e.pod)
	if len(unset) > 0 {
		return "", fmt.Errorf("missing value for %q", unset[0])
	}
	return out, nil
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

// setAll is setEnv for many: Services make thousands.
func setAll(env, vars []envVar) []envVar {
	at := make(map[string]int, len(env)+len(vars))
	for i := range env {
		at[env[i].name] = i
	}
	for _, v := range vars {
		if i, ok := at[v.name]; ok {
			env[i].value = v.value
			continue
		}
		at[v.name], env = len(env), append(env, v)
	}
	return env
}

// addAll takes every key of a ConfigMap or Secret: whatever may be a key may be a variable. One that is missing is an error unless it is
// optional.
func (m envMaker) addAll(ctx context.Context, env *environ, from *corev1.EnvFromSource) error {
	data := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		cm, err := m.from.ConfigMap(ctx, m.Pod.Namespace, from.ConfigMapRef.Name)
		if err != nil {
			return unlessOptional(err, from.ConfigMapRef.Optional)
		}
		data = cm.Data
	case from.SecretRef != nil:
		s, err := m.from.Secret(ctx, m.Pod.Namespace, from.SecretRef.Name)
		if err != nil {
			return unlessOptional(err, from.SecretRef.Optional)
		}
		data = asText(s.Data)
	}
	var vars []envVar
	bytes := 0
	for _, k := range slices.Sorted(maps.Keys(data)) {
		vars, bytes = append(vars, envVar{from.Prefix + k, data[k]}), bytes+len(from.Prefix)+len(k)+len(data[k])
	}
	env.all, env.pod = setAll(env.all, vars), setAll(env.pod, vars)
	return env.bounded(bytes)
}

func asText(data map[string][]byte) map[string]string {
	out := make(map[string]string, len(data))
	for k, v := range data {
		out[k] = string(v)
	}
	return out
}

// unlessOptional lets pass that an optional object does not exist.
func unlessOptional(err error, optional *bool) error {
	if errors.Is(err, volume.ErrNotFound) && optional != nil && *optional {
		return nil
	}
	return err
}

// value is what one variable is taken from; found is false for an optional key that is not there.
func (m envMaker) value(ctx context.Context, from *corev1.EnvVarSource, container string) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = m.Field(from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		value, err = m.Resource(from.ResourceFieldRef, container)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := m.from.ConfigMap(ctx, m.Pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional)
		}
		return key(cm.Data, ref.Key, ref.Optional, "ConfigMap", m.Pod.Namespace, ref.Name)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := m.from.Secret(ctx, m.Pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional)
		}
		return key(asText(s.Data), ref.Key, ref.Optional, "Secret", m.Pod.Namespace, ref.Name)
	case from.FileKeyRef != nil:
		return m.fileKey(from.FileKeyRef)
	default:
		return "", false, errors.New("this source of a variable is not supported by ledge yet")
	}
	return value, err == nil, err
}

func key(data map[string]string, key string, optional *bool, kind, namespace, name string) (string, bool, error) {
	value, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %v in %s %v/%v", key, kind, namespace, name)
	}
	return value, ok, nil
}

func expandAll(in []string, env []envVar) ([]string, error) {
	out, bytes := make([]string, len(in)), 0
	for i := range in {
		out[i] = expand(in[i], env)
		if bytes += len(out[i]); bytes > mostTexts {
			return nil, fmt.Errorf("command and arguments take more than %d bytes, with which no program starts", mostTexts)
		}
	}
	return out, nil
}

// expand replaces $(NAME) by its value; $$ is a dollar sign, and a name that is not set stays as written. It ends soon after mostTexts.
func expand(s string, env []envVar) string {
	out, _ := expandStrict(s, env)
	return out
}

// expandStrict also gives the names that are not set.
func expandStrict(s string, env []envVar) (out string, unset []string) {
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() <= mostTexts; i++ {
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
			name := s[i+2 : i+end]
			at := slices.IndexFunc(env, func(e envVar) bool { return e.name == name })
			if at >= 0 {
				b.WriteString(env[at].value)
			} else {
				b.WriteString("$(" + name + ")")
				unset = append(unset, name)
			}
			i += end
		default:
			b.WriteByte('$')
		}
	}
	return b.String(), unset
}
