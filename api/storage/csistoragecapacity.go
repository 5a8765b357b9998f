package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// CSIStorageCapacities say how much a driver has left for a class, and for which nodes. The scheduler does not ask them: no driver makes
// volumes for the pods here.
var CSIStorageCapacities = api.Define(api.Kind{Group: "storage.k8s.io", Version: "v1", Name: "CSIStorageCapacity",
	Resource: "csistoragecapacities", Singular: "csistoragecapacity", Namespaced: true, Compared: true},
	api.Rules[*storagev1.CSIStorageCapacity]{
		New:      func() *storagev1.CSIStorageCapacity { return &storagev1.CSIStorageCapacity{} },
		NewList:  func() api.ListObject { return &storagev1.CSIStorageCapacityList{} },
		Validate: validateCapacity,
		ValidateUpdate: func(c, old *storagev1.CSIStorageCapacity, _ string) field.ErrorList {
			errs := append(validateCapacity(c),
				apivalidation.ValidateImmutableField(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...)
			return append(errs, apivalidation.ValidateImmutableField(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
		},
		Columns: table.Columns{
			table.Name,
			table.Column("StorageClassName", "string", "The class of the volumes."),
			table.Column("Capacity", "string", "How much there is left."),
		},
		Cells: func(c *storagev1.CSIStorageCapacity, _ table.Look) []any {
			capacity := "<unset>"
			if c.Capacity != nil {
				capacity = c.Capacity.String()
			}
			return []any{c.Name, c.StorageClassName, capacity}
		},
	})

func validateCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := metav1validation.ValidateLabelSelector(c.NodeTopology, metav1validation.LabelSelectorValidationOptions{},
		field.NewPath("nodeTopology"))
	errs = append(errs, valid.Name(c.StorageClassName, field.NewPath("storageClassName"))...)
	if q := c.Capacity; q != nil && q.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), q.String(), apivalidation.IsNegativeErrorMsg))
	}
	return errs
}
