package storage

import (
	"math"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// VolumeAttachments say that a volume is to be attached to a node, and whether it is. Nothing attaches volumes here: a driver's own
// attacher may.
var VolumeAttachments = api.Define(api.Kind{Group: "storage.k8s.io", Version: "v1", Name: "VolumeAttachment", Resource: "volumeattachments",
	Singular: "volumeattachment", Compared: true},
	api.Rules[*storagev1.VolumeAttachment]{
		New:      func() *storagev1.VolumeAttachment { return &storagev1.VolumeAttachment{} },
		NewList:  func() api.ListObject { return &storagev1.VolumeAttachmentList{} },
		Fresh:    func(a *storagev1.VolumeAttachment) { a.Status = storagev1.VolumeAttachmentStatus{} },
		Validate: validateAttachment,
		ValidateUpdate: func(a, old *storagev1.VolumeAttachment, _ string) field.ErrorList {
			return append(validateAttachment(a), apivalidation.ValidateImmutableField(a.Spec, old.Spec, field.NewPath("spec"))...)
		},
		Spec:   func(a *storagev1.VolumeAttachment) any { return &a.Spec },
		Status: func(a *storagev1.VolumeAttachment) any { return &a.Status },
		Columns: table.Columns{
			table.Name,
			table.Column("Attacher", "string", "The driver that attaches the volume."),
			table.Column("PV", "string", "The volume."),
			table.Column("Node", "string", "The node that it is attached to."),
			table.Column("Attached", "boolean", "Whether it is attached."),
			table.Age,
		},
		Cells: func(a *storagev1.VolumeAttachment, l table.Look) []any {
			volume := ""
			if name := a.Spec.Source.PersistentVolumeName; name != nil {
				volume = *name
			}
			return []any{a.Name, a.Spec.Attacher, volume, a.Spec.NodeName, a.Status.Attached, l.AgeOf(a)}
		},
	})

func validateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	s, at := &a.Spec, field.NewPath("spec")
	errs := api.ValidateDriverName(s.Attacher, at.Child("attacher"))
	source := at.Child("source")
	switch name, inline := s.Source.PersistentVolumeName, s.Source.InlineVolumeSpec; {
	case name == nil && inline == nil:
		errs = append(errs, field.Required(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case name != nil && inline != nil:
		errs = append(errs, field.Forbidden(source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case inline != nil:
		errs = append(errs, api.ValidateInlineVolume(inline, source.Child("inlineVolumeSpec"))...)
	case *name == "":
		errs = append(errs, field.Required(source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	default:
		errs = append(errs, valid.Name(*name, source.Child("persistentVolumeName"))...)
	}
	errs = append(errs, valid.Name(s.NodeName, at.Child("nodeName"))...)
	return append(errs, validateAttachmentStatus(&a.Status, field.NewPath("status"))...)
}

// maxVolumeError is how many bytes an error of a driver may have.
const maxVolumeError = 1024

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	bytes := 0
	for k, v := range s.AttachmentMetadata {
		bytes += len(k) + len(v)
	}
	if bytes > maxBytes {
		errs = append(errs, field.TooLong(at.Child("attachmentMetadata"), "", maxBytes))
	}
	errs = append(errs, validateVolumeError(s.AttachError, at.Child("attachError"))...)
	return append(errs, validateVolumeError(s.DetachError, at.Child("detachError"))...)
}

func validateVolumeError(e *storagev1.VolumeError, at *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxVolumeError {
		errs = append(errs, field.TooLong(at.Child("message"), "", maxVolumeError))
	}
	if c := e.ErrorCode; c != nil && *c < 0 {
		errs = append(errs, field.Invalid(at.Child("errorCode"), *c, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}
