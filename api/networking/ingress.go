package networking

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// ClassAnnotation names the class in the older form.
const ClassAnnotation = "kubernetes.io/ingress.class"

// Ingresses lead requests of HTTP from outside to services, by host and path.
var Ingresses = api.Define(api.Kind{Group: "networking.k8s.io", Version: "v1", Name: "Ingress", Resource: "ingresses", Singular: "ingress",
	Short: []string{"ing"}, Namespaced: true, Generation: true},
	api.Rules[*networkingv1.Ingress]{
		New:     func() *networkingv1.Ingress { return &networkingv1.Ingress{} },
		NewList: func() api.ListObject { return &networkingv1.IngressList{} },
		Fresh:   func(i *networkingv1.Ingress) { i.Status = networkingv1.IngressStatus{} },
		Validate: func(i *networkingv1.Ingress) field.ErrorList {
			return append(validateIngress(i), validateClassNames(i)...)
		},
		ValidateUpdate: func(i, old *networkingv1.Ingress, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateIngressStatus(i, old)
			}
			return validateIngress(i)
		},
		Warn:   ingressWarnings,
		Spec:   func(i *networkingv1.Ingress) any { return &i.Spec },
		Status: func(i *networkingv1.Ingress) any { return &i.Status },
		Columns: table.Columns{
			table.Name,
			table.Column("Class", "string", "The class, which says who serves it."),
			table.Column("Hosts", "string", "The hosts whose requests it takes."),
			table.Column("Address", "string", "Where it is reached."),
			table.Column("Ports", "string", "The ports at which it is reached."),
			table.Age,
		},
		Cells: ingressCells,
	})

// ClassOf is the name of an Ingress' class; "": it has none.
func ClassOf(i *networkingv1.Ingress) string {
	if name := i.Spec.IngressClassName; name != nil {
		return *name
	}
	return i.Annotations[ClassAnnotation]
}

// Backends are all that an Ingress names.
func Backends(i *networkingv1.Ingress) (out []*networkingv1.IngressBackend) {
	if b := i.Spec.DefaultBackend; b != nil {
		out = append(out, b)
	}
	for _, r := range i.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for j := range r.HTTP.Paths {
			out = append(out, &r.HTTP.Paths[j].Backend)
		}
	}
	return out
}

