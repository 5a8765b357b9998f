// Package storage has the kinds of the group storage.k8s.io. It knows nothing of ledge's own store. Those about CSI, which boards do not
// have, are kept and answered, and nothing follows from them.
package storage

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// StorageClasses say what volumes for claims are made of.
var StorageClasses = api.Define(api.Kind{Group: "storage.k8s.io", Version: "v1", Name: "StorageClass", Resource: "storageclasses",
	Singular: "storageclass", Short: []string{"sc"}},
	api.Rules[*storagev1.StorageClass]{
		New:      func() *storagev1.StorageClass { return &storagev1.StorageClass{} },
		NewList:  func() api.ListObject { return &storagev1.StorageClassList{} },
		Default:  defaultClass,
		Validate: func(c *storagev1.StorageClass) field.ErrorList { return append(validateClass(c), validateOwn(c)...) },
		ValidateUpdate: func(c, old *storagev1.StorageClass, _ string) field.ErrorList {
			return append(validateClass(c), validateClassChange(c, old)...)
		},
		Columns: table.Columns{
			table.Name,
			table.Column("Provisioner", "string", "Who makes the volumes."),
			table.Column("ReclaimPolicy", "string", "What becomes of a volume when its claim is deleted."),
			table.Column("VolumeBindingMode", "string", "When a claim gets its volume."),
			table.Column("AllowVolumeExpansion", "string", "Whether claims may grow."),
			table.Age,
		},
		Cells: func(c *storagev1.StorageClass, l table.Look) []any {
			name := c.Name
			if IsDefault(c) {
				name += " (default)"
			}
			policy, mode := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
			if c.ReclaimPolicy != nil {
				policy = *c.ReclaimPolicy
			}
			if c.VolumeBindingMode != nil {
				mode = *c.VolumeBindingMode
			}
			return []any{name, c.Provisioner, string(policy), string(mode), Grows(c), l.AgeOf(c)}
		},
	})

// CardClass is the name of the class of volumes on the boards' own cards.
const CardClass = "local"

// Card is that class as it is made. It is the default one: a claim that names no class lies on the card of the board that its first pod
// runs on.
func Card() *storagev1.StorageClass {
	wait, remove, grows := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete, true
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: CardClass, Annotations: map[string]string{api.DefaultClass: "true"}},
		Provisioner: api.CardProvisioner, VolumeBindingMode: &wait, ReclaimPolicy: &remove, AllowVolumeExpansion: &grows}
}

// OnDisk is the class of volumes on a disk beside the boards' cards: on every board whose configuration has one of that name.
func OnDisk(disk string) *storagev1.StorageClass {
	c := Card()
	c.ObjectMeta = metav1.ObjectMeta{Name: disk}
	c.Parameters = map[string]string{diskParameter: disk}
	c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
		Key: api.DiskLabel + disk, Values: []string{"true"}}}}}
	return c
}

// diskParameter names the disk that a class is of.
const diskParameter = "disk"

// DiskOf is the disk that a class of the boards' own volumes is of; empty: their cards.
func DiskOf(c *storagev1.StorageClass) string { return c.Parameters[diskParameter] }

// IsDefault says whether claims that name no class get this one.
func IsDefault(c *storagev1.StorageClass) bool {
	return c.Annotations[api.DefaultClass] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// Default is the class of claims that name none: of several the newest, and of those the first by name. nil: there is none.
func Default(all []*storagev1.StorageClass) (best *storagev1.StorageClass) {
	for _, c := range all {
		if !IsDefault(c) {
			continue
		}
		if best == nil || c.CreationTimestamp.After(best.CreationTimestamp.Time) ||
			c.CreationTimestamp.Equal(&best.CreationTimestamp) && c.Name < best.Name {
			best = c
		}
	}
	return best
}

// Waits says whether a claim of this class gets its volume when its first pod has a place only.
func Waits(c *storagev1.StorageClass) bool {
	return c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Grows says whether claims of this class may grow.
func Grows(c *storagev1.StorageClass) bool {
	return c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion
}

func defaultClass(c *storagev1.StorageClass) {
	if c.ReclaimPolicy == nil {
		remove := corev1.PersistentVolumeReclaimDelete
		c.ReclaimPolicy = &remove
	}
	if c.VolumeBindingMode == nil {
		now := storagev1.VolumeBindingImmediate
		c.VolumeBindingMode = &now
	}
}

// How much the parameters of a class may hold, and what an attacher says of a volume.
const (
	maxParameters = 512
	maxBytes      = 256 << 10
)

func validateClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil {
		errs = append(errs, valid.OneOf(*p, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete,
			corev1.PersistentVolumeReclaimRetain)...)
	}
	mode := field.NewPath("volumeBindingMode")
	if c.VolumeBindingMode == nil {
		errs = append(errs, field.Required(mode, ""))
	} else {
		errs = append(errs, valid.OneOf(*c.VolumeBindingMode, mode, storagev1.VolumeBindingImmediate,
			storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	if c.Provisioner == api.CardProvisioner && !Waits(c) {
		errs = append(errs, field.Invalid(mode, c.VolumeBindingMode,
			"a volume on a board's card can only be made when its first pod has a board: use WaitForFirstConsumer"))
	}
	return append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

// validateOwn refuses what no board would do for a class of the boards' own volumes.
func validateOwn(c *storagev1.StorageClass) (errs field.ErrorList) {
	if c.Provisioner != api.CardProvisioner {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(c.Parameters)) {
		if k != diskParameter {
			errs = append(errs, field.NotSupported(field.NewPath("parameters"), k, []string{diskParameter}))
		}
	}
	return errs
}

// validateProvisioner looks at the name of who makes volumes, or changes them.
func validateProvisioner(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return valid.Each(validation.IsQualifiedName(strings.ToLower(name)), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

func validateParameters(list map[string]string, at *field.Path) field.ErrorList {
	if len(list) > maxParameters {
		return field.ErrorList{field.TooLong(at, "", maxParameters)}
	}
	var errs field.ErrorList
	bytes := 0
	for k, v := range list {
		if k == "" {
			errs = append(errs, field.Invalid(at, k, "field can not be empty."))
		}
		bytes += len(k) + len(v)
	}
	if bytes > maxBytes {
		errs = append(errs, field.TooLong(at, "", maxBytes))
	}
	return errs
}

func validateTopologies(terms []corev1.TopologySelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range terms {
		at := at.Index(i).Child("matchLabelExpressions")
		seen := map[string]bool{}
		for j, r := range t.MatchLabelExpressions {
			at := at.Index(j)
			errs = append(errs, metav1validation.ValidateLabelName(r.Key, at.Child("key"))...)
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			for k, v := range r.Values {
				if slices.Contains(r.Values[:k], v) {
					errs = append(errs, field.Duplicate(at.Child("values").Index(k), v))
				}
			}
			if seen[r.Key] {
				errs = append(errs, field.Duplicate(at.Child("key"), r.Key))
			}
			seen[r.Key] = true
		}
		if slices.ContainsFunc(terms[:i], func(o corev1.TopologySelectorTerm) bool { return apiequality.Semantic.DeepEqual(o, t) }) {
			errs = append(errs, field.Duplicate(at, ""))
		}
	}
	return errs
}

func validateClassChange(c, old *storagev1.StorageClass) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(c.Parameters, old.Parameters, field.NewPath("parameters"))
	errs = append(errs, apivalidation.ValidateImmutableField(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, apivalidation.ValidateImmutableField(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}
