package api

import (
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// validateVolumes also says which volumes there are, by name: true is a claim's.
func validateVolumes(volumes []corev1.Volume, at *field.Path) (names map[string]bool, errs field.ErrorList) {
	names = map[string]bool{}
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		_, twice := names[v.Name]
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case twice:
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		default:
			errs = append(errs, isLabel(v.Name, at.Child("name"))...)
		}
		names[v.Name] = ofClaim(v)
		errs = append(errs, validateVolumeSource(&v.VolumeSource, at)...)
	}
	return names, errs
}

func ofClaim(v *corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

func validateVolumeSource(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	errs := onlyOne(reflect.ValueOf(*v), at)
	if s := v.EmptyDir; s != nil {
		errs = append(errs, validateEmptyDir(s, at.Child("emptyDir"))...)
	}
	if s := v.HostPath; s != nil {
		errs = append(errs, validateHostPath(s, at.Child("hostPath"))...)
	}
	if s := v.NFS; s != nil {
		errs = append(errs, validateNFS(s, at.Child("nfs"))...)
	}
	if s := v.PersistentVolumeClaim; s != nil {
		errs = append(errs, valid.Required(s.ClaimName, at.Child("persistentVolumeClaim", "claimName"))...)
	}
	if s := v.Ephemeral; s != nil {
		errs = append(errs, validateOwnClaim(s.VolumeClaimTemplate, at.Child("ephemeral", "volumeClaimTemplate"))...)
	}
	if s := v.ConfigMap; s != nil {
		at := at.Child("configMap")
		errs = append(errs, valid.Required(s.Name, at.Child("name"))...)
		errs = append(errs, validateMode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validateKeys(s.Items, at.Child("items"))...)
	}
	if s := v.Secret; s != nil {
		at := at.Child("secret")
		errs = append(errs, valid.Required(s.SecretName, at.Child("secretName"))...)
		errs = append(errs, validateMode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validateKeys(s.Items, at.Child("items"))...)
	}
	if s := v.DownwardAPI; s != nil {
		at := at.Child("downwardAPI")
		errs = append(errs, validateMode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validateDownwardFiles(s.Items, at.Child("items"))...)
	}
	if s := v.Image; s != nil {
		errs = append(errs, valid.Required(s.Reference, at.Child("image", "reference"))...)
		errs = append(errs, valid.OneOf(s.PullPolicy, at.Child("image", "pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent,
			corev1.PullNever)...)
	}
	if s := v.Projected; s != nil {
		errs = append(errs, validateProjected(s, at.Child("projected"))...)
	}
	return errs
}

// validateOwnClaim looks at the template of a claim that lives as long as its pod. Of its metadata, labels and annotations count.
func validateOwnClaim(t *corev1.PersistentVolumeClaimTemplate, at *field.Path) field.ErrorList {
	if t == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := metav1validation.ValidateLabels(t.Labels, at.Child("metadata", "labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("metadata", "annotations"))...)
	rest := t.ObjectMeta
	if rest.Labels, rest.Annotations = nil, nil; !reflect.ValueOf(rest).IsZero() {
		errs = append(errs, field.Forbidden(at.Child("metadata"), "only labels and annotations can be set"))
	}
	return append(errs, ValidateClaimSpec(&t.Spec, at.Child("spec"))...)
}

// onlyOne: of a struct of pointers at most one may be set. An empty one has its default by now.
func onlyOne(v reflect.Value, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	set := 0
	for i := range v.NumField() {
		if v.Field(i).Kind() != reflect.Pointer || v.Field(i).IsNil() {
			continue
		}
		if set++; set > 1 {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(at.Child(name), "may not specify more than 1 volume type"))
		}
	}
	return errs
}

func validateEmptyDir(s *corev1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch size, sized := strings.CutPrefix(string(s.Medium), string(corev1.StorageMediumHugePagesPrefix)); {
	case sized:
		if q, err := resource.ParseQuantity(size); err != nil || q.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("medium"), s.Medium, "must name a page size, such as HugePages-2Mi"))
		}
	case s.Medium != corev1.StorageMediumDefault && s.Medium != corev1.StorageMediumMemory && s.Medium != corev1.StorageMediumHugePages:
		errs = append(errs, field.NotSupported(at.Child("medium"), s.Medium,
			[]corev1.StorageMedium{corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages}))
	}
	if s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
	}
	if m := s.Mode; m != nil && (*m < 0 || *m > 0o1777) {
		errs = append(errs, field.Invalid(at.Child("mode"), *m, "must be a number between 0 and 01777 (octal), both inclusive"))
	}
	return errs
}

func validateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	var errs field.ErrorList
	if slices.Contains(strings.Split(h.Path, "/"), "..") {
		errs = append(errs, field.Invalid(at.Child("path"), h.Path, "must not contain '..'"))
	}
	if h.Type != nil && *h.Type != corev1.HostPathUnset {
		errs = append(errs, valid.OneOf(*h.Type, at.Child("type"), corev1.HostPathBlockDev, corev1.HostPathCharDev,
			corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate,
			corev1.HostPathSocket)...)
	}
	return errs
}

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode == nil || *mode >= 0 && *mode <= 0o777 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
}

func validateKeys(items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		it, at := &items[i], at.Index(i)
		errs = append(errs, valid.Required(it.Key, at.Child("key"))...)
		errs = append(errs, validateFilePath(it.Path, at.Child("path"))...)
		errs = append(errs, validateMode(it.Mode, at.Child("mode"))...)
	}
	return errs
}

// validateFilePath: a place inside the volume, not one of the names that the volume's updates need.
func validateFilePath(p string, at *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateDescending(p, at)
	if len(errs) == 0 && strings.HasPrefix(p, "..") {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

// validateDescending: a relative path that does not climb.
func validateDescending(p string, at *field.Path) field.ErrorList {
	switch {
	case path.IsAbs(p):
		return field.ErrorList{field.Invalid(at, p, "must be a relative path")}
	case slices.Contains(strings.Split(p, "/"), ".."):
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}

// volumeFieldRefs are what a file may tell of its pod, beside single labels and annotations.
var volumeFieldRefs = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}

func validateDownwardFiles(items []corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		it, at := &items[i], at.Index(i)
		errs = append(errs, validateFilePath(it.Path, at.Child("path"))...)
		switch {
		case it.FieldRef != nil && it.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case it.FieldRef != nil:
			errs = append(errs, validateVolumeFieldRef(it.FieldRef, at.Child("fieldRef"))...)
		case it.ResourceFieldRef != nil:
			errs = append(errs, validateResourceRef(it.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, field.Required(at.Child("fieldRef"), "one of fieldRef and resourceFieldRef is required"))
		}
		errs = append(errs, validateMode(it.Mode, at.Child("mode"))...)
	}
	return errs
}

func validateVolumeFieldRef(f *corev1.ObjectFieldSelector, at *field.Path) field.ErrorList {
	if slices.Contains(volumeFieldRefs, f.FieldPath) && f.APIVersion == "v1" {
		return nil
	}
	if what, _, ok := SplitSubscript(f.FieldPath); f.APIVersion == "v1" && f.FieldPath != "" &&
		(!ok || !slices.Contains(volumeFieldRefs[:2], what)) {
		return field.ErrorList{field.NotSupported(at.Child("fieldPath"), f.FieldPath, volumeFieldRefs)}
	}
	return validateFieldRef(f, at)
}

func validateProjected(s *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := validateMode(s.DefaultMode, at.Child("defaultMode"))
	taken := map[string]bool{}
	take := func(p string, at *field.Path) {
		if taken[p] && p != "" {
			errs = append(errs, field.Invalid(at, p, "conflicting duplicate paths"))
		}
		taken[p] = true
	}
	for i := range s.Sources {
		src, at := &s.Sources[i], at.Child("sources").Index(i)
		v := reflect.ValueOf(*src)
		errs = append(errs, onlyOne(v, at)...)
		if v.IsZero() {
			errs = append(errs, field.Required(at, "must specify a source"))
		}
		switch {
		case src.ConfigMap != nil:
			at := at.Child("configMap")
			errs = append(errs, valid.Required(src.ConfigMap.Name, at.Child("name"))...)
			errs = append(errs, validateKeys(src.ConfigMap.Items, at.Child("items"))...)
			for j, it := range src.ConfigMap.Items {
				take(it.Path, at.Child("items").Index(j).Child("path"))
			}
		case src.Secret != nil:
			at := at.Child("secret")
			errs = append(errs, valid.Required(src.Secret.Name, at.Child("name"))...)
			errs = append(errs, validateKeys(src.Secret.Items, at.Child("items"))...)
			for j, it := range src.Secret.Items {
				take(it.Path, at.Child("items").Index(j).Child("path"))
			}
		case src.DownwardAPI != nil:
			at := at.Child("downwardAPI")
			errs = append(errs, validateDownwardFiles(src.DownwardAPI.Items, at.Child("items"))...)
			for j, it := range src.DownwardAPI.Items {
				take(it.Path, at.Child("items").Index(j).Child("path"))
			}
		case src.ServiceAccountToken != nil:
			errs = append(errs, validateTokenSource(src.ServiceAccountToken, at.Child("serviceAccountToken"))...)
			take(src.ServiceAccountToken.Path, at.Child("serviceAccountToken", "path"))
		}
	}
	return errs
}

func validateTokenSource(s *corev1.ServiceAccountTokenProjection, at *field.Path) field.ErrorList {
	errs := validateFilePath(s.Path, at.Child("path"))
	if n := s.ExpirationSeconds; n != nil {
		errs = append(errs, validateTokenSeconds(*n, at.Child("expirationSeconds"))...)
	}
	return errs
}

// validateTokenSeconds holds for every service-account token: short enough to be taken back, long enough to be renewed.
func validateTokenSeconds(n int64, at *field.Path) field.ErrorList {
	switch {
	case n < 10*60:
		return field.ErrorList{field.Invalid(at, n, "may not specify a duration less than 10 minutes")}
	case n > 1<<32:
		return field.ErrorList{field.Invalid(at, n, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

func validateMounts(c *corev1.Container, volumes map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := map[string]bool{}
	privileged := c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], at.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if _, ok := volumes[m.Name]; !ok {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		case paths[m.MountPath]:
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
		if slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == m.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		if slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.DevicePath == m.MountPath }) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices"))
		}
		if m.SubPath != "" {
			errs = append(errs, validateDescending(m.SubPath, at.Child("subPath"))...)
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
			}
			errs = append(errs, validateDescending(m.SubPathExpr, at.Child("subPathExpr"))...)
		}
		errs = append(errs, validatePropagation(m, privileged, at)...)
		errs = append(errs, validateRecursiveReadOnly(m, at)...)
	}
	return errs
}

// validateVolumeDevices looks at the claims that a container has as block devices.
func validateVolumeDevices(c *corev1.Container, volumes map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, paths := map[string]bool{"": false}, map[string]bool{}
	for i := range c.VolumeDevices {
		d, at := &c.VolumeDevices[i], at.Index(i)
		name, place := at.Child("name"), at.Child("devicePath")
		errs = append(errs, valid.Required(d.Name, name)...)
		if names[d.Name] {
			errs = append(errs, field.Invalid(name, d.Name, "must be unique"))
		}
		switch claim, ok := volumes[d.Name]; {
		case !ok:
			errs = append(errs, field.NotFound(name, d.Name))
		case !claim:
			errs = append(errs, field.Invalid(name, d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		errs = append(errs, valid.Required(d.DevicePath, place)...)
		if paths[d.DevicePath] {
			errs = append(errs, field.Invalid(place, d.DevicePath, "must be unique"))
		}
		if slices.Contains(strings.Split(d.DevicePath, "/"), "..") {
			errs = append(errs, field.Invalid(place, d.DevicePath, "can not contain backsteps ('..')"))
		}
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == d.Name }) {
			errs = append(errs, field.Invalid(name, d.Name, "must not already exist in volumeMounts"))
		}
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == d.DevicePath }) {
			errs = append(errs, field.Invalid(place, d.DevicePath, "must not already exist as a path in volumeMounts"))
		}
		names[d.Name], paths[d.DevicePath] = d.Name != "", true
	}
	return errs
}

// validatePropagation: what a container mounts may reach the board only where it may do anything anyway.
func validatePropagation(m *corev1.VolumeMount, privileged bool, at *field.Path) field.ErrorList {
	if m.MountPropagation == nil {
		return nil
	}
	at = at.Child("mountPropagation")
	errs := valid.OneOf(*m.MountPropagation, at, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer,
		corev1.MountPropagationNone)
	if *m.MountPropagation == corev1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers"))
	}
	return errs
}

func validateRecursiveReadOnly(m *corev1.VolumeMount, at *field.Path) field.ErrorList {
	if m.RecursiveReadOnly == nil {
		return nil
	}
	at = at.Child("recursiveReadOnly")
	errs := valid.OneOf(*m.RecursiveReadOnly, at, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible,
		corev1.RecursiveReadOnlyEnabled)
	if *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return errs
	}
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
	}
	if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}
