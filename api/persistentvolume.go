package api

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
	"ledge/api/valid"
)

// PersistentVolumes are what claims are bound to: a directory of a board, a share, or what somebody else's driver has.
var PersistentVolumes = Define(Kind{Version: "v1", Name: "PersistentVolume", Resource: "persistentvolumes", Singular: "persistentvolume",
	Short: []string{"pv"}},
	Rules[*corev1.PersistentVolume]{
		New:     func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		NewList: func() ListObject { return &corev1.PersistentVolumeList{} },
		Default: func(v *corev1.PersistentVolume) {
			setEmpty(&v.Status.Phase, corev1.VolumePending)
			setEmpty(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
			setDefault(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
			if h := v.Spec.HostPath; h != nil {
				setDefault(&h.Type, corev1.HostPathUnset)
			}
		},
		Fresh:    func(v *corev1.PersistentVolume) { v.Status = corev1.PersistentVolumeStatus{} },
		Validate: validateVolume,
		ValidateUpdate: func(v, old *corev1.PersistentVolume, sub string) field.ErrorList {
			if sub == StatusSub {
				return nil
			}
			return append(validateVolume(v), validateVolumeChange(&v.Spec, &old.Spec)...)
		},
		Warn:   volumeWarnings,
		Spec:   func(v *corev1.PersistentVolume) any { return &v.Spec },
		Status: func(v *corev1.PersistentVolume) any { return &v.Status },
		Fields: []Field[*corev1.PersistentVolume]{
			{"name", func(v *corev1.PersistentVolume) string { return v.Name }}, // Kubernetes' own mistake, which clients may use
			{NodeField, NodeOfVolume}},
		Columns: table.Columns{
			table.Name,
			table.Column("Capacity", "string", "How large it is."),
			table.Column("Access Modes", "string", "How it may be used."),
			table.Column("Reclaim Policy", "string", "What becomes of it when its claim is deleted."),
			table.Column("Status", "string", "Whether a claim is bound to it."),
			table.Column("Claim", "string", "The claim that it is bound to."),
			table.Column("StorageClass", "string", "The class of the volume."),
			table.Column("VolumeAttributesClass", "string", "The class of the volume's attributes."),
			table.Column("Reason", "string", "Why the volume failed."),
			table.Age,
			table.Wide("VolumeMode", "string", "Whether it is a directory or a device."),
		},
		Computed: []string{"name", NodeField},
		Cells:    volumeCells,
	})

func validateVolume(v *corev1.PersistentVolume) field.ErrorList {
	s, at := &v.Spec, field.NewPath("spec")
	errs := refuseIn(s, volumeRefusals(), at)
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, validateAccessModes(s.AccessModes, at.Child("accessModes"))...)
	capacity := at.Child("capacity")
	if len(s.Capacity) == 0 {
		errs = append(errs, field.Required(capacity, ""))
	}
	if _, ok := s.Capacity[corev1.ResourceStorage]; !ok || len(s.Capacity) > 1 {
		errs = append(errs, field.NotSupported(capacity, s.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, q := range s.Capacity {
		errs = append(errs, validateSize(q, capacity.Key(string(name)))...)
	}
	errs = append(errs, valid.OneOf(s.PersistentVolumeReclaimPolicy, at.Child("persistentVolumeReclaimPolicy"),
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	if a := s.NodeAffinity; a != nil {
		at := at.Child("nodeAffinity", "required")
		if a.Required == nil {
			errs = append(errs, field.Required(at, "must specify required node constraints"))
		} else {
			errs = append(errs, validateNodeSelector(a.Required, at)...)
		}
	}
	errs = append(errs, validateSource(s, at)...)
	if s.StorageClassName != "" {
		errs = append(errs, valid.Name(s.StorageClassName, at.Child("storageClassName"))...)
	}
	errs = append(errs, validateVolumeMode(s.VolumeMode, at.Child("volumeMode"))...)
	if _, ok := v.Annotations[corev1.MountOptionAnnotation]; ok && s.NFS == nil {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation),
			"may not specify mount options for this volume type"))
	}
	return errs
}

// ValidateInlineVolume looks at a volume that is no object: what is to be attached to a node, of a CSI driver, and nothing else.
func ValidateInlineVolume(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const here = "in the context of inline volumes"
	errs := refuseIn(s, volumeRefusals(), at)
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified "+here))
	}
	for _, f := range []struct {
		name string
		said bool
	}{{"claimRef", s.ClaimRef != nil}, {"capacity", len(s.Capacity) > 0}, {"nodeAffinity", s.NodeAffinity != nil},
		{"storageClassName", s.StorageClassName != ""}} {
		if f.said {
			errs = append(errs, field.Forbidden(at.Child(f.name), "may not be specified "+here))
		}
	}
	if p := s.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may only be Retain "+here))
	}
	if m := s.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem "+here))
	}
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, validateAccessModes(s.AccessModes, at.Child("accessModes"))...)
	return append(errs, validateSource(s, at)...)
}

