package httpd

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"ledge/api"
)

// The verbs that authorisation knows, beside those of objects.
const verbRead = "get"

// route is one line of the API: which requests, under which verb, answered by what.
type route struct {
	method string
	on     string // a fixed path, or one of the shapes below
	sub    string // subresource
	watch  bool   // only with ?watch=true
	verb   string // what authorisation calls it
	kinds  func(*api.Kind) bool
	serve  serving[handler]
	long   string // "watch" or "log" when the answer may take for ever
}

// serving is a method of the handler, or of a part of it, that answers a request.
type serving[T any] func(*T, *response, *request) error

func byReviewer(serve serving[reviewer]) serving[handler] {
	return func(h *handler, w *response, r *request) error { return serve(h.reviewer, w, r) }
}

func byPodStreams(serve serving[podStreams]) serving[handler] {
	return func(h *handler, w *response, r *request) error { return serve(h.pods, w, r) }
}

func byMeasures(serve serving[measures]) serving[handler] {
	return func(h *handler, w *response, r *request) error { return serve(h.measures, w, r) }
}

func byLaterKinds(serve serving[laterKinds]) serving[handler] {
	return func(h *handler, w *response, r *request) error { return serve(h.later, w, r) }
}

func byAbout(serve serving[about]) serving[handler] {
	return func(h *handler, w *response, r *request) error { return serve(h.about, w, r) }
}

// The shapes of object paths. The namespaces/{ns} part is there for namespaced kinds only, and may be missing
// where everywhere says so.
const (
	collection = "{kind}"        // /api/v1/namespaces/x/pods, /api/v1/nodes
	everywhere = "{kind} in all" // /api/v1/pods: of all namespaces
	object     = "{kind}/{name}"
)

func anyKind(k *api.Kind) bool            { return !k.Later && !k.Measured }
func accounts(k *api.Kind) bool           { return k == api.ServiceAccounts }
func writable(k *api.Kind) bool           { return !k.Later && !k.Measured }
func later(k *api.Kind) bool              { return k.Later }
func measured(k *api.Kind) bool           { return k.Measured }
func has(sub string) func(*api.Kind) bool { return func(k *api.Kind) bool { return k.Has(sub) } }
func pods(k *api.Kind) bool               { return k == api.Pods }
func proxied(k *api.Kind) bool            { return k == api.Pods || k == api.Services }
func nodes(k *api.Kind) bool              { return k == api.Nodes }

