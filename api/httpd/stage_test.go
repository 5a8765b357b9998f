package httpd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/pki"
	"ledge/storage"
)

// caller is one subject: how it shows who it is.
type caller struct {
	name   string
	column string // of the table
	client *http.Client
	token  string
}

// do sends a request, and says whether authorisation let it through. Nothing that is sent is good for anything: what is
// let through fails on its body or on its name, or is a read.
func (c *caller) do(t *testing.T, method, url, body string) (allowed bool) {
	t.Helper()
	for {
		allowed, early := c.try(t, method, url, body)
		if !early {
			return allowed
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// try is do; early says that the caller was asked to slow down, as one is who asks for all that there is at once.
func (c *caller) try(t *testing.T, method, url, body string) (allowed, early bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // ends a watch
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case method == "PATCH":
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case body != "":
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", c.name, method, url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK && strings.Contains(url, "watch=true") {
		return true, false
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", c.name, method, url, err)
	}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests && strings.Contains(string(data), "please slow down"):
		return false, true
	case resp.StatusCode == http.StatusUnauthorized && c.column == "nobody":
		return false, false
	case resp.StatusCode == http.StatusForbidden && cannot.Match(data):
		return false, false
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusMethodNotAllowed, resp.StatusCode == http.StatusForbidden,
		resp.StatusCode == http.StatusTooManyRequests, method != "GET" && resp.StatusCode < 300:
		t.Errorf("%s: %s %s: %d %.300s", c.name, method, url, resp.StatusCode, data)
	}
	return true, false
}

var cannot = regexp.MustCompile(`User \\"[^"]+\\" cannot [a-z]+ (resource|path) `)

// discoveredResource is one line of discovery.
type discoveredResource struct {
	metav1.APIResource
	gv string
}

func (r discoveredResource) String() string {
	if group, _, found := strings.Cut(r.gv, "/"); found {
		name, sub, _ := strings.Cut(r.Name, "/")
		return strings.TrimSuffix(name+"."+group+"/"+sub, "/")
	}
	return r.Name
}

// path of an object or, without a name, of the collection.
func (r discoveredResource) path(namespace, name string) string {
	base := "/apis/"
	if r.gv == "v1" {
		base = "/api/"
	}
	base += r.gv
	if r.Namespaced && namespace != "" {
		base += "/namespaces/" + namespace
	}
	plain, sub, _ := strings.Cut(r.Name, "/")
	base += "/" + plain
	if name != "" {
		base += "/" + name
	}
	if sub != "" {
		base += "/" + sub
	}
	return base
}

// ask puts a verb on a resource as a request, and says whether it may.
func (c *caller) ask(t *testing.T, base string, r discoveredResource, verb, namespace string) bool {
	t.Helper()
	name, query := "a", ""
	if r.Name == "namespaces" || strings.HasPrefix(r.Name, "namespaces/") {
		name = namespace
	}
	if c.column == "node" {
		query = "&fieldSelector=metadata.name=a"
		if r.Name == "pods" {
			query = "&fieldSelector=spec.nodeName=a"
		}
		if r.Name == "leases" {
			namespace = "kube-node-lease"
		}
	}
	switch verb {
	case "get":
		return c.do(t, "GET", base+r.path(namespace, name), "")
	case "list":
		return c.do(t, "GET", base+r.path(namespace, "")+"?limit=1"+query, "")
	case "watch":
		return c.do(t, "GET", base+r.path(namespace, "")+"?watch=true"+query, "")
	case "deletecollection":
		return c.do(t, "DELETE", base+r.path(namespace, "")+"?dryRun=All"+query, "x")
	case "update":
		return c.do(t, "PUT", base+r.path(namespace, name), "x")
	case "patch":
		return c.do(t, "PATCH", base+r.path(namespace, name), "x")
	case "delete":
		return c.do(t, "DELETE", base+r.path(namespace, name)+"?dryRun=All", "x")
	case "create":
		if strings.Contains(r.Name, "/") {
			return c.do(t, "POST", base+r.path(namespace, name), "x")
		}
		return c.do(t, "POST", base+r.path(namespace, ""), "x")
	}
	t.Fatalf("%s has the verb %s, which this test does not know", r, verb)
	return false
}

// stage is a server with certificates and tokens.
type stage struct {
	t         *testing.T
	base      string
	store     *local.Client
	authority *pki.Authority
	pool      *x509.CertPool
	callers   []*caller
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	db, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	authority, err := pki.Open(pki.Config{Dir: filepath.Join(dir, "pki")})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := authority.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	store, err := local.New(local.Config{Store: db, Tokens: &local.Tokens{Keys: keys, RootCA: authority.CA()}})
	if err != nil {
		t.Fatal(err)
	}
	board := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h, err := httpd.New(httpd.Config{Client: store, Authenticate: store.Authenticate, Board: board})
	if err != nil {
		t.Fatal(err)
	}
	conf, err := authority.ServerTLS(nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	srv := &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l.WithTokens()}}
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s := &stage{t: t, base: "https://" + l.Addr().String(), store: store, authority: authority, pool: x509.NewCertPool()}
	s.pool.AppendCertsFromPEM(authority.CA())
	return s
}