// validateSource looks at what a volume is.
func validateSource(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	source := reflect.ValueOf(s.PersistentVolumeSource)
	errs := onlyOne(source, at)
	if source.IsZero() {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	if h := s.HostPath; h != nil {
		errs = append(errs, validateHostPath(h, at.Child("hostPath"))...)
	}
	if n := s.NFS; n != nil {
		errs = append(errs, validateNFS(n, at.Child("nfs"))...)
	}
	if l := s.Local; l != nil {
		in := at.Child("local", "path")
		if l.Path == "" {
			errs = append(errs, field.Required(in, ""))
		} else if slices.Contains(strings.Split(l.Path, "/"), "..") {
			errs = append(errs, field.Invalid(in, l.Path, "must not contain '..'"))
		}
		if s.NodeAffinity == nil {
			errs = append(errs, field.Required(at.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
	}
	if c := s.CSI; c != nil {
		at := at.Child("csi")
		errs = append(errs, ValidateDriverName(c.Driver, at.Child("driver"))...)
		errs = append(errs, valid.Required(c.VolumeHandle, at.Child("volumeHandle"))...)
		errs = append(errs, validateSecretRefs(c, at)...)
	}
	return errs
}

func validateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := valid.Required(n.Server, at.Child("server"))
	errs = append(errs, valid.Required(n.Path, at.Child("path"))...)
	if n.Path != "" && !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

func validateSecretRefs(c *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, r := range []struct {
		name string
		ref  *corev1.SecretReference
	}{{"controllerPublishSecretRef", c.ControllerPublishSecretRef}, {"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodeStageSecretRef", c.NodeStageSecretRef}, {"nodePublishSecretRef", c.NodePublishSecretRef},
		{"nodeExpandSecretRef", c.NodeExpandSecretRef}} {
		if r.ref != nil {
			at := at.Child(r.name)
			errs = append(errs, valid.Required(r.ref.Name, at.Child("name"))...)
			errs = append(errs, valid.Required(r.ref.Namespace, at.Child("namespace"))...)
		}
	}
	return errs
}

// ValidateDriverName looks at the name of a CSI driver.
func ValidateDriverName(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case len(name) > 63:
		return field.ErrorList{field.TooLong(at, "", 63)}
	}
	return valid.Each(content.IsDNS1123Subdomain(strings.ToLower(name)),
		func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

func validateVolumeChange(s, old *corev1.PersistentVolumeSpec) field.ErrorList {
	var errs field.ErrorList
	source := s.PersistentVolumeSource.DeepCopy()
	if source.CSI != nil && old.CSI != nil && old.CSI.ControllerExpandSecretRef == nil {
		source.CSI.ControllerExpandSecretRef = nil // may be added
	}
	if !apiequality.Semantic.DeepEqual(source, &old.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation"))
	}
	if old.NodeAffinity != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.NodeAffinity, old.NodeAffinity, field.NewPath("nodeAffinity"))...)
	}
	return append(errs, apivalidation.ValidateImmutableField(s.VolumeMode, old.VolumeMode, field.NewPath("volumeMode"))...)
}

func volumeWarnings(v *corev1.PersistentVolume) (out []string) {
	for _, a := range []struct{ key, since, instead string }{
		{corev1.BetaStorageClassAnnotation, "v1.8", "storageClassName"},
		{corev1.MountOptionAnnotation, "v1.31", "mountOptions"},
	} {
		if _, ok := v.Annotations[a.key]; ok {
			out = append(out, fmt.Sprintf("%s: deprecated since %s; use %q attribute instead",
				field.NewPath("metadata", "annotations").Key(a.key), a.since, a.instead))
		}
	}
	return out
}

func volumeCells(v *corev1.PersistentVolume, l table.Look) []any {
	phase, claim := string(v.Status.Phase), ""
	if v.DeletionTimestamp != nil {
		phase = terminating
	}
	if r := v.Spec.ClaimRef; r != nil {
		claim = r.Namespace + "/" + r.Name
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	return []any{v.Name, size.String(), shownModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		ClassOfVolume(v), orUnset(v.Spec.VolumeAttributesClassName), v.Status.Reason, l.AgeOf(v), orUnset(v.Spec.VolumeMode)}
}
