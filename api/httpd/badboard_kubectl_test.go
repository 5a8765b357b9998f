package httpd_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"ledge/api/httpd"
)

// TestKubectlAndBadBoards has the real kubectl, of today, of Debian 12 and in the long runs of Debian 13, ask a board that answers with
// redirects: it is sent nowhere, neither with its certificate nor with a token.
func TestKubectlAndBadBoards(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs kubectl")
	}
	var elsewhere atomic.Int32 // requests that nobody meant
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer thief.Close()
	var answer atomic.Pointer[badAnswer]
	f := serve(t, httpd.Config{})
	f.node = "b"
	f.reachable("far", "10.1.0.7")
	f.withNodes()
	h, err := httpd.New(httpd.Config{Client: f.store, Node: "a", Streams: none{}, Exec: none{}, Forward: ports{}, Metrics: measuredBoard{},
		DialBoard: func(context.Context, string) (net.Conn, error) { return badBoard(*answer.Load(), 0), nil },
		Board:     http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })})
	if err != nil {
		t.Fatal(err)
	}
	url, a, _ := secured(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/secrets") {
			elsewhere.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	clients := map[string]*kubectl{"today's": kubectlOf(t, "", a, url), "old": kubectlOf(t, "old", a, url)}
	if os.Getenv("LEDGE_LONG") != "" {
		clients["1.32"] = kubectlOf(t, "1.32", a, url)
	}
	spdy := []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}
	secret := url + "/api/v1/namespaces/default/secrets"
	for _, tc := range []struct {
		code    int
		to      string
		env     []string
		command string
	}{
		{302, secret, nil, "logs far"},
		{302, thief.URL, nil, "logs far"},
		{307, url + "/ledge/v1/shutdown", nil, "exec far -- id"},
		{302, secret, nil, "exec far -- id"},
		{302, secret, spdy, "exec far -- id"},
		{307, thief.URL, spdy, "exec far -- id"},
		{307, url + "/ledge/v1/shutdown", spdy, "attach far"},
		{307, thief.URL, spdy, "port-forward far :80"},
		{302, thief.URL, nil, "get --raw /api/v1/nodes/b/proxy/metrics"},
		{302, thief.URL, nil, "get --raw /api/v1/namespaces/default/pods/far:80/proxy/x"},
	} {
		answer.Store(&badAnswer{text: redirect(tc.code, tc.to)})
		for version, k := range clients {
			k.env = tc.env
			out, err := k.run("", strings.Fields(tc.command)...)
			if err == nil {
				t.Errorf("%s kubectl %s: it worked: %s", version, tc.command, out)
			}
			if n := elsewhere.Swap(0); n != 0 {
				t.Errorf("%s kubectl %s: %d requests to %s\n%s", version, tc.command, n, tc.to, out)
			}
			t.Logf("%s kubectl %s %v, %d: %s", version, tc.command, tc.env, tc.code, strings.TrimSpace(out))
		}
	}
}
