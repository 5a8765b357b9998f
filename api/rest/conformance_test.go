package rest_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"ledge/api"
	"ledge/api/apitest"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/api/rest"
	"ledge/internal/original"
	"ledge/pki"
	"ledge/storage"
)

// backend is the API over a real store.
func backend(t *testing.T, streams api.Streams) http.Handler {
	t.Helper()
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	store, err := local.New(local.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	h, err := httpd.New(httpd.Config{Client: store, Streams: streams})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// serve runs a server until the test ends.
func serve(t *testing.T, h http.Handler, l *httpd.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	srv := &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}}
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
}

// piped is a client of a server at the other end of a net.Pipe.
func piped(t *testing.T, h http.Handler, u api.User) *rest.Client {
	t.Helper()
	l, dial := httpd.Pipe(u)
	serve(t, h, l)
	c, err := rest.FromDialer(dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var admin = api.User{Name: "admin", Groups: []string{api.AdminGroup}}

func overPipe(t *testing.T) api.Client { return piped(t, backend(t, nil), admin) }

func TestConformanceOverPipe(t *testing.T) { apitest.Run(t, overPipe) }

func TestConformanceInBubble(t *testing.T) { apitest.RunBubble(t, overPipe) }

func TestConformanceOverTLS(t *testing.T) {
	var once sync.Once
	var client *rest.Client
	apitest.Run(t, func(*testing.T) api.Client {
		once.Do(func() { client = overTLS(t, backend(t, nil)) }) // one server takes the whole suite
		return client
	})
}

// overTLS is a client made from the admin kubeconfig of a server on loopback.
func overTLS(t *testing.T, h http.Handler) *rest.Client {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.Open(pki.Config{Dir: dir})
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
	serve(t, h, l)
	path := filepath.Join(dir, "admin.conf")
	if err := authority.WriteKubeconfig(path, "https://"+l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	c, err := rest.FromKubeconfig(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestConformanceOverSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := httpd.ListenUnix(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, backend(t, nil), l)
	c, err := rest.FromSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	apitest.Run(t, func(*testing.T) api.Client { return c })
}

// TestConformanceOfTheOriginal holds the suite itself against what it imitates: Kubernetes' own API server, or the server of the
// kubeconfig that LEDGE_KUBECONFIG names, in namespaces of its own (and a few objects that have none). A server whose controllers
// run fails four cases of disruption budgets, in whose status they write meanwhile.
func TestConformanceOfTheOriginal(t *testing.T) {
	config := os.Getenv("LEDGE_KUBECONFIG")
	if config == "" {
		config = original.StartServer(t).Kubeconfig(t, original.Admin)
	}
	c, err := rest.FromKubeconfig(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, tc := range apitest.Cases() {
		t.Run(tc.Name, func(t *testing.T) {
			if tc.Name == "WatchGone" {
				t.Skip("its memory of changes grows while they come fast; it forgets by the clock, after minutes")
			}
			tc.Run(t, c)
		})
	}
}
