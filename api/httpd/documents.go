package httpd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/api/openapi"
)

// document is an answer that never changes while the server runs.
type document struct {
	body []byte
	etag string
	// aggregated is the other form of /api and /apis, with all resources in one answer; nil elsewhere.
	aggregated *document
	// large is a body that is too large to be kept for the few who ask; nil elsewhere.
	large *largeDocument
	// protobuf is the other form of /openapi/v2; nil elsewhere.
	protobuf *document
}

// The media type of aggregated discovery, as kubectl asks for it and expects it back (N-11.13).
const (
	aggregatedKind    = "APIGroupDiscoveryList"
	aggregatedGroup   = "apidiscovery.k8s.io"
	aggregatedVersion = "v2"
)

const aggregatedType = mediaJSON + ";g=" + aggregatedGroup + ";v=" + aggregatedVersion + ";as=" + aggregatedKind

// review is a resource that is not kept: one asks it by creating it.
type review struct {
	path string
	gvk  schema.GroupVersionKind
	// admin: it is about others, and not everybody's to ask.
	admin bool
	// namespaced: it stands in a namespace, and is about that one only.
	namespaced bool
}

var reviews = []review{
	{pathSelfReview, schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "SelfSubjectReview"}, false, false},
	{pathTokenReview, schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenReview"}, true, false},
	{pathAccessReview, schema.GroupVersionKind{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview"}, false, false},
	{pathRulesReview, schema.GroupVersionKind{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectRulesReview"}, false, false},
	{pathSubjectReview, schema.GroupVersionKind{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"}, true, false},
	{pathLocalReview, schema.GroupVersionKind{Group: "authorization.k8s.io", Version: "v1", Kind: "LocalSubjectAccessReview"}, true, true},
}

func (v review) resource() string { return v.path[strings.LastIndex(v.path, "/")+1:] }

// documents makes everything that says what the API has: discovery, plain and aggregated, and OpenAPI v3.
func documents(s *api.Kinds) (map[string]*document, error) {
	docs := map[string]*document{}
	var failed error
	made := func(path string, v any) *document {
		body, err := json.Marshal(v)
		if err != nil {
			failed = fmt.Errorf("make %s: %w", path, err)
		}
		return newDocument(body)
	}
	add := func(path string, v any) *document {
		docs[path] = made(path, v)
		return docs[path]
	}
	core, groups := aggregate(s)
	add("/api", metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}).aggregated = made("/api", core)
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	index := map[string]any{}
	var v2 []byte // names what is in /openapi/v2
	for _, gv := range groupVersions(s) {
		path := groupPath(gv)
		add(path, resourceList(s, gv))
		paths, _ := openAPI(s, gv)
		spec := made(path, paths)
		spec.etag = newDocument(append([]byte(openapi.Hash()), spec.body...)).etag
		spec.body, spec.large = nil, &largeDocument{build: func() ([]byte, error) { return documentV3(s, gv) }}
		docs["/openapi/v3"+path] = spec
		v2 = append(v2, spec.etag...)
		index[strings.TrimPrefix(path, "/")] = map[string]string{
			"serverRelativeURL": "/openapi/v3" + path + "?hash=" + strings.Trim(spec.etag, `"`),
		}
		if docs["/apis/"+gv.Group] == nil && gv.Group != "" {
			g := apiGroup(s, gv.Group)
			list.Groups = append(list.Groups, g)
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			add("/apis/"+gv.Group, g)
		}
	}
	add("/apis", list).aggregated = made("/apis", groups)
	add("/openapi/v3", map[string]any{"paths": index})
	docs["/openapi/v2"] = &document{etag: newDocument(v2).etag, large: &largeDocument{build: func() ([]byte, error) {
		doc, err := documentV2(s)
		if err != nil {
			return nil, err
		}
		return json.Marshal(doc)
	}}}
	// A tag of its own: a client that has the one form must not take it for the other.
	docs["/openapi/v2"].protobuf = &document{etag: newDocument(append(v2, openAPIProtobuf...)).etag,
		large: &largeDocument{build: func() ([]byte, error) {
			doc, err := documentV2(s)
			if err != nil {
				return nil, err
			}
			return openapi.Protobuf(doc)
		}}}
	return docs, failed
}

func newDocument(body []byte) *document {
	sum := sha256.Sum256(body)
	return &document{body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// document answers one of the documents, or 304 when the client has it already.
func (a *about) document(w *response, r *request) error {
	docs, err := a.docs()
	if err != nil {
		return fmt.Errorf("make the documents of the API: %w", err)
	}
	d := docs[r.name]
	media, vary := mediaJSON, false
	if d.aggregated != nil {
		vary = true
		if wantsAggregated(r.Header.Values("Accept")) {
			d, media = d.aggregated, aggregatedType
		}
	}
	if d.protobuf != nil {
		vary = true
		if wantsOpenAPIProtobuf(r.Header.Values("Accept")) {
			d, media = d.protobuf, openAPIProtobuf
		}
	}
	head := w.Header()
	if vary {
		head.Set("Vary", "Accept")
	}
	head.Set("ETag", d.etag)
	head.Set("Cache-Control", "public")
	if hash := r.query.Get("hash"); hash != "" && hash == strings.Trim(d.etag, `"`) {
		head.Set("Cache-Control", "public, immutable")
	}
	for _, tag := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == d.etag || tag == "*" {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if d.large != nil {
		return d.large.serve(w, r, media, a.limits)
	}
	w.body(http.StatusOK, media, d.body)
	return nil
}

// openAPIProtobuf is the media type of an OpenAPI document in protobuf. Clients before 1.25 know it only with an @ for
// the last dot but one, which is no character of a media type: offers reads both.
const openAPIProtobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

// wantsOpenAPIProtobuf: rather than JSON.
func wantsOpenAPIProtobuf(accept []string) bool {
	for _, o := range offers(accept) {
		switch o.media {
		case openAPIProtobuf:
			return true
		case mediaJSON, "application/*", "*/*":
			return false
		}
	}
	return false
}

// wantsAggregated: only v2 is spoken; who offers v2beta1 or plain JSON first gets plain JSON.
func wantsAggregated(accept []string) bool {
	for _, o := range offers(accept) {
		switch {
		case o.media != mediaJSON && o.media != "*/*" && o.media != "application/*":
		case o.params["as"] == "":
			return false
		case o.params["as"] == aggregatedKind && o.params["g"] == aggregatedGroup && o.params["v"] == aggregatedVersion:
			return true
		}
	}
	return false
}

// groupVersions lists what there is, core first, and of each group the newest version first: it is the preferred one.
func groupVersions(s *api.Kinds) []schema.GroupVersion {
	var out []schema.GroupVersion
	for _, k := range s.All() {
		out = append(out, k.GVK().GroupVersion())
	}
	for _, v := range reviews {
		out = append(out, v.gvk.GroupVersion())
	}
	sort.Slice(out, func(i, j int) bool {
		if a, b := out[i], out[j]; a.Group != b.Group {
			return a.Group < b.Group
		}
		return out[i].Version > out[j].Version
	})
	return slices.Compact(out)
}

func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

func apiGroup(s *api.Kinds, group string) metav1.APIGroup {
	g := metav1.APIGroup{Name: group}
	for _, gv := range groupVersions(s) {
		if gv.Group == group {
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
		}
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

// resourceList is the plain discovery of one group and version. Drain looks here for pods/eviction (N-11.7).
func resourceList(s *api.Kinds, gv schema.GroupVersion) metav1.APIResourceList {
	out := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
		APIResources: []metav1.APIResource{},
	}
	for _, k := range s.All() {
		if k.GVK().GroupVersion() != gv {
			continue
		}
		out.APIResources = append(out.APIResources, metav1.APIResource{
			Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Name,
			Verbs: verbsOf(k, ""), ShortNames: k.Short, Categories: k.Categories,
		})
		for _, sub := range subsOf(k) {
			r := metav1.APIResource{Name: k.Resource + "/" + sub, Namespaced: k.Namespaced, Kind: k.Name, Verbs: verbsOf(k, sub)}
			if sk := k.As(sub).GVK(); sk != k.GVK() {
				r.Group, r.Version, r.Kind = sk.Group, sk.Version, sk.Kind
			}
			out.APIResources = append(out.APIResources, r)
		}
	}
	for _, v := range reviews {
		if v.gvk.GroupVersion() == gv {
			out.APIResources = append(out.APIResources, metav1.APIResource{
				Name: v.resource(), SingularName: strings.ToLower(v.gvk.Kind), Namespaced: v.namespaced, Kind: v.gvk.Kind,
				Verbs: metav1.Verbs{"create"},
			})
		}
	}
	return out
}

// aggregate is the discovery of everything at once, for the core group and for the others.
func aggregate(s *api.Kinds) (core, groups discoveryv2.APIGroupDiscoveryList) {
	head := metav1.TypeMeta{Kind: aggregatedKind, APIVersion: aggregatedGroup + "/" + aggregatedVersion}
	core.TypeMeta, groups.TypeMeta = head, head
	for _, gv := range groupVersions(s) {
		v := discoveryv2.APIVersionDiscovery{
			Version: gv.Version, Freshness: discoveryv2.DiscoveryFreshnessCurrent, Resources: aggregateResources(s, gv),
		}
		in := &groups
		if gv.Group == "" {
			in = &core
		}
		if n := len(in.Items); n > 0 && in.Items[n-1].Name == gv.Group { // another version of the same group
			in.Items[n-1].Versions = append(in.Items[n-1].Versions, v)
			continue
		}
		in.Items = append(in.Items, discoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []discoveryv2.APIVersionDiscovery{v}})
	}
	return core, groups
}

func aggregateResources(s *api.Kinds, gv schema.GroupVersion) []discoveryv2.APIResourceDiscovery {
	var out []discoveryv2.APIResourceDiscovery
	wire := func(gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
		return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
	}
	for _, k := range s.All() {
		if k.GVK().GroupVersion() != gv {
			continue
		}
		r := discoveryv2.APIResourceDiscovery{
			Resource: k.Resource, ResponseKind: wire(k.GVK()), Scope: discoveryv2.ScopeCluster, SingularResource: k.Singular,
			Verbs: verbsOf(k, ""), ShortNames: k.Short, Categories: k.Categories,
		}
		if k.Namespaced {
			r.Scope = discoveryv2.ScopeNamespace
		}
		for _, sub := range subsOf(k) {
			r.Subresources = append(r.Subresources, discoveryv2.APISubresourceDiscovery{
				Subresource: sub, ResponseKind: wire(k.As(sub).GVK()), Verbs: verbsOf(k, sub),
			})
		}
		out = append(out, r)
	}
	for _, v := range reviews {
		if v.gvk.GroupVersion() == gv {
			r := discoveryv2.APIResourceDiscovery{
				Resource: v.resource(), ResponseKind: wire(v.gvk), Scope: discoveryv2.ScopeCluster,
				SingularResource: strings.ToLower(v.gvk.Kind), Verbs: []string{"create"},
			}
			if v.namespaced {
				r.Scope = discoveryv2.ScopeNamespace
			}
			out = append(out, r)
		}
	}
	return out
}
