// Package coordination has the kind of the group coordination.k8s.io.
package coordination

import (
	"reflect"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// Leases say who is there, as long as they are renewed.
var Leases = api.Define(api.Kind{Group: "coordination.k8s.io", Version: "v1", Name: "Lease", Resource: "leases", Singular: "lease",
	Namespaced: true},
	api.Rules[*coordinationv1.Lease]{
		New:      func() *coordinationv1.Lease { return &coordinationv1.Lease{} },
		NewList:  func() api.ListObject { return &coordinationv1.LeaseList{} },
		Validate: validateLease,
		Spec:     func(l *coordinationv1.Lease) any { return &l.Spec },
		Beat: func(l, was *coordinationv1.Lease) *coordinationv1.Lease {
			c := *l
			c.Spec.RenewTime = was.Spec.RenewTime
			return &c
		},
		Columns: table.Columns{table.Name, table.Column("Holder", "string", "Who holds the lease."), table.Age},
		Cells: func(l *coordinationv1.Lease, look table.Look) []any {
			holder := ""
			if l.Spec.HolderIdentity != nil {
				holder = *l.Spec.HolderIdentity
			}
			return []any{l.Name, holder, look.AgeOf(l)}
		},
	})

// refused are the fields of coordinated leader election.
var refused = sync.OnceValue(func() []valid.Lookup {
	return valid.Resolve(reflect.TypeFor[coordinationv1.Lease](), []valid.Refusal{{Path: "spec.strategy"}, {Path: "spec.preferredHolder"}})
})

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	errs := valid.Refuse(l, refused())
	at := field.NewPath("spec")
	if d := l.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if t := l.Spec.LeaseTransitions; t != nil && *t < 0 {
		errs = append(errs, field.Invalid(at.Child("leaseTransitions"), *t, "must be greater than or equal to 0"))
	}
	return errs
}
