package httpd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/storage"
)

// The users of the tests, each with a door of its own.
var (
	admin = api.User{Name: "admin", Groups: []string{api.AdminGroup}}
	nodeA = api.User{Name: "system:node:a", Groups: []string{"system:nodes"}}
	bob   = api.User{Name: "bob"}
	taker = api.AccountUser("kube-system", "ledge-ingress")
)

// fixture is a server over a real store, reached through pipes.
type fixture struct {
	t     *testing.T
	store *local.Client
	as    map[string]*http.Client
	dial  map[string]func(context.Context) (net.Conn, error)
	node  string // where running pods are; "": on none
	stop  func() // ends the server and waits for it
}

// serve starts a server for the time of a test. It may run inside a synctest bubble.
func serve(t *testing.T, c httpd.Config) *fixture {
	t.Helper()
	return serveTo(t, c, admin, nodeA, bob, taker)
}

// serveTo serves these users, each at a door of its own.
func serveTo(t *testing.T, c httpd.Config, users ...api.User) *fixture {
	t.Helper()
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), Kinds: c.Kinds, NoSync: true, RingSize: 64})
	if err != nil {
		t.Fatal(err)
	}
	client, err := local.New(local.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, store: client, as: map[string]*http.Client{}, dial: map[string]func(context.Context) (net.Conn, error){}}
	if c.Client == nil {
		c.Client = client
	}
	h, err := httpd.New(c)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httpd.Server{Handler: h}
	var idle []*http.Transport
	for _, u := range users {
		l, dial := httpd.Pipe(u)
		srv.Listeners = append(srv.Listeners, l)
		tr := &http.Transport{DialContext: dialer(dial), DisableCompression: true}
		idle = append(idle, tr)
		f.dial[u.Name] = dial
		f.as[u.Name] = &http.Client{Transport: tr}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	finish := func() {
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		for _, tr := range idle {
			tr.CloseIdleConnections()
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	// Not sync.Once around all of it: a bubble's time stands still while somebody waits for a mutex.
	var once sync.Once
	finished := make(chan struct{})
	f.stop = func() {
		once.Do(func() {
			cancel()
			go func() { finish(); close(finished) }()
		})
		<-finished
	}
	t.Cleanup(f.stop)
	return f
}

// dialer makes a pipe look like a dialer of a network.
func dialer(dial func(context.Context) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
}

// answer is a whole response.
type answer struct {
	code int
	head http.Header
	body string
}

// status reads the body as a Status.
func (a answer) status(t *testing.T) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || s.Kind != "Status" || s.APIVersion != "v1" {
		t.Fatalf("%d %q is no Status: %v", a.code, a.body, err)
	}
	if int(s.Code) != a.code {
		t.Errorf("the Status says %d, the answer %d", s.Code, a.code)
	}
	return s
}

// into reads the body as an object.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%d %q: %v", a.code, a.body, err)
	}
}

// send makes a request as a user; headers come in pairs.
func (f *fixture) send(u api.User, method, path, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequest(method, "http://ledge"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == "" {
		req.Body, req.ContentLength = nil, 0
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return f.as[u.Name].Do(req)
}

// do makes a request and reads the whole answer.
func (f *fixture) do(u api.User, method, path, body string, headers ...string) answer {
	f.t.Helper()
	resp, err := f.send(u, method, path, body, headers...)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// must is do as the admin, with the code expected.
func (f *fixture) must(code int, method, path, body string, headers ...string) answer {
	f.t.Helper()
	a := f.do(admin, method, path, body, headers...)
	if a.code != code {
		f.t.Fatalf("%s %s: %d %.500s, want %d", method, path, a.code, a.body, code)
	}
	return a
}

// pod is the JSON of a small pod.
func pod(name string) string {
	data, err := json.Marshal(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}}},
	})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func configMap(name, value string) string {
	return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `","labels":{"x":"` + value + `"}},"data":{"k":"` + value +
		`"}}`
}

const (
	podsPath = "/api/v1/namespaces/default/pods"
	mapsPath = "/api/v1/namespaces/default/configmaps"
)

// golden compares with a file under testdata. The flag is the one of the internal tests.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, got, "", "  "); err != nil {
		t.Fatalf("%s: %v in %s", name, err, got)
	}
	path := filepath.Join("testdata", name)
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if pretty.String() != string(want) {
		t.Errorf("%s differs (run with -update to accept):\n%s", path, pretty.String())
	}
}
