package httpd_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"ledge/api"
	"ledge/api/httpd"
)

const whoPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// TestImpersonation: who may act as somebody has that one's name, groups and rights, and no more.
func TestImpersonation(t *testing.T) {
	log := &lockedBuffer{}
	f := serve(t, httpd.Config{Audit: log})
	as := func(pairs ...string) (head []string) {
		for i := 0; i < len(pairs); i += 2 {
			head = append(head, "Impersonate-"+pairs[i], pairs[i+1])
		}
		return head
	}
	for _, tc := range []struct {
		head   []string
		name   string
		groups string
	}{
		{nil, "admin", "system:masters system:authenticated"},
		{as("User", "bob"), "bob", "system:authenticated"},
		{as("User", "bob", "Group", "ops"), "bob", "ops system:authenticated"},
		{as("User", "bob", "Group", "system:masters", "Uid", "7", "Extra-Acme.com%2fscope", "a"), "bob", "system:masters system:authenticated"},
		{as("User", "system:serviceaccount:default:robot"), "system:serviceaccount:default:robot",
			"system:serviceaccounts system:serviceaccounts:default system:authenticated"},
		{as("User", "system:serviceaccount:a:b:c"), "system:serviceaccount:a:b:c", "system:authenticated"},
		{as("User", "system:anonymous", "Group", "system:unauthenticated"), "system:anonymous", "system:unauthenticated"},
	} {
		a := f.do(admin, "POST", whoPath, `{}`, tc.head...)
		if tc.name == "system:anonymous" {
			if a.code != 403 {
				t.Errorf("nobody asked who it is: %d %s", a.code, a.body)
			}
			continue
		}
		var who authenticationv1.SelfSubjectReview
		a.into(t, &who)
		u := who.Status.UserInfo
		if u.Username != tc.name || strings.Join(u.Groups, " ") != tc.groups {
			t.Errorf("%v: %d, %s in %v", tc.head, a.code, u.Username, u.Groups)
		}
		if slices.Contains(tc.head, "7") && (u.UID != "7" || strings.Join(u.Extra["acme.com/scope"], "") != "a") {
			t.Errorf("%v: %+v", tc.head, u)
		}
	}
	// Their rights count, the caller's own do not.
	for _, tc := range []struct {
		head []string
		code int
	}{
		{as("User", "bob"), 403},
		{as("User", "bob", "Group", "system:masters"), 200},
		{as("User", "system:node:a", "Group", "system:nodes"), 403},
	} {
		if a := f.do(admin, "GET", mapsPath, "", tc.head...); a.code != tc.code {
			t.Errorf("%v: %d %s, want %d", tc.head, a.code, a.body, tc.code)
		}
	}
	// Nobody else may, in Kubernetes' words.
	for _, tc := range []struct {
		user api.User
		head []string
		word string
	}{
		{bob, as("User", "admin"), `User "bob" cannot impersonate resource "users" in API group "" at the cluster scope`},
		{bob, as("User", "bob"), `cannot impersonate resource "users"`},
		{nodeA, as("User", "system:node:b", "Group", "system:nodes"), `cannot impersonate resource "users"`},
		{bob, as("User", "system:serviceaccount:default:robot"),
			`cannot impersonate resource "serviceaccounts" in API group "" in the namespace "default"`},
	} {
		a := f.do(tc.user, "GET", "/version", "", tc.head...)
		if s := a.status(t); a.code != 403 || !strings.Contains(s.Message, tc.word) {
			t.Errorf("%s as %v: %d %s", tc.user.Name, tc.head, a.code, s.Message)
		}
	}
	f.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",`+
			`"kind":"ClusterRole","name":"edit"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`)
	f.must(201, "POST", mapsPath, configMap("m", "one"), as("User", "eve")...)
	f.stop()
	var line struct {
		User, ImpersonatedUser struct{ Username string }
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil || line.User.Username != "admin" ||
		line.ImpersonatedUser.Username != "eve" {
		t.Errorf("%v, the log says %s", err, lines[len(lines)-1])
	}
}

// lockedBuffer is a log that several write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestAnonymous: who shows nothing to be known by reads three pages, whatever bindings say.
func TestAnonymous(t *testing.T) {
	s := newStage(t)
	root := s.add("root", "", "", "root", api.AdminGroup)
	s.make(root, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",`+
			`"kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:unauthenticated"}]}`)
	nobody := s.add("nobody", "", "", "").client
	for _, tc := range []struct {
		method, path, token string
		code                int
	}{
		{"GET", "/livez", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/readyz?verbose", "", 200},
		{"GET", "/version", "", 200},
		{"GET", "/version", "Bearer x", 401},
		{"GET", "/version", "Basic eDp5", 401},
		{"GET", "/version/", "", 401},
		{"GET", "/livez/ping", "", 401},
		{"POST", "/version", "", 401},
		{"HEAD", "/version", "", 401},
		{"GET", "/healthz", "", 401},
		{"GET", "/metrics", "", 401},
		{"GET", "/api", "", 401},
		{"GET", "/openapi/v2", "", 401},
		{"GET", "/api/v1/pods", "", 401},
		{"GET", "/api/v1/namespaces/default/secrets", "", 401},
		{"POST", whoPath, "", 401},
		{"GET", "/ledge/v1/status", "", 401},
	} {
		req, err := http.NewRequest(tc.method, s.base+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.token != "" {
			req.Header.Set("Authorization", tc.token)
		}
		resp, err := nobody.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tc.code {
			t.Errorf("%s %s %s: %d %s %v, want %d", tc.method, tc.path, tc.token, resp.StatusCode, body, err, tc.code)
		}
	}
}
