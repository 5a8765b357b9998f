package httpd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/kinds"
)

// The Accept of kubectl's discovery.
const discoveryAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// N-11.13, N-11.14: discovery in both forms.
func TestDiscovery(t *testing.T) {
	f := serve(t, httpd.Config{})
	for path, name := range map[string]string{
		"/api": "api", "/apis": "apis", "/api/v1": "api-v1", "/apis/coordination.k8s.io": "apis-coordination",
		"/apis/scheduling.k8s.io/v1": "apis-scheduling-v1", "/apis/authorization.k8s.io/v1": "apis-authorization-v1",
	} {
		a := f.must(200, "GET", path, "", "Accept", "application/json, */*")
		golden(t, "discovery-"+name+".json", []byte(a.body))
		if ct := a.head.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s: Content-Type %q", path, ct)
		}
	}
	for _, path := range []string{"/api", "/apis"} {
		a := f.must(200, "GET", path, "", "Accept", discoveryAccept)
		golden(t, "discovery-aggregated"+strings.ReplaceAll(path, "/", "-")+".json", []byte(a.body))
		if ct := a.head.Get("Content-Type"); ct != "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" {
			t.Errorf("%s: Content-Type %q", path, ct)
		}
		if a.head.Get("Vary") != "Accept" {
			t.Errorf("%s: a cache would mix up the two forms", path)
		}
		plain := f.must(200, "GET", path, "")
		tag := a.head.Get("ETag")
		if tag == "" || tag == plain.head.Get("ETag") {
			t.Errorf("%s: ETag %q of both forms", path, tag)
		}
		if a := f.must(304, "GET", path, "", "Accept", discoveryAccept, "If-None-Match", tag); a.body != "" {
			t.Errorf("%s: 304 with a body", path)
		}
		f.must(200, "GET", path, "", "If-None-Match", tag) // the other form is another document
		f.must(304, "GET", path, "", "If-None-Match", `"x", W/`+plain.head.Get("ETag"))
	}
}

// N-11.15: the index, and in the documents what kubectl looks for.
func TestOpenAPI(t *testing.T) {
	f := serve(t, httpd.Config{})
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	f.must(200, "GET", "/openapi/v3", "").into(t, &index)
	if len(index.Paths) != 21 {
		t.Errorf("index %v", index.Paths)
	}
	type op struct {
		GVK         map[string]string `json:"x-kubernetes-group-version-kind"`
		Parameters  []struct{ Name, In string }
		RequestBody any
	}
	found := map[string]bool{}
	for name, at := range index.Paths {
		a := f.must(200, "GET", at.ServerRelativeURL, "")
		if cc := a.head.Get("Cache-Control"); cc != "public, immutable" {
			t.Errorf("%s: Cache-Control %q", name, cc)
		}
		var doc struct {
			Paths map[string]struct{ Patch *op }
		}
		a.into(t, &doc)
		for path, item := range doc.Paths {
			if item.Patch == nil {
				continue
			}
			if body := fmt.Sprint(item.Patch.RequestBody); !strings.Contains(body, "application/strategic-merge-patch+json") {
				t.Errorf("%s: the formats of patches: %s", path, body)
			}
			for _, p := range item.Patch.Parameters {
				if p.Name == "fieldValidation" && p.In == "query" {
					found[item.Patch.GVK["group"]+"/"+item.Patch.GVK["version"]+" "+item.Patch.GVK["kind"]] = true
				}
			}
		}
	}
	for _, k := range slices.Concat(kinds.All.Kept, kinds.All.Later, kinds.All.Absent) {
		if !found[k.Group+"/"+k.Version+" "+k.Name] {
			t.Errorf("%s: no PATCH with fieldValidation", k.Name)
		}
	}
	stale := f.must(200, "GET", "/openapi/v3/api/v1?hash=old", "")
	if cc := stale.head.Get("Cache-Control"); strings.Contains(cc, "immutable") {
		t.Errorf("a stale hash is cached for ever: %q", cc)
	}
	for _, want := range []string{`"io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics":{`,
		`"io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetricsList":{`} {
		if w := f.must(200, "GET", "/openapi/v3/apis/metrics.k8s.io/v1beta1", ""); !strings.Contains(w.body, want) {
			t.Errorf("no %s in the schemas of what is measured", want)
		}
	}
	golden(t, "openapi-scheduling-v1.json", []byte(f.must(200, "GET", "/openapi/v3/apis/scheduling.k8s.io/v1", "").body))
}

func TestVersion(t *testing.T) {
	f := serve(t, httpd.Config{Version: httpd.Version{Git: "v1.37.0+ledge.0.1.0", Commit: "abc"}})
	var v map[string]string
	f.must(200, "GET", "/version", "").into(t, &v)
	if v["gitVersion"] != "v1.37.0+ledge.0.1.0" || v["major"] != "1" || v["minor"] != "37" || v["gitCommit"] != "abc" || v["platform"] == "" {
		t.Errorf("N-11.12: %v", v)
	}
	if _, err := httpd.New(httpd.Config{Client: f.store, Version: httpd.Version{Git: "new"}}); err == nil {
		t.Error("a version that kubectl cannot compare was taken")
	}
}

