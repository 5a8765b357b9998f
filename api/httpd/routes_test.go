package httpd

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"ledge/api/kinds"
)

// bare is a handler that can find routes and no more.
func bare(t testing.TB) *handler {
	t.Helper()
	docs := sync.OnceValues(func() (map[string]*document, error) { return documents(kinds.All) })
	if _, err := docs(); err != nil {
		t.Fatal(err)
	}
	return &handler{about: &about{docs: docs}, kinds: kinds.All}
}

// routeOf finds the route of a request line.
func routeOf(h *handler, method, target string) (*request, error) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	hr := httptest.NewRequest(method, "/", nil)
	hr.URL = u
	r := &request{Request: hr, query: u.Query()}
	return r, h.find(r)
}

// routeCases are request lines and what they mean: a verb and a target, or a refusal.
var routeCases = []struct{ line, want string }{
	{"GET /api/v1/pods", "list pods"},
	{"GET /api/v1/pods?watch=1", "watch pods"},
	{"GET /api/v1/pods?watch=true", "watch pods"},
	{"GET /api/v1/pods?watch=false", "list pods"},
	{"GET /api/v1/pods?watch=perhaps", "400"},
	{"GET /api/v1/pods/", "list pods"},
	{"POST /api/v1/pods", "405 GET"},
	{"DELETE /api/v1/pods", "405 GET"},
	{"GET /api/v1/namespaces/x/pods", "list pods in x"},
	{"GET /api/v1/namespaces/x/pods?watch", "watch pods in x"},
	{"POST /api/v1/namespaces/x/pods", "create pods in x"},
	{"DELETE /api/v1/namespaces/x/pods", "deletecollection pods in x"},
	{"PUT /api/v1/namespaces/x/pods", "405 DELETE, GET, POST"},
	{"GET /api/v1/namespaces/x/pods/p", "get pods p in x"},
	{"GET /api/v1/namespaces/x/pods/p?watch=true", "get pods p in x"},
	{"PUT /api/v1/namespaces/x/pods/p", "update pods p in x"},
	{"PATCH /api/v1/namespaces/x/pods/p", "patch pods p in x"},
	{"DELETE /api/v1/namespaces/x/pods/p", "delete pods p in x"},
	{"POST /api/v1/namespaces/x/pods/p", "405 DELETE, GET, PATCH, PUT"},
	{"HEAD /api/v1/namespaces/x/pods/p", "405 DELETE, GET, PATCH, PUT"},
	{"GET /api/v1/pods/p", "404"},
	{"GET /api/v1/namespaces/x/pods/p/log", "get pods/log p in x"},
	{"POST /api/v1/namespaces/x/pods/p/log", "405 GET"},
	{"POST /api/v1/namespaces/x/pods/p/binding", "create pods/binding p in x"},
	{"POST /api/v1/namespaces/x/pods/p/eviction", "create pods/eviction p in x"},
	{"PATCH /api/v1/namespaces/x/pods/p/status", "patch pods/status p in x"},
	{"GET /api/v1/namespaces/x/pods/p/exec", "create pods/exec p in x"},
	{"POST /api/v1/namespaces/x/pods/p/portforward", "create pods/portforward p in x"},
	{"GET /api/v1/namespaces/x/pods/p/attach", "create pods/attach p in x"},
	{"POST /api/v1/namespaces/x/pods/p/attach", "create pods/attach p in x"},
	{"GET /api/v1/namespaces/x/pods/p/proxy", "get pods/proxy p in x"},
	{"HEAD /api/v1/namespaces/x/pods/p/proxy/a?watch=maybe", "get pods/proxy p in x"},
	{"POST /api/v1/namespaces/x/pods/https:p:8443/proxy/a/b/c/d/e/f/g%2Fh//i%20", "create pods/proxy https:p:8443 in x"},
	{"DELETE /api/v1/namespaces/x/pods/p/proxy/", "delete pods/proxy p in x"},
	{"TRACE /api/v1/namespaces/x/pods/p/proxy/a", "405 DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"},
	{"GET /api/v1/namespaces/x/pods/p/proxy/a/../../../q", "404"},
	{"GET /api/v1/namespaces/x/pods/p/proxy/%2e%2e/q", "404"},
	{"GET /api/v1/namespaces/x/configmaps/p/proxy/a", "404"},
	{"GET /api/v1/namespaces", "list namespaces"},
	{"GET /api/v1/namespaces/x", "get namespaces x"},
	{"GET /api/v1/namespaces/x/status", "get namespaces/status x"},
	{"PUT /api/v1/namespaces/x/finalize", "update namespaces/finalize x"}, {"PUT /api/v1/nodes/x/finalize", "404"},
	{"GET /api/v1/namespaces/x/nodes", "404"},
	{"GET /api/v1/nodes/n", "get nodes n"},
	{"PATCH /api/v1/nodes/n/status", "patch nodes/status n"},
	{"GET /api/v1/nodes/n/proxy", "get nodes/proxy n"},
	{"GET /api/v1/nodes/n/proxy/stats/summary", "get nodes/proxy n"},
	{"POST /api/v1/nodes/n/proxy/run", "405 GET"},
	{"GET /api/v1/nodes/n/proxy/../../x", "404"},
	{"GET /api/v1/nodes/n/status/more", "404"},
	{"GET /apis/metrics.k8s.io/v1beta1/nodes", "list nodes"},
	{"GET /apis/metrics.k8s.io/v1beta1/pods", "list pods"},
	{"GET /apis/metrics.k8s.io/v1beta1/pods?watch=1", "405 GET"},
	{"GET /apis/metrics.k8s.io/v1beta1/namespaces/x/pods/p", "get pods p in x"},
	{"DELETE /apis/metrics.k8s.io/v1beta1/namespaces/x/pods/p", "405 GET"},
	{"GET /api/v1/nodes/n/log", "404"},
	{"PUT /api/v1/namespaces/x/configmaps/c/status", "404"},
	{"GET /apis/coordination.k8s.io/v1/namespaces/x/leases/l", "get leases l in x"},
	{"GET /apis/coordination.k8s.io/v1/leases", "list leases"},
	{"GET /apis/scheduling.k8s.io/v1/priorityclasses/p", "get priorityclasses p"},
	{"GET /apis/coordination.k8s.io/v1/pods", "404"},
	{"GET /api/v2/pods", "404"},
	{"GET /apis/apps/v1/widgets", "404"},
	{"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "create"},
	{"GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "405 POST"},
	{"GET /version", "get"},
	{"POST /version", "405 GET"},
	{"GET /healthz", "get"}, {"GET /readyz?verbose", "get"}, {"GET /livez", "get"},
	{"GET /api", "get"}, {"GET /api/", "get"}, {"GET /apis", "get"}, {"GET /api/v1", "get"},
	{"GET /apis/coordination.k8s.io", "get"}, {"GET /apis/coordination.k8s.io/v1", "get"},
	{"GET /apis/none", "404"},
	{"GET /api%3Faggregated", "404"},
	{"GET /openapi/v3", "get"}, {"GET /openapi/v3/api/v1?hash=0", "get"}, {"GET /openapi/v2", "get"},
	{"DELETE /api/v1", "405 GET"},
	{"GET /", "404"}, {"GET /metrics", "get"}, {"GET /metrics/resource", "get"}, {"POST /metrics", "405 GET"}, {"GET /metrics/x", "404"},
	{"GET /api/v1/watch/pods", "404"},
	// What would mean something else further down.
	{"GET //api/v1/pods", "404"},
	{"GET /api/v1//pods", "404"},
	{"GET /api/v1/namespaces/x/pods/..", "404"},
	{"GET /api/v1/namespaces/x/pods/.", "404"},
	{"GET /api/v1/namespaces/../pods/p", "404"},
	{"GET /api/v1/namespaces/x/pods/a%2Fb", "404"},
	{"GET /api/v1/namespaces/x/pods/%2e%2e", "404"},
	{"GET /api/v1/namespaces/x%2Fy/pods", "404"},
	{"GET /api/v1/namespaces/x/pods/a%00b", "404"},
	{"GET /api/v1/namespaces/x/pods/a%25b", "404"},
	{"GET /api/v1/namespaces/x/pods/a%20b", "404"},
	{"GET /api/v1/namespaces/x/pods/a%5Cb", "404"},
	{"GET /api/v1/namespaces/x/pods/" + strings.Repeat("a", 254), "404"},
	{"GET /api/v1/namespaces/x/pods/" + strings.Repeat("a", 253), "get pods " + strings.Repeat("a", 253) + " in x"},
}

func TestRoutes(t *testing.T) {
	h := bare(t)
	for _, tc := range routeCases {
		method, target, _ := strings.Cut(tc.line, " ")
		r, err := routeOf(h, method, target)
		if got := describe(r, err); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.line, got, tc.want)
		}
	}
}