// routes is the whole API. Access to each line is decided by its verb in authz.go; bodies are limited by kind in
// limits.go; discovery is made from this table.
var routes = []route{
	// Objects.
	{"GET", collection, "", false, "list", anyKind, (*handler).list, ""},
	{"GET", collection, "", true, "watch", anyKind, (*handler).watch, "watch"},
	{"GET", everywhere, "", false, "list", anyKind, (*handler).list, ""},
	{"GET", everywhere, "", true, "watch", anyKind, (*handler).watch, "watch"},
	{"POST", collection, "", false, "create", writable, (*handler).create, ""},
	{"DELETE", collection, "", false, "deletecollection", writable, (*handler).deleteCollection, ""},
	{"GET", object, "", false, "get", anyKind, (*handler).get, ""},
	{"PUT", object, "", false, "update", writable, (*handler).update, ""},
	{"PATCH", object, "", false, "patch", writable, (*handler).patch, ""},
	{"DELETE", object, "", false, "delete", writable, (*handler).delete, ""},

	// Kinds that have no objects yet.
	{"GET", collection, "", false, "list", later, byLaterKinds((*laterKinds).listNone), ""},
	{"GET", collection, "", true, "watch", later, byLaterKinds((*laterKinds).watchNone), "watch"},
	{"GET", everywhere, "", false, "list", later, byLaterKinds((*laterKinds).listNone), ""},
	{"GET", everywhere, "", true, "watch", later, byLaterKinds((*laterKinds).watchNone), "watch"},
	{"GET", object, "", false, "get", later, byLaterKinds((*laterKinds).getNone), ""},

	// Subresources.
	{"GET", object, api.StatusSub, false, "get", has(api.StatusSub), (*handler).get, ""},
	{"PUT", object, api.StatusSub, false, "update", has(api.StatusSub), (*handler).update, ""},
	{"PATCH", object, api.StatusSub, false, "patch", has(api.StatusSub), (*handler).patch, ""},
	{"GET", object, api.Resize, false, "get", has(api.Resize), (*handler).get, ""},
	{"PUT", object, api.Resize, false, "update", has(api.Resize), (*handler).update, ""},
	{"PATCH", object, api.Resize, false, "patch", has(api.Resize), (*handler).patch, ""},
	{"GET", object, api.Ephemeral, false, "get", has(api.Ephemeral), (*handler).get, ""},
	{"PUT", object, api.Ephemeral, false, "update", has(api.Ephemeral), (*handler).update, ""},
	{"PATCH", object, api.Ephemeral, false, "patch", has(api.Ephemeral), (*handler).patch, ""},
	{"GET", object, api.Scale, false, "get", has(api.Scale), (*handler).getScale, ""},
	{"PUT", object, api.Scale, false, "update", has(api.Scale), (*handler).update, ""},
	{"PATCH", object, api.Scale, false, "patch", has(api.Scale), (*handler).patch, ""},
	{"PUT", object, api.Finalize, false, "update", has(api.Finalize), (*handler).update, ""},
	{"POST", object, "binding", false, "create", pods, (*handler).bind, ""},
	{"POST", object, "eviction", false, "create", pods, (*handler).evict, ""},
	{"GET", object, "log", false, "get", pods, byPodStreams((*podStreams).log), "log"},
	{"POST", object, "token", false, "create", accounts, byReviewer((*reviewer).token), ""},
	// Whatever the method, these let their caller do something in the pod.
	{"GET", object, "exec", false, "create", pods, byPodStreams((*podStreams).exec), "session"},
	{"POST", object, "exec", false, "create", pods, byPodStreams((*podStreams).exec), "session"},
	{"GET", object, "attach", false, "create", pods, byPodStreams((*podStreams).attach), "session"},
	{"POST", object, "attach", false, "create", pods, byPodStreams((*podStreams).attach), "session"},
	{"GET", object, "portforward", false, "create", pods, byPodStreams((*podStreams).portForward), "session"},
	{"POST", object, "portforward", false, "create", pods, byPodStreams((*podStreams).portForward), "session"},
	{"GET", object, "proxy", false, "get", proxied, byPodStreams((*podStreams).proxy), "session"},
	{"HEAD", object, "proxy", false, "get", proxied, byPodStreams((*podStreams).proxy), "session"},
	{"OPTIONS", object, "proxy", false, "get", proxied, byPodStreams((*podStreams).proxy), "session"},
	{"POST", object, "proxy", false, "create", proxied, byPodStreams((*podStreams).proxy), "session"},
	{"PUT", object, "proxy", false, "update", proxied, byPodStreams((*podStreams).proxy), "session"},
	{"PATCH", object, "proxy", false, "patch", proxied, byPodStreams((*podStreams).proxy), "session"},
	{"DELETE", object, "proxy", false, "delete", proxied, byPodStreams((*podStreams).proxy), "session"},

	// What is measured, and what a node serves itself.
	{"GET", collection, "", false, "list", measured, byMeasures((*measures).listMeasured), ""},
	{"GET", everywhere, "", false, "list", measured, byMeasures((*measures).listMeasured), ""},
	{"GET", object, "", false, "get", measured, byMeasures((*measures).getMeasured), ""},
	{"GET", object, "proxy", false, "get", nodes, byMeasures((*measures).nodeProxy), ""},
	{"GET", "/metrics", "", false, verbRead, nil, byMeasures((*measures).ownPage), ""},
	{"GET", "/metrics/resource", "", false, verbRead, nil, byMeasures((*measures).ownPage), ""},

	// Who am I, and what may I.
	{"POST", pathAccessReview, "", false, "create", nil, byReviewer((*reviewer).accessReview), ""},
	{"POST", pathRulesReview, "", false, "create", nil, byReviewer((*reviewer).rulesReview), ""},
	{"POST", pathSelfReview, "", false, "create", nil, byReviewer((*reviewer).selfReview), ""},
	{"POST", pathSubjectReview, "", false, "create", nil, byReviewer((*reviewer).subjectReview), ""},
	{"POST", pathLocalReview, "", false, "create", nil, byReviewer((*reviewer).localReview), ""},
	{"POST", pathTokenReview, "", false, "create", nil, byReviewer((*reviewer).tokenReview), ""},

	// What there is. The paths of discovery and OpenAPI (documents.go) come on top of these.
	{"GET", "/version", "", false, verbRead, nil, byAbout((*about).serveVersion), ""},
	{"GET", "/healthz", "", false, verbRead, nil, byAbout((*about).ready), ""},
	{"GET", "/readyz", "", false, verbRead, nil, byAbout((*about).ready), ""},
	{"GET", "/livez", "", false, verbRead, nil, byAbout((*about).live), ""},
}

// refusalRoute answers who would make an object of a kind that has none. It is not in discovery.
var refusalRoute = &route{method: "POST", on: collection, verb: "create", serve: byLaterKinds((*laterKinds).refuse)}

// documentRoute answers the generated paths: discovery and OpenAPI.
var documentRoute = &route{method: "GET", verb: verbRead, serve: byAbout((*about).document)}

const (
	pathAccessReview  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	pathRulesReview   = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	pathSelfReview    = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	pathSubjectReview = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	pathLocalReview   = "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"
	pathTokenReview   = "/apis/authentication.k8s.io/v1/tokenreviews"
)

// target is what a path names. kind is nil for paths that are no object's.
type target struct {
	kind      *api.Kind
	shape     string
	namespace string
	name      string
	sub       string
	rest      string // the path behind a proxy
}

