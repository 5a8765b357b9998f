package storage

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// CSINodes say which drivers run on a node. A board makes none.
var CSINodes = api.Define(api.Kind{Group: "storage.k8s.io", Version: "v1", Name: "CSINode", Resource: "csinodes", Singular: "csinode",
	Compared: true},
	api.Rules[*storagev1.CSINode]{
		New:      func() *storagev1.CSINode { return &storagev1.CSINode{} },
		NewList:  func() api.ListObject { return &storagev1.CSINodeList{} },
		Fresh:    func(n *storagev1.CSINode) { n.Status = storagev1.CSINodeStatus{} },
		Validate: validateCSINode,
		ValidateUpdate: func(n, old *storagev1.CSINode, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateCSINodeStatus(&n.Status)
			}
			return append(validateCSINode(n), validateDriversChange(n.Spec.Drivers, old.Spec.Drivers)...)
		},
		Spec:   func(n *storagev1.CSINode) any { return &n.Spec },
		Status: func(n *storagev1.CSINode) any { return &n.Status },
		Columns: table.Columns{table.Name, table.Column("Drivers", "integer", "How many drivers run on the node."),
			table.Age},
		Cells: func(n *storagev1.CSINode, l table.Look) []any {
			return []any{n.Name, int64(len(n.Spec.Drivers)), l.AgeOf(n)}
		},
	})

// maxNodeID is how long the name may be that a driver has for a node.
const maxNodeID = 256

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, d := range n.Spec.Drivers {
		at := field.NewPath("spec", "drivers").Index(i)
		errs = append(errs, api.ValidateDriverName(d.Name, at.Child("name"))...)
		errs = append(errs, valid.Required(d.NodeID, at.Child("nodeID"))...)
		if len(d.NodeID) > maxNodeID {
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
		}
		if a := d.Allocatable; a != nil && a.Count != nil {
			errs = append(errs, valid.NotNegative(*a.Count, at.Child("allocatable", "count"))...)
		}
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen[d.Name] = true
		errs = append(errs, validateTopologyKeys(d.TopologyKeys, at)...)
	}
	return errs
}

// validateTopologyKeys looks at the labels of nodes that a driver goes by. Kubernetes' errors name the driver, not the key.
func validateTopologyKeys(keys []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for _, key := range keys {
		errs = append(errs, valid.Required(key, at)...)
		if seen[key] {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen[key] = true
		errs = append(errs, valid.Each(validation.IsQualifiedName(key),
			func(msg string) *field.Error { return field.Invalid(at, key, msg) })...)
	}
	return errs
}

// validateDriversChange: a driver may come and go, and say anew how many volumes fit; the rest of it stays.
func validateDriversChange(now, old []storagev1.CSINodeDriver) field.ErrorList {
	was := map[string]storagev1.CSINodeDriver{}
	for _, d := range old {
		d.Allocatable = nil
		was[d.Name] = d
	}
	var errs field.ErrorList
	for _, d := range now {
		d.Allocatable = nil
		if before, ok := was[d.Name]; ok {
			errs = append(errs, apivalidation.ValidateImmutableField(d, before, field.NewPath("spec", "drivers"))...)
		}
	}
	return errs
}

// validateCSINodeStatus: how well a driver's storage is is an alpha of Kubernetes, off.
func validateCSINodeStatus(s *storagev1.CSINodeStatus) field.ErrorList {
	if len(s.StorageHealth) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("status", "storageHealth"), valid.NotYet)}
}
