package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// IPAddresses say whose an address is. Each address of a service has one, whose name it is, so that no two services get the same.
var IPAddresses = api.Define(api.Kind{Group: "networking.k8s.io", Version: "v1", Name: "IPAddress", Resource: "ipaddresses",
	Singular: "ipaddress", Short: []string{"ip"}},
	api.Rules[*networkingv1.IPAddress]{
		New:      func() *networkingv1.IPAddress { return &networkingv1.IPAddress{} },
		NewList:  func() api.ListObject { return &networkingv1.IPAddressList{} },
		NameRule: addressName,
		Validate: validateAddress,
		ValidateUpdate: func(a, old *networkingv1.IPAddress, _ string) field.ErrorList {
			return append(validateAddress(a),
				apivalidation.ValidateImmutableField(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))...)
		},
		Spec:    func(a *networkingv1.IPAddress) any { return &a.Spec },
		Columns: table.Columns{table.Name, table.Column("ParentRef", "string", "What has the address.")},
		Cells:   func(a *networkingv1.IPAddress, _ table.Look) []any { return []any{a.Name, parent(a.Spec.ParentRef)} },
	})

// addressName: the name is an address, in its one canonical form.
func addressName(name string, _ bool) (out []string) {
	for _, err := range validation.IsValidIP(nil, name) {
		out = append(out, err.Detail)
	}
	return out
}

func validateAddress(a *networkingv1.IPAddress) field.ErrorList {
	at, p := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if p == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if p.Group != "" {
		errs = append(errs, valid.Name(p.Group, at.Child("group"))...)
	}
	errs = append(errs, valid.Segment(p.Resource, at.Child("resource"))...)
	errs = append(errs, valid.Segment(p.Name, at.Child("name"))...)
	if p.Namespace == "" {
		return errs
	}
	return append(errs, valid.Segment(p.Namespace, at.Child("namespace"))...)
}

func parent(p *networkingv1.ParentReference) string {
	if p == nil {
		return table.None
	}
	resource := p.Resource
	if p.Group != "" {
		resource += "." + p.Group
	}
	parts := []string{strings.ToLower(resource), p.Namespace, p.Name}
	if p.Namespace == "" {
		parts = []string{parts[0], p.Name}
	}
	return strings.Join(parts, "/")
}
