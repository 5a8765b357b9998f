//lint:file-ignore SA1019 older clients read Endpoints, and still write them

package api

import (
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
	"ledge/api/valid"
)

// Endpoints are the addresses behind a service in the older form, for clients that know no EndpointSlices.
var Endpoints = Define(Kind{Version: "v1", Name: "Endpoints", Resource: "endpoints", Singular: "endpoints", Short: []string{"ep"},
	Namespaced: true, Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"},
	Rules[*corev1.Endpoints]{
		New: func() *corev1.Endpoints { return &corev1.Endpoints{} }, NewList: func() ListObject { return &corev1.EndpointsList{} },
		Default: func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					setEmpty(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		},
		Validate: validateEndpoints,
		Warn:     endpointsWarnings,
		Columns:  table.Columns{table.Name, table.Column("Endpoints", "string", "The addresses behind the service."), table.Age},
		Cells: func(e *corev1.Endpoints, l table.Look) []any {
			return []any{e.Name, table.OrNone(table.FirstOf(readyEndpoints(e), shownEndpoints)), l.AgeOf(e)}
		},
	})

// shownEndpoints is how many a row has room for.
const shownEndpoints = 3

func readyEndpoints(e *corev1.Endpoints) (out []string) {
	for _, s := range e.Subsets {
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				out = append(out, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				out = append(out, a.IP)
			}
		}
	}
	return out
}

// maxEndpointAddresses and maxEndpointPorts bound what one object makes of mirrored slices. Kubernetes has no such limit, but writes
// no more addresses itself.
const (
	maxEndpointAddresses = 1000
	maxEndpointPorts     = 250
)

func validateEndpoints(e *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	total := 0
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if total += len(s.Addresses) + len(s.NotReadyAddresses); total > maxEndpointAddresses {
			return append(errs, field.TooMany(at, total, maxEndpointAddresses))
		}
		if len(s.Ports) > maxEndpointPorts {
			return append(errs, field.TooMany(at.Child("ports"), len(s.Ports), maxEndpointPorts))
		}
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range s.Addresses {
			errs = append(errs, validateEndpointAddress(&s.Addresses[j], at.Child("addresses").Index(j))...)
		}
		for j := range s.NotReadyAddresses {
			errs = append(errs, validateEndpointAddress(&s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))...)
		}
		for j := range s.Ports {
			errs = append(errs, validateEndpointPort(&s.Ports[j], len(s.Ports) > 1, at.Child("ports").Index(j))...)
		}
	}
	return errs
}

func validateEndpointAddress(a *corev1.EndpointAddress, at *field.Path) field.ErrorList {
	errs := validation.IsValidIPForLegacyField(at.Child("ip"), a.IP, true, nil)
	if a.Hostname != "" {
		errs = append(errs, label(a.Hostname, at.Child("hostname"))...)
	}
	if a.NodeName != nil {
		errs = append(errs, valid.Name(*a.NodeName, at.Child("nodeName"))...)
	}
	return append(errs, ValidateEndpointIP(a.IP, at.Child("ip"))...)
}

// ValidateEndpointIP reports an address at which no endpoint of a service can be: that of whoever asks, or of a link.
func ValidateEndpointIP(ip string, at *field.Path) field.ErrorList {
	a, err := netip.ParseAddr(ip)
	why := ""
	switch {
	case err != nil: // which who calls this says
	case a.IsUnspecified():
		why = "may not be unspecified (" + ip + ")"
	case a.IsLoopback():
		why = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case a.IsLinkLocalUnicast():
		why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case a.IsLinkLocalMulticast():
		why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	}
	if why == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(at, ip, why)}
}

func validateEndpointPort(p *corev1.EndpointPort, named bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, label(p.Name, at.Child("name"))...)
	} else if named {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	errs = append(errs, isPort(p.Port, at.Child("port"))...)
	errs = append(errs, valid.OneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	return append(errs, appProtocol(p.AppProtocol, at.Child("appProtocol"))...)
}

func endpointsWarnings(e *corev1.Endpoints) (out []string) {
	warn := func(list []corev1.EndpointAddress, at *field.Path) {
		for i, a := range list {
			out = append(out, validation.GetWarningsForIP(at.Index(i).Child("ip"), a.IP)...)
		}
	}
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		warn(s.Addresses, at.Child("addresses"))
		warn(s.NotReadyAddresses, at.Child("notReadyAddresses"))
	}
	return out
}