// find fills in the target and the route of a request, or says why there is none.
func (h *handler) find(r *request) error {
	ours, rest, ok := cutProxy(r.URL.EscapedPath())
	if !ok {
		return errNoPath()
	}
	watch, err := queryBool(r.query, "watch")
	if err != nil && rest == "" {
		return err
	}
	segments, ok := splitPath(ours)
	if !ok {
		return errNoPath()
	}
	t, isObject := parseTarget(h.kinds, segments)
	if rest != "" {
		t.rest = rest
	}
	fixed := fixedPath(segments, &t, isObject)
	var allowed []string
	for i := range routes {
		c := &routes[i]
		if c.kinds == nil && c.on != fixed {
			continue
		}
		if c.kinds != nil && (!isObject || c.on != t.shape || c.sub != t.sub || !c.kinds(t.kind)) {
			continue
		}
		if c.method == r.Method && c.watch == (watch && watchable(t)) {
			r.target, r.route = t, c
			return nil
		}
		allowed = append(allowed, c.method)
	}
	docs, err := h.about.docs()
	if err != nil {
		return fmt.Errorf("make the documents of the API: %w", err)
	}
	if docs[fixed] != nil {
		if r.Method == documentRoute.method {
			r.target, r.route = target{name: fixed}, documentRoute
			return nil
		}
		allowed = append(allowed, documentRoute.method)
	}
	if allowed == nil {
		return errNoPath()
	}
	if isObject && !writable(t.kind) && !t.kind.Measured {
		if r.Method == refusalRoute.method && t.kind.Later && t.shape == collection {
			r.target, r.route = t, refusalRoute
			return nil
		}
		return api.NotWritable(t.kind)
	}
	slices.Sort(allowed)
	return errMethod(r.Method, slices.Compact(allowed))
}

// fixedPath is a path that is no object's, with {namespace} in the place of the one namespace there may be in it.
func fixedPath(segments []string, t *target, isObject bool) string {
	path := slices.Clone(segments)
	if !isObject && len(path) == 6 && path[0] == "apis" && path[3] == "namespaces" {
		t.namespace, path[4] = path[4], "{namespace}"
	}
	return "/" + strings.Join(path, "/")
}

// watchable: elsewhere a watch parameter means nothing, as on Kubernetes.
func watchable(t target) bool { return t.shape == collection || t.shape == everywhere }

// splitPath cuts a path into its decoded segments. It refuses what could mean something else further down: empty
// segments, dots, and slashes or percent signs smuggled in by escaping.
func splitPath(path string) ([]string, bool) {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	segments := strings.Split(path, "/")
	if len(segments) > 8 {
		return nil, false
	}
	for i, s := range segments {
		d, err := url.PathUnescape(s)
		if err != nil || d == "" || d == "." || d == ".." || len(d) > 253 || strings.ContainsFunc(d, oddInPath) {
			return nil, false
		}
		segments[i] = d
	}
	return segments, true
}

func oddInPath(c rune) bool { return c <= ' ' || c == '/' || c == '%' || c == '\\' || c >= 0x7f }

// parseTarget reads an object path.
func parseTarget(s *api.Kinds, segments []string) (target, bool) {
	var t target
	var group, version string
	switch {
	case len(segments) >= 3 && segments[0] == "api":
		version, segments = segments[1], segments[2:]
	case len(segments) >= 4 && segments[0] == "apis":
		group, version, segments = segments[1], segments[2], segments[3:]
	default:
		return t, false
	}
	// namespaces/x/pods names pods; namespaces/x and namespaces/x/status name the namespace itself.
	if len(segments) >= 3 && segments[0] == "namespaces" {
		if k := s.For(group, version, segments[2]); k != nil && k.Namespaced {
			t.namespace, segments = segments[1], segments[2:]
		}
	}
	t.kind = s.For(group, version, segments[0])
	if t.kind == nil {
		return t, false
	}
	if t.kind == api.Nodes && len(segments) > 3 && segments[2] == "proxy" {
		t.rest, segments = strings.Join(segments[3:], "/"), segments[:3]
	}
	if len(segments) > 3 {
		return t, false
	}
	switch {
	case len(segments) > 1 && t.kind.Namespaced != (t.namespace != ""):
		return t, false
	case len(segments) > 1:
		t.shape, t.name = object, segments[1]
		if len(segments) > 2 {
			t.sub = segments[2]
		}
	case t.kind.Namespaced && t.namespace == "":
		t.shape = everywhere
	default:
		t.shape = collection
	}
	return t, true
}

// verbsOf lists the verbs of a kind or one of its subresources, as the routes have them.
func verbsOf(k *api.Kind, sub string) []string {
	var verbs []string
	for i := range routes {
		if c := &routes[i]; c.kinds != nil && c.kinds(k) && c.sub == sub && c.on != everywhere {
			verbs = append(verbs, c.verb)
		}
	}
	slices.Sort(verbs)
	return slices.Compact(verbs)
}

// subsOf lists the subresources of a kind, as the routes have them.
func subsOf(k *api.Kind) []string {
	var subs []string
	for i := range routes {
		if c := &routes[i]; c.kinds != nil && c.kinds(k) && c.sub != "" {
			subs = append(subs, c.sub)
		}
	}
	slices.Sort(subs)
	return slices.Compact(subs)
}

var _ http.Handler = (*handler)(nil)
