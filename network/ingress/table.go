// Package ingress decides where a request of HTTP from outside goes: Ingresses in, a table out; host and path in, a backend out; Services
// and their slices in, endpoints out. It is pure; network/ingress/door carries it out.
//
//	Ingresses -> Build -> Table -> Route(host, path) -> Route -> Behind(service, slices) -> Pool
//
// Of two Ingresses that claim one host and path the older has it. A bad Ingress costs nobody else anything: what of it cannot be followed
// is left out, and said.
package ingress

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/networking"
)

// Table is what requests are led by. It does not change.
type Table struct {
	hosts map[string]*host // exact ones; "" is any, "*.example.com" a wildcard
	rest  *Route           // nil: there is no default backend
	certs map[string]types.NamespacedName
}

type host struct {
	exact  map[string]*Route
	prefix []*Route // the longest path first
	rest   *Route   // what no path takes
}

// Has says whether a rule has a host, as a Route names it.
func (t *Table) Has(name string) bool { return t.hosts[name] != nil }

// Route is where a request goes.
type Route struct {
	Of      types.NamespacedName // the Ingress
	Host    string               // of the rule, in small letters; "" for all hosts
	Backend Backend
	networking.Wishes

	path string // of a prefix: without a slash at its end
}

// Backend is a port of a Service, by name or number.
type Backend struct {
	Service  types.NamespacedName
	PortName string
	Port     int32
}

// BackendOf is the one that an Ingress of a namespace names.
func BackendOf(namespace string, s *networkingv1.IngressServiceBackend) Backend {
	return Backend{types.NamespacedName{Namespace: namespace, Name: s.Name}, s.Port.Name, s.Port.Number}
}

func (b Backend) String() string {
	return fmt.Sprintf("%s:%s", b.Service, cmp.Or(b.PortName, fmt.Sprint(b.Port)))
}

// Fault is why a part of an Ingress is not followed.
type Fault struct {
	Ingress         *networkingv1.Ingress
	Reason, Message string
}

// What a table holds at the most: a host costs some hundred bytes. A namespace has at most as many as are left for others.
const (
	mostRoutes = 20000
	mostCerts  = 1000
)

// builder makes a table, from the oldest Ingress to the youngest.
type builder struct {
	Table
	routes, certificates share
	faults               []Fault
	now                  *networkingv1.Ingress
}

// share counts what namespaces have of something.
type share struct {
	all int
	of  map[string]int
}

// take has a namespace take one more, unless no more than it has would be left for others.
func (s *share) take(namespace string, most int) bool {
	if s.of[namespace] >= most-s.all {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[namespace]++
	return true
}

// Build makes the table of some Ingresses. Their order says nothing.
func Build(all []*networkingv1.Ingress) (*Table, []Fault) {
	b := builder{Table: Table{hosts: map[string]*host{}, certs: map[string]types.NamespacedName{}}}
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y *networkingv1.Ingress) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for _, i := range all {
		b.now = i
		b.add(i)
	}
	for _, h := range b.hosts {
		slices.SortStableFunc(h.prefix, func(x, y *Route) int { return cmp.Compare(len(y.path), len(x.path)) })
	}
	return &b.Table, b.faults
}

func (b *builder) fault(reason, format string, args ...any) {
	b.faults = append(b.faults, Fault{b.now, reason, fmt.Sprintf(format, args...)})
}

func (b *builder) add(i *networkingv1.Ingress) {
	wishes, _ := networking.WishesOf(i)
	full := false
	route := func(to *networkingv1.IngressBackend) *Route {
		if to == nil || to.Service == nil {
			return nil
		}
		if full = full || !b.routes.take(i.Namespace, mostRoutes); full {
			return nil
		}
		return &Route{Of: api.Key(i), Wishes: wishes, Backend: BackendOf(i.Namespace, to.Service)}
	}
	b.addCerts(i)
	named := false
	for _, r := range i.Spec.Rules {
		name := strings.ToLower(r.Host)
		named = named || name != ""
		if r.HTTP != nil {
			for j := range r.HTTP.Paths {
				if to := route(&r.HTTP.Paths[j].Backend); to != nil {
					to.Host = name
					b.addPath(name, &r.HTTP.Paths[j], to)
				}
			}
		}
		if to := route(i.Spec.DefaultBackend); name != "" && to != nil {
			to.Host = name
			b.addRest(name, to)
		}
	}
	if to := route(i.Spec.DefaultBackend); !named && to != nil {
		switch {
		case b.rest == nil:
			b.rest = to
		case b.rest.Backend != to.Backend:
			b.fault("BackendTaken", "The default backend is that of ingress %s, which is older", b.rest.Of)
		}
	}
	if full {
		b.fault("TooMany", "The namespace has as many hosts and paths as are left for others, of %d in all; its youngest are left out", mostRoutes)
	}
}

func (b *builder) host(name string) *host {
	if b.hosts[name] == nil {
		b.hosts[name] = &host{exact: map[string]*Route{}}
	}
	return b.hosts[name]
}

