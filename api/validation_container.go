package api

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

func validateContainers(s *corev1.PodSpec, volumes map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	names := sets.New[string]()
	check := func(list []corev1.Container, at *field.Path) {
		for i := range list {
			c, at := &list[i], at.Index(i)
			if names.Has(c.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
			}
			names.Insert(c.Name)
			errs = append(errs, validateResizePolicy(c.ResizePolicy, s.RestartPolicy, at.Child("resizePolicy"))...)
			errs = append(errs, validateContainer(c, volumes, s.HostNetwork, at)...)
		}
	}
	check(s.Containers, at.Child("containers"))
	check(s.InitContainers, at.Child("initContainers"))
	for i := range s.InitContainers {
		for j, p := range s.InitContainers[i].ResizePolicy {
			if p.RestartPolicy == corev1.RestartContainer && !IsSidecar(&s.InitContainers[i]) {
				errs = append(errs, field.Invalid(at.Child("initContainers").Index(i).Child("resizePolicy").Index(j).Child("restartPolicy"),
					p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers"))
			}
		}
	}
	return append(errs, hostPortsOnce(s.Containers, at.Child("containers"))...)
}

func validateContainer(c *corev1.Container, volumes map[string]bool, hostNetwork bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, isLabel(c.Name, at.Child("name"))...)
	}
	errs = append(errs, validateImage(c.Image, at.Child("image"))...)
	errs = append(errs, valid.OneOf(c.ImagePullPolicy, at.Child("imagePullPolicy"),
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, valid.OneOf(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	if c.TerminationMessagePath == "" {
		errs = append(errs, field.Required(at.Child("terminationMessagePath"), ""))
	}
	errs = append(errs, validatePorts(c.Ports, hostNetwork, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, at.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, validateMounts(c, volumes, at.Child("volumeMounts"))...)
	errs = append(errs, validateVolumeDevices(c, volumes, at.Child("volumeDevices"))...)
	errs = append(errs, validateResources(&c.Resources, at.Child("resources"))...)
	return append(errs, validateSecurity(c.SecurityContext, at.Child("securityContext"))...)
}

func validateImage(image string, at *field.Path) field.ErrorList {
	if image == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if strings.TrimSpace(image) != image {
		return field.ErrorList{field.Invalid(at, image, "must not have leading or trailing whitespace")}
	}
	return nil
}

func validatePorts(ports []corev1.ContainerPort, hostNetwork bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			errs = append(errs, valid.Each(validation.IsValidPortName(p.Name), func(msg string) *field.Error {
				return field.Invalid(at.Child("name"), p.Name, msg)
			})...)
			if names.Has(p.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, isPort(p.ContainerPort, at.Child("containerPort"))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, isPort(p.HostPort, at.Child("hostPort"))...)
		}
		if hostNetwork && p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(at.Child("containerPort"), p.ContainerPort, "must match `hostPort` when `hostNetwork` is true"))
		}
		if p.HostIP != "" {
			errs = append(errs, validation.IsValidIP(at.Child("hostIP"), p.HostIP)...)
		}
		errs = append(errs, valid.OneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	return errs
}

func isPort(port int32, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsValidPortNum(int(port)), func(msg string) *field.Error { return field.Invalid(at, port, msg) })
}

// hostPortsOnce: containers of one pod share an address, so a host port can be theirs only once.
func hostPortsOnce(list []corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range list {
		for j, p := range list[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen.Has(key) {
				errs = append(errs, field.Duplicate(at.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			seen.Insert(key)
		}
	}
	return errs
}

func validateEnv(env []corev1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range env {
		e, at := &env[i], at.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, valid.Each(validation.IsRelaxedEnvVarName(e.Name), func(msg string) *field.Error {
				return field.Invalid(at.Child("name"), e.Name, msg)
			})...)
		}
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			errs = append(errs, field.Invalid(at.Child("valueFrom"), "", "may not be specified when `value` is not empty"))
		}
		errs = append(errs, validateEnvSource(e.ValueFrom, at.Child("valueFrom"))...)
	}
	return errs
}

func validateFieldRef(f *corev1.ObjectFieldSelector, at *field.Path) field.ErrorList {
	if f.APIVersion != "v1" {
		return field.ErrorList{field.NotSupported(at.Child("apiVersion"), f.APIVersion, []string{"v1"})}
	}
	switch f.FieldPath {
	case "":
		return field.ErrorList{field.Required(at.Child("fieldPath"), "")}
	case "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.podIP", "status.hostIPs", "status.podIPs":
		return nil
	}
	at = at.Child("fieldPath")
	what, key, ok := SplitSubscript(f.FieldPath)
	if !ok || what != "metadata.labels" && what != "metadata.annotations" {
		return field.ErrorList{field.NotSupported(at, f.FieldPath, supportedFieldRefs)}
	}
	if what == "metadata.annotations" {
		key = strings.ToLower(key)
	}
	return valid.Each(validation.IsQualifiedName(key), func(msg string) *field.Error { return field.Invalid(at, f.FieldPath, msg) })
}

// SplitSubscript takes "metadata.labels['a']" apart into "metadata.labels" and "a".
func SplitSubscript(path string) (what, key string, ok bool) {
	what, rest, ok := strings.Cut(path, "['")
	if !ok {
		return path, "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return what, key, ok && what != "" && key != ""
}
