package storage

import (
	"maps"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
)

// VolumeAttributesClasses say what a driver can change of a volume that is there, such as how fast it is. No claim or volume may name one:
// no driver would do it.
var VolumeAttributesClasses = api.Define(api.Kind{Group: "storage.k8s.io", Version: "v1", Name: "VolumeAttributesClass",
	Resource: "volumeattributesclasses", Singular: "volumeattributesclass", Short: []string{"vac"}},
	api.Rules[*storagev1.VolumeAttributesClass]{
		New:      func() *storagev1.VolumeAttributesClass { return &storagev1.VolumeAttributesClass{} },
		NewList:  func() api.ListObject { return &storagev1.VolumeAttributesClassList{} },
		Validate: validateAttributes,
		ValidateUpdate: func(c, old *storagev1.VolumeAttributesClass, _ string) field.ErrorList {
			errs := validateAttributes(c)
			if c.DriverName != old.DriverName {
				errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
			}
			if !maps.Equal(c.Parameters, old.Parameters) {
				errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
			}
			return errs
		},
		Columns: table.Columns{table.Name, table.Column("DriverName", "string", "The driver that makes the change."), table.Age},
		Cells: func(c *storagev1.VolumeAttributesClass, l table.Look) []any {
			return []any{c.Name, c.DriverName, l.AgeOf(c)}
		},
	})

func validateAttributes(c *storagev1.VolumeAttributesClass) field.ErrorList {
	at := field.NewPath("parameters")
	errs := append(validateProvisioner(c.DriverName, field.NewPath("driverName")), validateParameters(c.Parameters, at)...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(at, "must contain at least one key/value pair"))
	}
	return errs
}
