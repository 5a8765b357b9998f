package httpd_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ledge/api/httpd"
)

// logged keeps what an operator reads until the test ends.
func logged(t *testing.T) *lockedBuffer {
	t.Helper()
	log, before := &lockedBuffer{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

// linesWith are the lines that have all of some words.
func linesWith(log *lockedBuffer, words ...string) (out []string) {
	for line := range strings.Lines(log.String()) {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			out = append(out, line)
		}
	}
	return out
}

// TestRefusedBoardsAreLogged: a board that touches what is not its own is told of on this side too (N-1.36), wherever it is
// refused; one that goes on doing so does not fill the log.
func TestRefusedBoardsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logged(t)
		f := serve(t, httpd.Config{Board: answering})
		f.must(201, "POST", "/api/v1/nodes", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"b"}}`)
		f.must(201, "POST", "/api/v1/namespaces/default/secrets", `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}`)
		tries := []struct{ method, path, body, line string }{
			{"PUT", "/api/v1/nodes/b/status", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"b"}}`,
				`verb=update object="nodes/status b" why="nodes \"b\" is forbidden`},
			{"GET", "/api/v1/namespaces/default/secrets/s", "", `verb=get object="secrets default/s" why="secrets \"s\" is forbidden`},
			{"POST", "/api/v1/nodes", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"c"}}`,
				`object="nodes c" why="nodes \"c\" is forbidden: node \"a\" is not allowed to modify node \"c\""`},
			{"GET", "/ledge/images", "", "verb=get object=/ledge/images"},
		}
		for range 20 {
			for _, try := range tries {
				if a := f.do(nodeA, try.method, try.path, try.body); a.code != 403 {
					t.Fatalf("%s %s: %d %s", try.method, try.path, a.code, a.body)
				}
			}
			time.Sleep(time.Second)
		}
		f.do(nodeA, "POST", podsPath, pod("x"), "Impersonate-User", "admin")
		const what = `level=WARN msg="a board was refused what is not its own" node=a `
		for _, try := range tries {
			if got := linesWith(log, what, try.line); len(got) != 1 {
				t.Errorf("%s %s: %d lines with %s in\n%s", try.method, try.path, len(got), try.line, log)
			}
		}
		if got := linesWith(log, what, "object="+podsPath, "cannot impersonate"); len(got) != 1 {
			t.Errorf("a board that says it is somebody else: %s", log)
		}
		time.Sleep(10 * time.Minute)
		f.do(nodeA, "GET", tries[1].path, "")
		if got := linesWith(log, what, tries[1].line); len(got) != 2 {
			t.Errorf("it still does so later: %d lines", len(got))
		}

		// What is no board's doing has no line: others' refusals, an administrator who tries what a board may, and what is
		// refused for the state of things.
		before := log.String()
		f.do(bob, "GET", podsPath, "")
		f.do(admin, "GET", "/api/v1/nodes/b", "", "Impersonate-User", "system:node:z", "Impersonate-Group", "system:nodes")
		f.must(201, "POST", "/api/v1/namespaces", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"gone","finalizers":["x/y"]}}`)
		f.must(200, "DELETE", "/api/v1/namespaces/gone", "")
		event := `{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"gone"},"involvedObject":{"kind":"Pod","namespace":"gone","name":"p"}}`
		if a := f.do(nodeA, "POST", "/api/v1/namespaces/gone/events", event); a.code != 403 {
			t.Errorf("an event that comes too late: %d %s", a.code, a.body)
		}
		if log.String() != before {
			t.Errorf("lines about nobody: %s", strings.TrimPrefix(log.String(), before))
		}

		// Nor can a board fill the log with ever new things.
		for i := range 300 {
			f.do(nodeA, "GET", fmt.Sprintf("/ledge/%d", i), "")
			f.do(nodeA, fmt.Sprintf("X%d", i), "/ledge/x", "")
		}
		if got := strings.Count(log.String(), "\n"); got > 150 {
			t.Errorf("%d lines", got)
		}
		f.stop()
	})
}

// TestDistrustIsLogged: who ends a handshake because it knows another CA is told of, once; other noise is not.
func TestDistrustIsLogged(t *testing.T) {
	log := logged(t)
	url, a, stop := secured(t, answering)
	other, _ := authority(t)
	for range 3 {
		if resp, err := withCert(t, other, "x").Get(url); err == nil {
			resp.Body.Close()
			t.Fatal("another CA's certificate was accepted")
		}
	}
	if resp, err := withCert(t, a, "").Get(url); err == nil { // nobody: it knows us, and we do not know it
		resp.Body.Close()
		t.Fatal("a client without a certificate was answered")
	}
	plain, err := http.Get(strings.Replace(url, "https", "http", 1))
	if err == nil {
		plain.Body.Close()
	}
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"),
		&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil {
		conn.Close()
		t.Error("an old version of TLS was accepted")
	}
	stop() // net/http has said all that it has to say
	if got := linesWith(log, "level=WARN", "does not accept this server's certificate", "from=127.0.0.1", "another CA"); len(got) != 1 {
		t.Errorf("%d lines about who knows another CA in\n%s", len(got), log)
	}
	if got := linesWith(log, "level=WARN"); len(got) != 1 || len(linesWith(log, "level=ERROR")) > 0 {
		t.Errorf("noise:\n%s", log)
	}
}
