package httpd_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"ledge/api"
	"ledge/api/httpd"
)

// lineLog is an audit log in memory.
type lineLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *lineLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.lines
	l.lines = nil
	return out
}

// auditLine is what these tests look at.
type auditLine struct {
	Kind, APIVersion, Level, AuditID, Stage, RequestURI, Verb, UserAgent string
	User                                                                 struct{ Username string }
	ObjectRef                                                            *struct{ Resource, Namespace, Name, APIGroup, Subresource string }
	ResponseStatus                                                       *struct{ Code int }
	Annotations                                                          map[string]string
}

// TestAudit: who changed what, and whether they might, in a line for each request that changes something.
func TestAudit(t *testing.T) {
	log := &lineLog{}
	board := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	f := serve(t, httpd.Config{Audit: log, Board: board})
	const secret = "xyzzy"
	for _, tc := range []struct {
		as                 api.User
		method, path, body string
		want               string // user verb resource/sub namespace name code decision; "" for no line
	}{
		{admin, "POST", mapsPath, configMap("c", secret), "admin create configmaps default c 201 allow"},
		{admin, "POST", mapsPath, strings.Replace(configMap("", secret), `"name":""`, `"generateName":"made-"`, 1),
			"admin create configmaps default made- 201 allow"},
		{admin, "PUT", mapsPath + "/c", configMap("c", secret+"2"), "admin update configmaps default c 200 allow"},
		{admin, "PATCH", mapsPath + "/c", `{"data":{"k":"` + secret + `"}}`, "admin patch configmaps default c 200 allow"},
		{admin, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"password":"` + secret + `"}}`,
			"admin create secrets default s 201 allow"},
		{admin, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"data":"` + secret + `"}`,
			"admin create secrets default - 400 allow"},
		{admin, "GET", "/api/v1/namespaces/default/secrets/s", "", ""},
		{admin, "GET", "/api/v1/secrets", "", ""},
		{admin, "DELETE", mapsPath + "/c", "", "admin delete configmaps default c 200 allow"},
		{admin, "DELETE", mapsPath + "/none", "", "admin delete configmaps default none 404 allow"},
		{admin, "DELETE", "/api/v1/namespaces/default/secrets", "", "admin deletecollection secrets default - 200 allow"},
		{bob, "DELETE", mapsPath + "/d?x=" + secret, "", "bob delete configmaps default d 403 forbid"},
		{bob, "GET", mapsPath + "/d", "", ""},
		{bob, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/"}}}`,
			""},
		{admin, "POST", "/api/v1/nodes", `{"metadata":{"name":"a"}}`, "admin create nodes - a 201 allow"},
		{nodeA, "PATCH", "/api/v1/nodes/a/status", `{"status":{"conditions":[]}}`, ""},
		{nodeA, "PATCH", "/api/v1/nodes/a", `{"metadata":{"labels":{"a":"b"}}}`, "system:node:a patch nodes - a 200 allow"},
		{nodeA, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", `{"metadata":{"name":"a"}}`, ""},
		{admin, "POST", podsPath, pod("p"), "admin create pods default p 201 allow"},
		{admin, "POST", podsPath + "/p/exec?command=echo&command=" + secret + "&stdout=true", "", "admin create pods/exec default p 0 allow"},
		{admin, "POST", "/ledge/v1/shutdown?message=" + secret, secret, "admin post - - - 202 allow"},
		{bob, "POST", "/ledge/v1/shutdown", "", "bob post - - - 403 forbid"},
	} {
		headers := []string{"User-Agent", "tests/1", "Content-Type", "application/json", "Authorization", "Bearer " + secret, httpd.HeaderMeant,
			"yes"}
		if tc.method == "PATCH" {
			headers[3] = "application/merge-patch+json"
		}
		f.do(tc.as, tc.method, tc.path, tc.body, headers...)
		lines := log.take()
		session := strings.Contains(tc.path, "/exec")
		if want := map[bool]int{true: 1}[tc.want != ""]; len(lines) != want && !(session && len(lines) == 2) {
			t.Errorf("%s %s: %d lines %q, want %q", tc.method, tc.path, len(lines), lines, tc.want)
			continue
		}
		if tc.want == "" {
			continue
		}
		if strings.Contains(strings.Join(lines, ""), secret) {
			t.Errorf("%s %s: the log tells a secret: %q", tc.method, tc.path, lines)
		}
		var e auditLine
		if err := json.Unmarshal([]byte(lines[0]), &e); err != nil || strings.Count(lines[0], "\n") != 1 {
			t.Fatalf("%q: %v", lines[0], err)
		}
		if e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" || e.Level != "Metadata" || e.AuditID == "" || e.UserAgent != "tests/1" {
			t.Errorf("%+v", e)
		}
		if got := e.text(); !strings.HasPrefix(got, strings.TrimSuffix(tc.want, " 201 allow")) || got != tc.want &&
			!strings.Contains(tc.want, "made-") {
			t.Errorf("%s %s: %q, want %q", tc.method, tc.path, got, tc.want)
		}
	}
}

func (e auditLine) text() string {
	or := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	resource, namespace, name, code := "", "", "", "0"
	if o := e.ObjectRef; o != nil {
		resource, namespace, name = o.Resource, o.Namespace, o.Name
		if o.Subresource != "" {
			resource += "/" + o.Subresource
		}
	}
	if e.ResponseStatus != nil {
		data, _ := json.Marshal(e.ResponseStatus.Code)
		code = string(data)
	}
	return strings.Join([]string{e.User.Username, e.Verb, or(resource), or(namespace), or(name), code,
		e.Annotations["authorization.k8s.io/decision"]}, " ")
}

// TestAuditIsBounded: a line stays short whatever its sender writes.
func TestAuditIsBounded(t *testing.T) {
	log := &lineLog{}
	f := serve(t, httpd.Config{Audit: log})
	long := strings.Repeat("x", 250)
	f.do(admin, "DELETE", mapsPath+"/"+long, "", "User-Agent", strings.Repeat("ü", 3000))
	if lines := log.take(); len(lines) != 1 || len(lines[0]) > 2048 || !json.Valid([]byte(lines[0])) {
		t.Errorf("%q", lines)
	}
}

// TestPodSecurityOnTheWire: what a namespace's level says comes as Warning headers and stands in the log.
func TestPodSecurityOnTheWire(t *testing.T) {
	log := &lineLog{}
	f := serve(t, httpd.Config{Audit: log})
	f.must(200, "PATCH", "/api/v1/namespaces/default", `{"metadata":{"labels":{"pod-security.kubernetes.io/warn":"restricted",`+
		`"pod-security.kubernetes.io/audit":"restricted","pod-security.kubernetes.io/enforce":"baseline"}}}`, "Content-Type",
		"application/merge-patch+json")
	log.take()
	a := f.must(201, "POST", podsPath, pod("p"))
	if w := a.head.Values("Warning"); len(w) != 1 ||
		!strings.HasPrefix(w[0], `299 - "would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false`) ||
		!strings.Contains(w[0], "seccompProfile") {
		t.Errorf("warnings %q", w)
	}
	var e auditLine
	if lines := log.take(); len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &e) != nil ||
		e.Annotations["pod-security.kubernetes.io/enforce-policy"] != "baseline:latest" ||
		!strings.HasPrefix(e.Annotations["pod-security.kubernetes.io/audit-violations"], `would violate PodSecurity "restricted:latest"`) {
		t.Errorf("log %q", lines)
	}
}
