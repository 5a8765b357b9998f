// Package discovery has the kind of the group discovery.k8s.io.
package discovery

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// EndpointSlices are the addresses behind services: some of those of one service, of one family.
var EndpointSlices = api.Define(api.Kind{Group: "discovery.k8s.io", Version: "v1", Name: "EndpointSlice", Resource: "endpointslices",
	Singular: "endpointslice", Namespaced: true, Generation: true},
	api.Rules[*discoveryv1.EndpointSlice]{
		New:            func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
		NewList:        func() api.ListObject { return &discoveryv1.EndpointSliceList{} },
		Default:        defaultSlice,
		Validate:       validateSlice,
		ValidateUpdate: validateSliceUpdate,
		Warn:           warnings,
		Spec: func(s *discoveryv1.EndpointSlice) any {
			return &content{s.AddressType, s.Endpoints, s.Ports, s.Labels}
		},
		Columns: sliceColumns,
		Cells:   sliceCells,
	})

// content is what the generation of a slice counts the changes of: all but the metadata, and of these the labels.
type content struct {
	AddressType discoveryv1.AddressType
	Endpoints   []discoveryv1.Endpoint
	Ports       []discoveryv1.EndpointPort
	Labels      map[string]string
}

func defaultSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = new(string)
		}
		if p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
	}
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil // version 1 has no such field any more: what clients write there goes
	}
}

// How much a slice may hold.
const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxHints     = 8
)

func validateSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	errs := valid.OneOf(s.AddressType, field.NewPath("addressType"), discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4,
		discoveryv1.AddressTypeIPv6)
	errs = append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
	at := field.NewPath("endpoints")
	if n := len(s.Endpoints); n > maxEndpoints {
		return append(errs, field.TooMany(at, n, maxEndpoints))
	}
	for i := range s.Endpoints {
		errs = append(errs, validateEndpoint(&s.Endpoints[i], s.AddressType, at.Index(i))...)
	}
	return errs
}

func validateSliceUpdate(s, old *discoveryv1.EndpointSlice, _ string) field.ErrorList {
	return append(validateSlice(s), apivalidation.ValidateImmutableField(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
}

func validatePorts(ports []discoveryv1.EndpointPort, at *field.Path) field.ErrorList {
	if n := len(ports); n > maxPorts {
		return field.ErrorList{field.TooMany(at, n, maxPorts)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, p := range ports {
		at := at.Index(i)
		name, protocol := "", corev1.Protocol("")
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if name != "" {
			errs = append(errs, label(name, at.Child("name"))...)
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		seen[name] = true
		errs = append(errs, valid.OneOf(protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		if n := p.Port; n != nil {
			errs = append(errs, valid.Each(validation.IsValidPortNum(int(*n)), func(msg string) *field.Error {
				return field.Invalid(at.Child("port"), *n, msg)
			})...)
		}
		if a := p.AppProtocol; a != nil {
			errs = append(errs, valid.Each(validation.IsQualifiedName(*a), func(msg string) *field.Error {
				return field.Invalid(at.Child("appProtocol"), *a, msg)
			})...)
		}
	}
	return errs
}

func validateEndpoint(e *discoveryv1.Endpoint, typ discoveryv1.AddressType, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	addresses := at.Child("addresses")
	switch n := len(e.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	case n > maxAddresses:
		return append(errs, field.TooMany(addresses, n, maxAddresses))
	}
	for i, a := range e.Addresses {
		errs = append(errs, validateAddress(a, typ, addresses.Index(i))...)
	}
	if e.NodeName != nil {
		errs = append(errs, valid.Name(*e.NodeName, at.Child("nodeName"))...)
	}
	if e.Hostname != nil {
		errs = append(errs, label(*e.Hostname, at.Child("hostname"))...)
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
	}
	return errs
}

func validateAddress(a string, typ discoveryv1.AddressType, at *field.Path) field.ErrorList {
	if typ == discoveryv1.AddressTypeFQDN {
		return validation.IsFullyQualifiedDomainName(at, a)
	}
	if errs := validation.IsValidIPForLegacyField(at, a, true, nil); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	if string(api.FamilyOf(a)) != string(typ) {
		errs = append(errs, field.Invalid(at, a, fmt.Sprintf("must be an %s address", typ)))
	}
	return append(errs, api.ValidateEndpointIP(a, at)...)
}

func validateHints(h *discoveryv1.EndpointHints, at *field.Path) field.ErrorList {
	zones, nodes := make([]string, len(h.ForZones)), make([]string, len(h.ForNodes))
	for i, z := range h.ForZones {
		zones[i] = z.Name
	}
	for i, n := range h.ForNodes {
		nodes[i] = n.Name
	}
	errs := validateHint(zones, at.Child("forZones"), validation.IsValidLabelValue)
	return append(errs, validateHint(nodes, at.Child("forNodes"), validation.IsDNS1123Subdomain)...)
}

func validateHint(names []string, at *field.Path, rule func(string) []string) field.ErrorList {
	if n := len(names); n > maxHints {
		return field.ErrorList{field.TooMany(at, n, maxHints)}
	}
	var errs field.ErrorList
	for i, name := range names {
		at := at.Index(i).Child("name")
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		errs = append(errs, valid.Each(rule(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })...)
	}
	return errs
}

func label(name string, at *field.Path) field.ErrorList {
	return valid.Each(validation.IsDNS1123Label(name), func(msg string) *field.Error { return field.Invalid(at, name, msg) })
}

func warnings(s *discoveryv1.EndpointSlice) (out []string) {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return []string{"spec.addressType: FQDN endpoints are deprecated"}
	}
	for i, e := range s.Endpoints {
		for j, a := range e.Addresses {
			out = append(out, validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), a)...)
		}
	}
	return out
}

var sliceColumns = table.Columns{
	table.Name,
	table.Column("AddressType", "string", "What the addresses are: IPv4, IPv6 or names."),
	table.Column("Ports", "string", "The ports of the endpoints."),
	table.Column("Endpoints", "string", "The addresses of the endpoints."),
	table.Age,
}

// shown is how many ports and addresses a row has room for.
const shown = 3

func sliceCells(s *discoveryv1.EndpointSlice, l table.Look) []any {
	var ports, addresses []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			ports = append(ports, *p.Name)
		default:
			ports = append(ports, "*")
		}
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []any{s.Name, string(s.AddressType), table.OrElse(table.FirstOf(ports, shown), "<unset>"),
		table.OrElse(table.FirstOf(addresses, shown), "<unset>"), l.AgeOf(s)}
}