func (b *builder) addPath(name string, p *networkingv1.HTTPIngressPath, to *Route) {
	h, at, kind := b.host(name), p.Path, networkingv1.PathTypePrefix
	if p.PathType != nil {
		kind = *p.PathType
	}
	var taken *Route
	if kind == networkingv1.PathTypeExact {
		if taken = h.exact[at]; taken == nil {
			h.exact[at] = to
		}
	} else {
		if kind == networkingv1.PathTypeImplementationSpecific {
			at = strings.TrimSuffix(at, "*") // "/*" is how some write all below
			if strings.ContainsAny(at, `()[]{}^$*+?|\`) {
				b.fault("PathTakenLiterally", "Path %q of host %q looks like a pattern: each of its characters stands for itself", p.Path, name)
			}
		}
		to.path = strings.TrimRight(at, "/")
		if j := slices.IndexFunc(h.prefix, func(r *Route) bool { return r.path == to.path }); j >= 0 {
			taken = h.prefix[j]
		} else {
			h.prefix = append(h.prefix, to)
		}
	}
	if taken != nil && (taken.Of != to.Of || taken.Backend != to.Backend) {
		b.fault("PathTaken", "Path %q of host %q is that of ingress %s, which is older or names it first", p.Path, name, taken.Of)
	}
}

func (b *builder) addRest(name string, to *Route) {
	switch h := b.host(name); {
	case h.rest == nil:
		h.rest = to
	case h.rest.Backend != to.Backend:
		b.fault("BackendTaken", "What no path of host %q takes is that of ingress %s, which is older", name, h.rest.Of)
	}
}

// addCerts notes whose certificates belong to which hosts; "" is for hosts that have none.
func (b *builder) addCerts(i *networkingv1.Ingress) {
	for _, t := range i.Spec.TLS {
		if t.SecretName == "" {
			continue
		}
		key, hosts := types.NamespacedName{Namespace: i.Namespace, Name: t.SecretName}, t.Hosts
		if len(hosts) == 0 {
			hosts = []string{""}
		}
		for _, name := range hosts {
			name = strings.ToLower(name)
			switch is, taken := b.certs[name]; {
			case taken && is != key:
				b.fault("CertificateTaken", "The certificate of host %q is that of secret %s, which an older ingress names", name, is)
			case !taken && !b.certificates.take(i.Namespace, mostCerts):
				b.fault("TooMany", "The namespace has certificates for as many hosts as are left for others, of %d in all; host %q has none", mostCerts, name)
			case !taken:
				b.certs[name] = key
			}
		}
	}
}

// Backends are all that it leads to, some more than once.
func (t *Table) Backends() (out []Backend) {
	add := func(r *Route) {
		if r != nil {
			out = append(out, r.Backend)
		}
	}
	for _, h := range t.hosts {
		for _, r := range h.exact {
			add(r)
		}
		for _, r := range h.prefix {
			add(r)
		}
		add(h.rest)
	}
	add(t.rest)
	return out
}

// Secrets are those that hold the certificates, each once.
func (t *Table) Secrets() (out []types.NamespacedName) {
	for _, key := range t.certs {
		if !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return cmp.Or(cmp.Compare(out[i].Namespace, out[j].Namespace), cmp.Compare(out[i].Name, out[j].Name)) < 0
	})
	return out
}

// Certificate is the Secret with the certificate of a host, or of all that have none of their own.
func (t *Table) Certificate(name string) (secret types.NamespacedName, ok bool) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	for _, h := range []string{name, wildcard(name), ""} {
		if secret, ok = t.certs[h]; ok {
			return secret, true
		}
	}
	return secret, false
}

// wildcard is the name that stands for a host and its neighbours; "*" where there is none, which nobody has.
func wildcard(name string) string {
	_, domain, ok := strings.Cut(name, ".")
	if !ok {
		return "*"
	}
	return "*." + domain
}

// Route finds where a request goes: by its host before its neighbours before any, by the longest path that fits, and among equals by one
// that is meant exactly. nil: nowhere. name is a host without a port, at a path as the client sent it, decoded.
func (t *Table) Route(name, at string) *Route {
	name, at = strings.TrimSuffix(strings.ToLower(name), "."), clean(at)
	hosts := [...]*host{t.hosts[name], t.hosts[wildcard(name)], t.hosts[""]}
	if name == "" {
		hosts[0] = nil
	}
	for _, h := range hosts {
		if r := h.route(at); r != nil {
			return r
		}
	}
	for _, h := range hosts {
		if h != nil && h.rest != nil {
			return h.rest
		}
	}
	return t.rest
}

func (h *host) route(at string) *Route {
	if h == nil {
		return nil
	}
	if r := h.exact[at]; r != nil {
		return r
	}
	for _, r := range h.prefix {
		if rest, ok := strings.CutPrefix(at, r.path); ok && (rest == "" || rest[0] == '/') {
			return r
		}
	}
	return nil
}

// clean is a path without steps in place and upwards: whoever answers will take them, so they must not hide where a request goes.
func clean(at string) string {
	if at == "" || at[0] != '/' {
		at = "/" + at
	}
	if !strings.Contains(at, "//") && !strings.Contains(at, "/.") {
		return at
	}
	out := path.Clean(at)
	if out != "/" && (strings.HasSuffix(at, "/") || strings.HasSuffix(at, "/.") || strings.HasSuffix(at, "/..")) {
		out += "/"
	}
	return out
}
