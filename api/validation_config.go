package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// validateEnvSource checks where a variable comes from: exactly one place.
func validateEnvSource(s *corev1.EnvVarSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	n := 0
	if s.FieldRef != nil {
		n++
		errs = append(errs, validateFieldRef(s.FieldRef, at.Child("fieldRef"))...)
	}
	if s.ResourceFieldRef != nil {
		n++
		errs = append(errs, validateResourceRef(s.ResourceFieldRef, false, at.Child("resourceFieldRef"))...)
	}
	if r := s.ConfigMapKeyRef; r != nil {
		n++
		errs = append(errs, validateKeyRef(r.Name, r.Key, at.Child("configMapKeyRef"))...)
	}
	if r := s.SecretKeyRef; r != nil {
		n++
		errs = append(errs, validateKeyRef(r.Name, r.Key, at.Child("secretKeyRef"))...)
	}
	if r := s.FileKeyRef; r != nil {
		n++
		errs = append(errs, validateFileKeyRef(r, at.Child("fileKeyRef"))...)
	}
	switch {
	case n == 0:
		errs = append(errs, field.Invalid(at, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case n > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validateFileKeyRef(r *corev1.FileKeySelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Key == "" {
		errs = append(errs, field.Required(at.Child("key"), ""))
	} else {
		errs = append(errs, valid.Each(validation.IsRelaxedEnvVarName(r.Key), func(msg string) *field.Error {
			return field.Invalid(at.Child("key"), r.Key, msg)
		})...)
	}
	errs = append(errs, valid.Required(r.VolumeName, at.Child("volumeName"))...)
	if r.Path == "" {
		return append(errs, field.Required(at.Child("path"), ""))
	}
	return append(errs, validateDescending(r.Path, at.Child("path"))...)
}

// validateFileVolumes: a file that variables are taken from stands in an emptyDir of the pod, where another container
// can have written it.
func validateFileVolumes(s *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	eachContainer(&corev1.Pod{Spec: *s}, func(c *corev1.Container, at *field.Path) {
		for i := range c.Env {
			from := c.Env[i].ValueFrom
			if from == nil || from.FileKeyRef == nil || from.FileKeyRef.VolumeName == "" {
				continue
			}
			name, at := from.FileKeyRef.VolumeName, at.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			n := slices.IndexFunc(s.Volumes, func(v corev1.Volume) bool { return v.Name == name })
			switch {
			case n < 0:
				errs = append(errs, field.NotFound(at, name))
			case s.Volumes[n].EmptyDir == nil:
				errs = append(errs, field.Invalid(at, name, "referenced volume must be of type emptyDir"))
			}
		}
	})
	return errs
}

func validateKeyRef(name, key string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if key == "" {
		return append(errs, field.Required(at.Child("key"), ""))
	}
	return append(errs, valid.Each(validation.IsConfigMapKey(key),
		func(msg string) *field.Error { return field.Invalid(at.Child("key"), key, msg) })...)
}

// resourceRefs are what resourceFieldRef may name, beside huge pages of any size.
var resourceRefs = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
	"requests.memory"}

// validateResourceRef checks a resourceFieldRef. In a volume nobody is "this container": it must be named there.
func validateResourceRef(r *corev1.ResourceFieldSelector, volume bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	huge := strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-")
	switch {
	case volume && r.ContainerName == "":
		errs = append(errs, field.Required(at.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(at.Child("resource"), ""))
	case !huge && !slices.Contains(resourceRefs, r.Resource):
		errs = append(errs, field.NotSupported(at.Child("resource"), r.Resource, resourceRefs))
	}
	divisors := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if strings.HasSuffix(r.Resource, ".cpu") {
		divisors = []string{"1m", "1"}
	}
	if !r.Divisor.IsZero() && !slices.Contains(divisors, r.Divisor.String()) {
		errs = append(errs, field.Invalid(at.Child("divisor"), r.Resource,
			fmt.Sprintf("only divisor's values %s are supported with the %s resource",
				strings.Join(divisors, ", "), strings.TrimPrefix(strings.TrimPrefix(r.Resource, "limits."), "requests."))))
	}
	return errs
}

func validateEnvFrom(list []corev1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range list {
		at := at.Index(i)
		if s.Prefix != "" {
			errs = append(errs, valid.Each(validation.IsRelaxedEnvVarName(s.Prefix), func(msg string) *field.Error {
				return field.Invalid(at.Child("prefix"), s.Prefix, msg)
			})...)
		}
		switch {
		case s.ConfigMapRef == nil && s.SecretRef == nil:
			errs = append(errs, field.Invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
		case s.ConfigMapRef != nil && s.SecretRef != nil:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		case s.ConfigMapRef != nil && s.ConfigMapRef.Name == "":
			errs = append(errs, field.Required(at.Child("configMapRef", "name"), ""))
		case s.SecretRef != nil && s.SecretRef.Name == "":
			errs = append(errs, field.Required(at.Child("secretRef", "name"), ""))
		}
	}
	return errs
}

// What a pod's resolv.conf may be asked to hold.
const (
	maxDNSServers      = 3
	maxDNSSearches     = 32
	maxDNSSearchLength = 2048
	maxHostOverride    = 64
)

func validateDNSConfig(c *corev1.PodDNSConfig, at *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if len(c.Nameservers) > maxDNSServers {
		errs = append(errs, field.Invalid(at.Child("nameservers"), c.Nameservers,
			fmt.Sprintf("must not have more than %v nameservers", maxDNSServers)))
	}
	for i, ns := range c.Nameservers {
		errs = append(errs, validation.IsValidIP(at.Child("nameservers").Index(i), ns)...)
	}
	if len(c.Searches) > maxDNSSearches {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches,
			fmt.Sprintf("must not have more than %v search paths", maxDNSSearches)))
	}
	if len(strings.Join(c.Searches, " ")) > maxDNSSearchLength {
		errs = append(errs, field.Invalid(at.Child("searches"), c.Searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxDNSSearchLength)))
	}
	for i, s := range c.Searches {
		if s != "." {
			s = strings.ReplaceAll(strings.TrimSuffix(s, "."), "_", "x") // underscores are fine inside, as for services
			errs = append(errs, valid.Name(s, at.Child("searches").Index(i))...)
		}
	}
	for i, o := range c.Options {
		if o.Name == "" {
			errs = append(errs, field.Required(at.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

func validateHostAliases(list []corev1.HostAlias, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range list {
		errs = append(errs, validation.IsValidIP(at.Index(i).Child("ip"), a.IP)...)
		for j, name := range a.Hostnames {
			errs = append(errs, valid.Name(name, at.Index(i).Child("hostnames").Index(j))...)
		}
	}
	return errs
}

// validateHostnames: an override is the whole name, so nothing else may have a say in it.
func validateHostnames(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	o := s.HostnameOverride
	if o == nil {
		return nil
	}
	at = at.Child("hostnameOverride")
	errs := valid.Name(*o, at)
	if len(*o) > maxHostOverride {
		errs = append(errs, field.TooLong(at, "", maxHostOverride))
	}
	if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
		errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
	}
	return errs
}