func validateIngress(i *networkingv1.Ingress) field.ErrorList {
	at, s := field.NewPath("spec"), &i.Spec
	var errs field.ErrorList
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		errs = append(errs, field.Invalid(at, s.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if s.DefaultBackend != nil {
		errs = append(errs, validateBackend(s.DefaultBackend, at.Child("defaultBackend"))...)
	}
	for j := range s.Rules {
		errs = append(errs, validateRule(&s.Rules[j], at.Child("rules").Index(j))...)
	}
	for j := range s.TLS {
		errs = append(errs, validateTLS(&s.TLS[j], at.Child("tls").Index(j))...)
	}
	if s.IngressClassName != nil {
		errs = append(errs, valid.Name(*s.IngressClassName, at.Child("ingressClassName"))...)
	}
	return errs
}

// validateClassNames: a new Ingress that names its class twice names one.
func validateClassNames(i *networkingv1.Ingress) field.ErrorList {
	text, is := i.Annotations[ClassAnnotation]
	if name := i.Spec.IngressClassName; !is || name == nil || text == *name {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("annotations").Child(ClassAnnotation), text,
		"must match `ingressClassName` when both are specified")}
}

func validateHost(host string, at *field.Path) field.ErrorList {
	rule := validation.IsDNS1123Subdomain
	if strings.Contains(host, "*") {
		rule = validation.IsWildcardDNS1123Subdomain
	}
	return valid.Each(rule(host), func(msg string) *field.Error { return field.Invalid(at, host, msg) })
}

func validateRule(r *networkingv1.IngressRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Host != "" {
		if api.FamilyOf(r.Host) != "" {
			errs = append(errs, field.Invalid(at.Child("host"), r.Host, "must be a DNS name, not an IP address"))
		}
		errs = append(errs, validateHost(r.Host, at.Child("host"))...)
	}
	if r.HTTP == nil {
		return errs
	}
	at = at.Child("http", "paths")
	if len(r.HTTP.Paths) == 0 {
		return append(errs, field.Required(at, ""))
	}
	for i := range r.HTTP.Paths {
		errs = append(errs, validatePath(&r.HTTP.Paths[i], at.Index(i))...)
	}
	return errs
}

// What no path may hold: such a request has its path cleaned, by us or by who answers it.
var (
	badInPaths    = []string{"//", "/./", "/../", "%2f", "%2F"}
	badAtPathEnds = []string{"/..", "/."}
)

func validatePath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	path := at.Child("path")
	absolute := func() {
		if !strings.HasPrefix(p.Path, "/") {
			errs = append(errs, field.Invalid(path, p.Path, "must be an absolute path"))
		}
	}
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		absolute()
		for _, bad := range badInPaths {
			if strings.Contains(p.Path, bad) {
				errs = append(errs, field.Invalid(path, p.Path, fmt.Sprintf("must not contain '%s'", bad)))
			}
		}
		for _, bad := range badAtPathEnds {
			if strings.HasSuffix(p.Path, bad) {
				errs = append(errs, field.Invalid(path, p.Path, fmt.Sprintf("cannot end with '%s'", bad)))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" {
			absolute()
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("pathType"), *p.PathType, []networkingv1.PathType{networkingv1.PathTypeExact,
			networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}))
	}
	return append(errs, validateBackend(&p.Backend, at.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		errs := validateReference(b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name, at.Child("resource"))
		return append(errs, field.Forbidden(at.Child("resource"), valid.NotYet)) // no object that could be one has a kind here
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	var errs field.ErrorList
	s, port := b.Service, at.Child("service", "port")
	if name := at.Child("service", "name"); s.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		errs = append(errs, valid.Each(apivalidation.NameIsDNSLabel(s.Name, false), func(msg string) *field.Error {
			return field.Invalid(name, s.Name, msg)
		})...)
	}
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		errs = append(errs, valid.Each(validation.IsValidPortName(s.Port.Name), func(msg string) *field.Error {
			return field.Invalid(port.Child("name"), s.Port.Name, msg)
		})...)
	case s.Port.Number != 0:
		errs = append(errs, valid.Each(validation.IsValidPortNum(int(s.Port.Number)), func(msg string) *field.Error {
			return field.Invalid(port.Child("number"), s.Port.Number, msg)
		})...)
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

func validateTLS(t *networkingv1.IngressTLS, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, host := range t.Hosts {
		errs = append(errs, validateHost(host, at.Child("hosts").Index(i))...)
	}
	if t.SecretName != "" {
		errs = append(errs, valid.Name(t.SecretName, at.Child("secretName"))...)
	}
	return errs
}

func validateIngressStatus(i, old *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	was := old.Status.LoadBalancer.Ingress
	for j, in := range i.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(j)
		if in.IP != "" && !slices.ContainsFunc(was, func(o networkingv1.IngressLoadBalancerIngress) bool { return o.IP == in.IP }) {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), in.IP, true, nil)...)
		}
		if in.Hostname == "" {
			continue
		}
		errs = append(errs, valid.Name(in.Hostname, at.Child("hostname"))...)
		if api.FamilyOf(in.Hostname) != "" {
			errs = append(errs, field.Invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}

func ingressWarnings(i *networkingv1.Ingress) []string {
	if _, is := i.Annotations[ClassAnnotation]; is && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ClassAnnotation)}
	}
	return nil
}

// shownHosts is how many hosts a row has room for.
const shownHosts = 3

func ingressCells(i *networkingv1.Ingress, l table.Look) []any {
	class, ports := table.None, "80"
	if i.Spec.IngressClassName != nil {
		class = *i.Spec.IngressClassName
	}
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	var at []string
	for _, in := range i.Status.LoadBalancer.Ingress {
		if text := table.OrElse(in.IP, in.Hostname); text != "" {
			at = append(at, text)
		}
	}
	slices.Sort(at)
	return []any{i.Name, class, hosts(i.Spec.Rules), strings.Join(slices.Compact(at), ","), ports, l.AgeOf(i)}
}

// hosts are those of the first rules that have one.
func hosts(rules []networkingv1.IngressRule) string {
	var list []string
	for i, r := range rules {
		if len(list) == shownHosts {
			return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-i)
		}
		if r.Host != "" {
			list = append(list, r.Host)
		}
	}
	return table.OrElse(strings.Join(list, ","), "*")
}
