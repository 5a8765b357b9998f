package api

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
	"ledge/api/valid"
)

// PersistentVolumeClaims ask for a volume that outlives pods.
var PersistentVolumeClaims = Define(Kind{Version: "v1", Name: "PersistentVolumeClaim", Resource: "persistentvolumeclaims",
	Singular: "persistentvolumeclaim", Short: []string{"pvc"}, Namespaced: true},
	Rules[*corev1.PersistentVolumeClaim]{
		New:     func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} },
		NewList: func() ListObject { return &corev1.PersistentVolumeClaimList{} },
		Default: DefaultClaim,
		Fresh:   func(c *corev1.PersistentVolumeClaim) { c.Status = corev1.PersistentVolumeClaimStatus{} },
		Validate: func(c *corev1.PersistentVolumeClaim) field.ErrorList {
			return ValidateClaimSpec(&c.Spec, field.NewPath("spec"))
		},
		ValidateUpdate: func(c, old *corev1.PersistentVolumeClaim, sub string) field.ErrorList {
			if sub == StatusSub {
				return validateClaimStatus(&c.Status)
			}
			return append(ValidateClaimSpec(&c.Spec, field.NewPath("spec")), validateClaimChange(c, old)...)
		},
		Warn:   claimWarnings,
		Spec:   func(c *corev1.PersistentVolumeClaim) any { return &c.Spec },
		Status: func(c *corev1.PersistentVolumeClaim) any { return &c.Status },
		Fields: []Field[*corev1.PersistentVolumeClaim]{
			{"name", func(c *corev1.PersistentVolumeClaim) string { return c.Name }}, // Kubernetes' own mistake, which clients may use
			{NodeField, func(c *corev1.PersistentVolumeClaim) string { return c.Annotations[SelectedNode] }}},
		Charge: claimCharge,
		Bound:  boundClaim,
		Columns: table.Columns{
			table.Name,
			table.Column("Status", "string", "Whether the claim is bound to a volume."),
			table.Column("Volume", "string", "The volume that it is bound to."),
			table.Column("Capacity", "string", "The size of the volume."),
			table.Column("Access Modes", "string", "How the volume may be used."),
			table.Column("StorageClass", "string", "The class of the claim."),
			table.Column("VolumeAttributesClass", "string", "The class of the volume's attributes."),
			table.Age,
			table.Wide("VolumeMode", "string", "Whether it is a directory or a device."),
		},
		Computed: []string{"name", NodeField},
		Cells:    claimCells,
	})

// DefaultClaim fills what a claim, or a template of one, leaves empty.
func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	setEmpty(&c.Status.Phase, corev1.ClaimPending)
	setDefault(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

// ValidateClaimSpec looks at what a claim asks for.
func ValidateClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	errs := refuseIn(s, claimRefusals(), at)
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	errs = append(errs, validateAccessModes(s.AccessModes, at.Child("accessModes"))...)
	if s.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(s.Selector, metav1validation.LabelSelectorValidationOptions{},
			at.Child("selector"))...)
	}
	size := at.Child("resources").Key(string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; ok {
		errs = append(errs, validateSize(q, size)...)
	} else {
		errs = append(errs, field.Required(size, ""))
	}
	if name := s.StorageClassName; name != nil && *name != "" {
		errs = append(errs, valid.Name(*name, at.Child("storageClassName"))...)
	}
	return append(errs, validateVolumeMode(s.VolumeMode, at.Child("volumeMode"))...)
}

// validateClaimChange: a claim gets a volume once, may get a class where it has none, and may grow when it is bound.
func validateClaimChange(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	errs := apivalidation.ValidateImmutableField(c.Annotations[corev1.BetaStorageClassAnnotation],
		old.Annotations[corev1.BetaStorageClassAnnotation], field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation))
	now, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName
	}
	if name, named := old.Annotations[corev1.BetaStorageClassAnnotation]; was.StorageClassName == nil && now.StorageClassName != nil &&
		(!named || name == *now.StorageClassName) {
		was.StorageClassName = now.StorageClassName
	}
	size, before := now.Resources.Requests[corev1.ResourceStorage], was.Resources.Requests[corev1.ResourceStorage]
	if c.Status.Phase == corev1.ClaimBound && now.Resources.Requests != nil {
		now.Resources.Requests[corev1.ResourceStorage] = before
	}
	if !apiequality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(spec,
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	if has := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(before) < 0 && size.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	return append(errs, apivalidation.ValidateImmutableField(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
}

// resizes are the states of a claim that is made larger.
var resizes = []corev1.ClaimResourceStatus{corev1.PersistentVolumeClaimControllerResizeInProgress,
	corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible}

func validateClaimStatus(s *corev1.PersistentVolumeClaimStatus) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("status")
	amounts := func(list corev1.ResourceList, at *field.Path) {
		for name, q := range list {
			errs = append(errs, valid.Each(validation.IsQualifiedName(string(name)),
				func(msg string) *field.Error { return field.Invalid(at, name, msg) })...)
			if q.Sign() < 0 {
				errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), apivalidation.IsNegativeErrorMsg))
			}
		}
	}
	amounts(s.Capacity, at.Child("capacity"))
	amounts(s.AllocatedResources, at.Child("allocatedResources"))
	for name, state := range s.AllocatedResourceStatuses {
		at := at.Child("allocatedResourceStatuses")
		if name != corev1.ResourceStorage {
			errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage}))
		}
		errs = append(errs, valid.OneOf(state, at, resizes...)...)
	}
	return errs
}

// The warnings of claims and their templates are Kubernetes' words.
func claimWarnings(c *corev1.PersistentVolumeClaim) (out []string) {
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		out = append(out, field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation).String()+
			`: deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	return append(out, ClaimSpecWarnings(&c.Spec, field.NewPath("spec"))...)
}

// ClaimSpecWarnings says what a claim will not get as it is written.
func ClaimSpecWarnings(s *corev1.PersistentVolumeClaimSpec, at *field.Path) (out []string) {
	look := func(q resource.Quantity, at *field.Path) {
		if !wholeBytes(q) {
			out = append(out, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				at.Key(string(corev1.ResourceStorage)), q.String()))
		}
	}
	look(s.Resources.Requests[corev1.ResourceStorage], at.Child("resources", "requests"))
	look(s.Resources.Limits[corev1.ResourceStorage], at.Child("resources", "limits"))
	return out
}

// terminating is how kubectl shows what is being deleted.
const terminating = "Terminating"

func claimCells(c *corev1.PersistentVolumeClaim, l table.Look) []any {
	phase, capacity, modes := string(c.Status.Phase), "", ""
	if c.DeletionTimestamp != nil {
		phase = terminating
	}
	if c.Spec.VolumeName != "" {
		q := c.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = q.String(), shownModes(c.Status.AccessModes)
	}
	return []any{c.Name, phase, c.Spec.VolumeName, capacity, modes, ClassOfClaim(c), orUnset(c.Spec.VolumeAttributesClassName), l.AgeOf(c),
		orUnset(c.Spec.VolumeMode)}
}

func orUnset[T ~string](s *T) string {
	if s == nil {
		return "<unset>"
	}
	return string(*s)
}