// add puts somebody on the stage who shows a token, or a certificate for a user, or nothing.
func (s *stage) add(name, column, token, user string, groups ...string) *caller {
	s.t.Helper()
	conf := &tls.Config{RootCAs: s.pool, MinVersion: tls.VersionTLS13}
	if user != "" {
		cert, err := s.authority.Client(user, groups)
		if err != nil {
			s.t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	tr := &http.Transport{TLSClientConfig: conf}
	s.t.Cleanup(tr.CloseIdleConnections)
	c := &caller{name: name, column: column, token: token, client: &http.Client{Transport: tr}}
	s.callers = append(s.callers, c)
	return c
}

// tokenOf is a token of a service account.
func (s *stage) tokenOf(namespace, account string) string {
	s.t.Helper()
	obj, err := s.store.Create(s.t.Context(), api.ServiceAccounts, &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}, api.WriteOptions{Subresource: "token"})
	if err != nil {
		s.t.Fatal(err)
	}
	return obj.(*authenticationv1.TokenRequest).Status.Token
}

// make creates an object as somebody.
func (s *stage) make(c *caller, path, body string) {
	s.t.Helper()
	resp, err := c.client.Post(s.base+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusCreated {
		s.t.Fatalf("%s: %d %s %v", path, resp.StatusCode, data, err)
	}
}

func bindingJSON(role, subject string) string {
	return fmt.Sprintf(`{"metadata":{"name":"to-%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[%s]}`,
		role, role, subject)
}

// ownRoles are a Role and a ClusterRole of one's own. What is below /ledge/ is no part that a rule can name.
const (
	ownRole = `{"metadata":{"name":"worker"},"rules":[{"verbs":["get","list","watch"],"apiGroups":[""],"resources":["configmaps"]},` +
		`{"verbs":["create"],"apiGroups":[""],"resources":["pods/exec"]},{"verbs":["*"],"apiGroups":["coordination.k8s.io"],"resources":["leases"]},` +
		`{"verbs":["get"],"apiGroups":[""],"resources":["*/scale"]}]}`
	ownClusterRole = `{"metadata":{"name":"watcher"},"rules":[{"verbs":["get","list","watch"],"apiGroups":[""],"resources":["nodes","pods/log"]},` +
		`{"verbs":["get","post"],"nonResourceURLs":["/metrics","/ledge/*","/led*"]}]}`
)

// theatre is a server with everybody who stands in the table.
func theatre(t *testing.T) (base string, callers []*caller) {
	t.Helper()
	s := newStage(t)
	root := s.add("member of system:masters", "has", "", "root", api.AdminGroup)
	for _, ns := range []string{"team", "other"} {
		s.make(root, "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
		s.make(root, "/api/v1/namespaces/"+ns+"/serviceaccounts", `{"metadata":{"name":"robot"}}`)
	}
	// What is the node's own: a pod on it and what that refers to.
	s.make(root, "/api/v1/namespaces/team/pods",
		`{"metadata":{"name":"a"},"spec":{"nodeName":"a","containers":[{"name":"c","image":"x","envFrom":[`+
			`{"configMapRef":{"name":"a"}},{"secretRef":{"name":"a"}}]}]}}`)
	s.make(root, "/api/v1/namespaces/team/persistentvolumeclaims", `{"metadata":{"name":"a","annotations":{"`+api.SelectedNode+`":"a"}},"spec":{`+
		`"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	s.make(root, "/api/v1/persistentvolumes", `{"metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},`+
		`"local":{"path":"/x"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname",`+
		`"operator":"In","values":["a"]}]}]}}}}`)
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	s.make(root, rbac+"/clusterrolebindings", bindingJSON("cluster-admin", `{"kind":"User","name":"chief"}`))
	s.make(root, rbac+"/namespaces/team/rolebindings", bindingJSON("admin", `{"kind":"User","name":"anna"}`))
	s.make(root, rbac+"/namespaces/team/rolebindings", bindingJSON("edit", `{"kind":"Group","name":"editors"}`))
	s.make(root, rbac+"/namespaces/team/rolebindings", bindingJSON("view", `{"kind":"ServiceAccount","namespace":"team","name":"robot"}`))
	s.make(root, rbac+"/namespaces/other/rolebindings", bindingJSON("admin", `{"kind":"ServiceAccount","namespace":"other","name":"robot"}`))
	s.make(root, rbac+"/namespaces/team/roles", ownRole)
	s.make(root, rbac+"/namespaces/team/rolebindings",
		strings.Replace(bindingJSON("worker", `{"kind":"ServiceAccount","name":"worker"}`), "ClusterRole", "Role", 1))
	s.make(root, "/api/v1/namespaces/team/serviceaccounts", `{"metadata":{"name":"worker"}}`)
	s.make(root, rbac+"/clusterroles", ownClusterRole)
	s.make(root, rbac+"/clusterrolebindings", bindingJSON("watcher", `{"kind":"User","name":"will"}`))
	s.add("service account bound to a Role", "role", s.tokenOf("team", "worker"), "")
	s.add("user bound to a ClusterRole of our own", "wide", "", "will")
	s.add("user bound to cluster-admin", "has", "", "chief")
	s.add("user bound to admin", "admin", "", "anna")
	s.add("group bound to edit", "edit", "", "eve", "editors")
	s.add("service account bound to view", "view", s.tokenOf("team", "robot"), "")
	s.add("node", "node", "", "system:node:a", "system:nodes")
	s.add("service account without a binding", "anybody", s.tokenOf("team", "default"), "")
	s.add("service account bound in another namespace", "anybody", s.tokenOf("other", "robot"), "")
	s.add("nobody", "nobody", "", "")
	return s.base, s.callers
}

// discovered is every resource that the API says it has.
func discovered(t *testing.T, base string, root *caller) []discoveredResource {
	t.Helper()
	get := func(path string, into any) {
		t.Helper()
		resp, err := root.client.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var groups metav1.APIGroupList
	get("/apis", &groups)
	paths := []string{"/api/v1"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	var out []discoveredResource
	for _, p := range paths {
		var list metav1.APIResourceList
		get(p, &list)
		for _, r := range list.APIResources {
			out = append(out, discoveredResource{r, list.GroupVersion})
		}
	}
	return out
}

// lines reads a table: what stands in the first column, and by name what stands in the others.
func lines(table string) map[string]map[string]string {
	out := map[string]map[string]string{}
	var head []string
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		f := strings.Fields(line)
		if head == nil {
			head = f
			continue
		}
		row := map[string]string{}
		for i, cell := range f[1:] {
			row[head[i+1]] = strings.TrimPrefix(cell, "-")
		}
		out[f[0]] = row
	}
	return out
}
