// Package networking has kinds of the group networking.k8s.io: Ingress, IngressClass, NetworkPolicy, ServiceCIDR and IPAddress.
package networking

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
)

// DefaultServiceCIDR is the name of the one that the configuration says.
const DefaultServiceCIDR = "kubernetes"

// ServiceCIDRs are the ranges that addresses of services come from.
var ServiceCIDRs = api.Define(api.Kind{Group: "networking.k8s.io", Version: "v1", Name: "ServiceCIDR", Resource: "servicecidrs",
	Singular: "servicecidr"},
	api.Rules[*networkingv1.ServiceCIDR]{
		New:      func() *networkingv1.ServiceCIDR { return &networkingv1.ServiceCIDR{} },
		NewList:  func() api.ListObject { return &networkingv1.ServiceCIDRList{} },
		Fresh:    func(c *networkingv1.ServiceCIDR) { c.Status = networkingv1.ServiceCIDRStatus{} },
		Validate: func(c *networkingv1.ServiceCIDR) field.ErrorList { return validateRanges(c.Spec.CIDRs) },
		ValidateUpdate: func(c, old *networkingv1.ServiceCIDR, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return metav1validation.ValidateConditions(c.Status.Conditions, field.NewPath("status", "conditions"))
			}
			return validateRangesUpdate(c.Spec.CIDRs, old.Spec.CIDRs)
		},
		Spec:    func(c *networkingv1.ServiceCIDR) any { return &c.Spec },
		Status:  func(c *networkingv1.ServiceCIDR) any { return &c.Status },
		Columns: table.Columns{table.Name, table.Column("CIDRs", "string", "The ranges of addresses."), table.Age},
		Cells: func(c *networkingv1.ServiceCIDR, l table.Look) []any {
			return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), l.AgeOf(c)}
		},
	})

func validateRanges(ranges []string) field.ErrorList {
	at := field.NewPath("spec", "cidrs")
	switch len(ranges) {
	case 0:
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	case 1, 2:
	default:
		return field.ErrorList{field.Invalid(at, ranges, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, r := range ranges {
		errs = append(errs, validation.IsValidCIDR(at.Index(i), r)...)
	}
	if len(errs) == 0 && len(ranges) == 2 && strings.Contains(ranges[0], ":") == strings.Contains(ranges[1], ":") {
		errs = append(errs, field.Invalid(at, ranges,
			"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}

// validateRangesUpdate: a second range, of the other family, may be added.
func validateRangesUpdate(ranges, was []string) field.ErrorList {
	at := field.NewPath("spec", "cidrs")
	switch {
	case slices.Equal(ranges, was):
		return nil
	case len(was) == 1 && len(ranges) == 2 && ranges[0] == was[0]:
		return validateRanges(ranges)
	}
	return field.ErrorList{field.Invalid(at, ranges, apivalidation.FieldImmutableErrorMsg)}
}
