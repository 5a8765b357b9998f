package httpd_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ledge/api/httpd"
)

// deceit is a board that answers real kubectls as badly as it is told, and what they did that nobody meant.
type deceit struct {
	url       string
	thief     string // a server elsewhere
	answer    atomic.Pointer[badAnswer]
	elsewhere atomic.Int32 // requests that nobody meant
	asked     sync.Map     // by the program's name: it has asked for what the board answers
	clients   map[string]*kubectl
}

// newDeceit asks by the kubectl of today, of Debian 12 and in the long runs of Debian 13.
func newDeceit(t *testing.T) *deceit {
	t.Helper()
	d := &deceit{}
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { d.elsewhere.Add(1) }))
	t.Cleanup(thief.Close)
	d.thief = thief.URL
	f := serve(t, httpd.Config{})
	f.node = "b"
	f.reachable("far", "10.1.0.7")
	f.withNodes()
	h, err := httpd.New(httpd.Config{Client: f.store, Node: "a", Streams: none{}, Exec: none{}, Forward: ports{}, Metrics: measuredBoard{},
		DialBoard: func(context.Context, string) (net.Conn, error) { return badBoard(*d.answer.Load(), 0, nil), nil },
		Board:     http.HandlerFunc(func(http.ResponseWriter, *http.Request) { d.elsewhere.Add(1) })})
	if err != nil {
		t.Fatal(err)
	}
	url, a, _ := secured(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/secrets") {
			d.elsewhere.Add(1)
		}
		if path := r.URL.Path; strings.Contains(path, "/far/") || strings.Contains(path, "/far:") || strings.Contains(path, "/nodes/b") {
			program, _, _ := strings.Cut(r.UserAgent(), "/")
			d.asked.Store(program, true)
		}
		h.ServeHTTP(w, r)
	}))
	d.url, d.clients = url, map[string]*kubectl{"today's": kubectlOf(t, "", a, url), "old": kubectlOf(t, "old", a, url)}
	if os.Getenv("LEDGE_LONG") != "" {
		d.clients["1.32"] = kubectlOf(t, "1.32", a, url)
	}
	return d
}

var bySPDY = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}

// TestKubectlAndBadBoards has real kubectls ask a board that answers with redirects: they are sent nowhere, neither with their
// certificate nor with a token.
func TestKubectlAndBadBoards(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs kubectl")
	}
	d := newDeceit(t)
	url, thief, secret := d.url, d.thief, d.url+"/api/v1/namespaces/default/secrets"
	for _, tc := range []struct {
		code    int
		to      string
		env     []string
		command string
	}{
		{302, secret, nil, "logs far"},
		{302, thief, nil, "logs far"},
		{307, url + "/ledge/v1/shutdown", nil, "exec far -- id"},
		{302, secret, nil, "exec far -- id"},
		{302, secret, bySPDY, "exec far -- id"},
		{307, thief, bySPDY, "exec far -- id"},
		{307, url + "/ledge/v1/shutdown", bySPDY, "attach far"},
		{307, thief, bySPDY, "port-forward far :80"},
		{302, thief, nil, "get --raw /api/v1/nodes/b/proxy/metrics"},
		{302, thief, nil, "get --raw /api/v1/namespaces/default/pods/far:80/proxy/x"},
	} {
		d.answer.Store(&badAnswer{text: redirect(tc.code, tc.to)})
		for version, k := range d.clients {
			k.env = tc.env
			out, err := k.run("", strings.Fields(tc.command)...)
			if err == nil {
				t.Errorf("%s kubectl %s: it worked: %s", version, tc.command, out)
			}
			if n := d.elsewhere.Swap(0); n != 0 {
				t.Errorf("%s kubectl %s: %d requests to %s\n%s", version, tc.command, n, tc.to, out)
			}
			t.Logf("%s kubectl %s %v, %d: %s", version, tc.command, tc.env, tc.code, strings.TrimSpace(out))
		}
	}
}

// TestKubectlAndEveryBadAnswer: no bad answer to any command has a real kubectl ask for anything else, or end in a panic. One that waits
// for an answer without end is stopped, as a person would; set LEDGE_LONG.
func TestKubectlAndEveryBadAnswer(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("takes half an hour: set LEDGE_LONG")
	}
	d := newDeceit(t)
	begun, count := time.Now(), map[string]*ends{}
	for version := range d.clients {
		count[version] = &ends{}
	}
	into := t.TempDir()
	for _, answer := range badAnswers {
		answer.text = strings.ReplaceAll(answer.text, "evil.example", strings.TrimPrefix(d.thief, "http://"))
		d.answer.Store(&answer)
		for _, tc := range []struct {
			env     []string
			command string
		}{
			{nil, "logs far"}, {nil, "logs -f far"}, {nil, "exec far -- id"}, {bySPDY, "exec far -- id"}, {nil, "attach far"}, {bySPDY, "attach far"},
			{nil, "port-forward far :80"}, {bySPDY, "port-forward far :80"}, {nil, "cp far:/etc/x " + into}, {nil, "top node b"},
			{nil, "get --raw /api/v1/nodes/b/proxy/metrics"}, {nil, "get --raw /api/v1/namespaces/default/pods/far:80/proxy/x"},
		} {
			var all sync.WaitGroup
			for version, k := range d.clients {
				all.Go(func() { // all of them at once, for most of it is waiting
					if wrong := d.one(k, tc.env, strings.Fields(tc.command), count[version]); wrong != "" {
						t.Errorf("%s: %s kubectl %s %v: %s", answer.name, version, tc.command, tc.env, wrong)
					}
				})
			}
			all.Wait()
			if n := d.elsewhere.Swap(0); n != 0 {
				t.Errorf("%s: kubectl %s %v: %d other requests", answer.name, tc.command, tc.env, n)
			}
		}
	}
	for version, n := range count {
		if n.shown == 0 || n.errors == 0 || n.stopped == 0 {
			t.Errorf("kubectl %s ends in one way only: the board's answers do not reach it", version)
		}
		t.Logf("kubectl %-8s %d tries: %d ended well, %d with an error, %d were stopped", version, n.tries, n.shown, n.errors, n.stopped)
	}
	t.Logf("%d answers, %s", len(badAnswers), time.Since(begun).Round(time.Second))
}

// ends is how often a kubectl has ended in which way.
type ends struct{ tries, shown, errors, stopped int }

// one has a kubectl ask once. It has two seconds, and more where a busy machine keeps it from asking at all.
func (d *deceit) one(client *kubectl, env, args []string, n *ends) (wrong string) {
	k := *client
	k.env = env
	program := filepath.Base(k.bin)
	for k.limit = 2 * time.Second; ; k.limit *= 4 {
		d.asked.Delete(program)
		out, err := k.run("", args...)
		if strings.Contains(out, "panic: ") {
			return out
		}
		if _, asked := d.asked.Load(program); !asked && k.limit < time.Minute {
			continue
		} else if !asked {
			return "it never asked: " + out
		}
		var exit *exec.ExitError
		switch n.tries++; {
		case err == nil:
			n.shown++
		case errors.As(err, &exit) && exit.ExitCode() >= 0:
			n.errors++
		default:
			n.stopped++
		}
		return ""
	}
}