func describe(r *request, err error) string {
	if err != nil {
		s := statusOf(err)
		if s.Code == http.StatusMethodNotAllowed {
			return "405 " + err.(*methodError).allow
		}
		return map[int32]string{400: "400", 404: "404"}[s.Code]
	}
	out := r.route.verb
	if r.kind != nil {
		out += " " + r.kind.Resource
		if r.sub != "" {
			out += "/" + r.sub
		}
		if r.name != "" {
			out += " " + r.name
		}
		if r.namespace != "" {
			out += " in " + r.namespace
		}
	}
	return out
}

// FuzzPath looks for a path that is understood as an object other than the one it spells.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"/api/v1/namespaces/x/pods/p/log", "/api/v1/nodes/n", "/apis/coordination.k8s.io/v1/leases", "/api/v1/namespaces/x",
		"/api/v1/namespaces/x/pods/a%2Fb", "//api/v1/./pods/..", "/api/v1/namespaces/namespaces/namespaces", "/%61pi/v1/pods",
		"/api/v1/namespaces/x/pods/p?watch=1&fieldSelector=a%3Db", "/api/v1/namespaces/pods/pods/pods/status",
	} {
		f.Add("GET", seed)
	}
	h := bare(f)
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		r := &request{Request: &http.Request{Method: method, URL: u}, query: u.Query()}
		if h.find(r) != nil {
			return
		}
		if r.route == nil || r.route.method != method {
			t.Fatalf("%s %q: route %+v", method, target, r.route)
		}
		if r.kind == nil {
			return
		}
		want := "/api/" + r.kind.Version
		if r.kind.Group != "" {
			want = "/apis/" + r.kind.Group + "/" + r.kind.Version
		}
		for _, part := range []string{r.namespace, r.name, r.sub} {
			if strings.ContainsAny(part, "/%\\\x00 ") || part == "." || part == ".." {
				t.Fatalf("%q: segment %q", target, part)
			}
		}
		if r.namespace != "" {
			want += "/namespaces/" + r.namespace
		}
		want += "/" + r.kind.Resource
		if r.name != "" {
			want += "/" + r.name
		}
		if r.sub != "" {
			want += "/" + r.sub
		}
		if got := strings.TrimSuffix(u.Path, "/"); got != want {
			t.Fatalf("%q means %q", got, want)
		}
		if r.kind.Namespaced && r.namespace == "" && r.shape != everywhere {
			t.Fatalf("%q: %s without a namespace", target, r.kind)
		}
		if !r.kind.Namespaced && r.namespace != "" {
			t.Fatalf("%q: %s in a namespace", target, r.kind)
		}
	})
}

// Every kind answers all that discovery promises of it, and nothing else.
func TestRoutesAndDiscoveryAgree(t *testing.T) {
	h := bare(t)
	methods := map[string]string{"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH",
		"delete": "DELETE", "deletecollection": "DELETE"}
	for _, k := range kinds.All.Kept {
		base := groupPath(k.GVK().GroupVersion())
		if k.Namespaced {
			base += "/namespaces/x"
		}
		for _, sub := range append(subsOf(k), "") {
			for _, verb := range verbsOf(k, sub) {
				path := base + "/" + k.Resource
				if sub != "" || verb != "list" && verb != "watch" && verb != "create" && verb != "deletecollection" {
					path += "/o"
				}
				if sub != "" {
					path += "/" + sub
				}
				if verb == "watch" {
					path += "?watch=1"
				}
				r, err := routeOf(h, methods[verb], path)
				if err != nil || r.route.verb != verb || r.kind != k || r.sub != sub {
					t.Errorf("%s %s: %v, want verb %s of %s %s", methods[verb], path, describe(r, err), verb, k, sub)
				}
			}
		}
	}
}