// Clients before 1.25 know OpenAPI in protobuf by a name that is no media type; it must not be taken for no wish at all,
// nor the one form for the other in a cache.
func TestOpenAPIForms(t *testing.T) {
	f := serve(t, httpd.Config{})
	const new, old = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	tags := map[string]string{}
	for accept, want := range map[string]string{old: new, new: new, new + ",application/json": new, "application/json": "application/json",
		"application/json," + old: "application/json", "": "application/json"} {
		a := f.must(200, "GET", "/openapi/v2", "", "Accept", accept)
		media := a.head.Get("Content-Type")
		if media != want || strings.HasPrefix(a.body, "{") != (want == "application/json") || a.head.Get("Vary") != "Accept" {
			t.Errorf("Accept %q: %s %.20q", accept, media, a.body)
		}
		if tag := a.head.Get("Etag"); tags[media] == "" {
			tags[media] = tag
		} else if tags[media] != tag {
			t.Errorf("%s has two tags", media)
		}
	}
	if tags[new] == tags["application/json"] {
		t.Errorf("one tag for both forms: %s", tags[new])
	}
	f.must(304, "GET", "/openapi/v2", "", "Accept", old, "If-None-Match", tags[new])
	f.must(200, "GET", "/openapi/v2", "", "Accept", old, "If-None-Match", tags["application/json"])
}

// N-11.17.
func TestHealth(t *testing.T) {
	var broken error
	f := serve(t, httpd.Config{Checks: []httpd.Check{{Name: "store", Run: func(context.Context) error { return broken }}}})
	for _, path := range []string{"/healthz", "/readyz", "/livez"} {
		if a := f.must(200, "GET", path, ""); a.body != "ok" || !strings.HasPrefix(a.head.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %q", path, a.body)
		}
	}
	if a := f.must(200, "GET", "/readyz?verbose", ""); a.body != "[+]ping ok\n[+]store ok\nreadyz check passed\n" {
		t.Errorf("%q", a.body)
	}
	broken = errors.New("disk full")
	if a := f.must(500, "GET", "/readyz", ""); !strings.Contains(a.body, "[-]store failed: disk full") {
		t.Errorf("%q", a.body)
	}
	f.must(500, "GET", "/healthz", "")
	f.must(200, "GET", "/livez", "")
}

// N-11.16: what kubectl auth asks.
func TestReviews(t *testing.T) {
	f := serve(t, httpd.Config{})
	const base = "/apis/authorization.k8s.io/v1/"
	ask := func(u api.User, spec string) authorizationv1.SubjectAccessReviewStatus {
		t.Helper()
		var v authorizationv1.SelfSubjectAccessReview
		a := f.do(u, "POST", base+"selfsubjectaccessreviews",
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":`+spec+`}`)
		if a.code != 201 {
			t.Fatalf("%d %s", a.code, a.body)
		}
		a.into(t, &v)
		if v.Kind != "SelfSubjectAccessReview" {
			t.Errorf("kind %q", v.Kind)
		}
		return v.Status
	}
	for _, tc := range []struct {
		user api.User
		spec string
		want bool
	}{
		{admin, `{"resourceAttributes":{"verb":"delete","resource":"nodes","name":"x"}}`, true},
		{admin, `{"resourceAttributes":{"verb":"*","resource":"*"}}`, true},
		{nodeA, `{"resourceAttributes":{"verb":"update","resource":"nodes","subresource":"status","name":"a"}}`, true},
		{nodeA, `{"resourceAttributes":{"verb":"update","resource":"nodes","subresource":"status","name":"b"}}`, false},
		{nodeA, `{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"rawSelector":"spec.nodeName=a"}}}`, true},
		{bob, `{"resourceAttributes":{"verb":"get","resource":"pods"}}`, false},
		{bob, `{"resourceAttributes":{"verb":"create","group":"authorization.k8s.io","resource":"selfsubjectaccessreviews"}}`, true},
		{bob, `{"nonResourceAttributes":{"verb":"get","path":"/version"}}`, true},
		{bob, `{"nonResourceAttributes":{"verb":"post","path":"/version"}}`, false},
	} {
		s := ask(tc.user, tc.spec)
		if s.Allowed != tc.want || !tc.want && s.Reason == "" {
			t.Errorf("%s %s: %+v, want %v", tc.user.Name, tc.spec, s, tc.want)
		}
	}
	for _, spec := range []string{`{}`, `{"resourceAttributes":{"verb":"get"}}`, `{"resourceAttributes":{},"nonResourceAttributes":{}}`} {
		f.must(400, "POST", base+"selfsubjectaccessreviews", `{"spec":`+spec+`}`)
	}
	var rules authorizationv1.SelfSubjectRulesReview
	f.must(201, "POST", base+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`).into(t, &rules)
	if r := rules.Status.ResourceRules; r[len(r)-1].Verbs[0] != "*" {
		t.Errorf("rules of the admin %+v", rules.Status)
	}
	rules = authorizationv1.SelfSubjectRulesReview{}
	f.do(nodeA, "POST", base+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`).into(t, &rules)
	if r := rules.Status.ResourceRules; !slices.ContainsFunc(r, func(r authorizationv1.ResourceRule) bool {
		return slices.Equal(r.ResourceNames, []string{"a"}) && slices.Equal(r.Resources, []string{"nodes/status"})
	}) || slices.ContainsFunc(r, func(r authorizationv1.ResourceRule) bool { return slices.Contains(r.Verbs, "*") }) {
		t.Errorf("rules of a node %+v", rules.Status)
	}
	var me authenticationv1.SelfSubjectReview
	f.do(nodeA, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`).into(t, &me)
	if me.Status.UserInfo.Username != "system:node:a" || me.Status.UserInfo.Groups[0] != "system:nodes" {
		t.Errorf("whoami %+v", me.Status)
	}
}
