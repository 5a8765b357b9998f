package rest

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAccessKnowsTheDay: a way in that an administrator's file gives goes by the day that the board knows, not by the machine's clock.
func TestAccessKnowsTheDay(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	file := filepath.Join(t.TempDir(), "admin.conf")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: t}}]}`, server.URL, ca)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	end := server.Certificate().NotAfter
	for _, day := range []time.Time{end.Add(time.Hour), end.Add(-time.Hour)} { // the first makes no connection that the second could use
		fails := day.After(end)
		who, err := OpenAccess(file, func() time.Time { return day })
		if err != nil {
			t.Fatal(err)
		}
		resp, err := who.HTTP.Get(who.Server)
		if err == nil {
			resp.Body.Close()
		}
		if (err != nil) != fails || err != nil && !strings.Contains(err.Error(), "expired") {
			t.Errorf("%s: %v", day, err)
		}
	}
}

// TestWhichKubernetes: two files of one control plane say so, whoever made them; another address or another CA is another one.
func TestWhichKubernetes(t *testing.T) {
	which := func(server, ca, user string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: %s}}]}`, server,
			base64.StdEncoding.EncodeToString([]byte(ca)), user)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := WhichKubernetes(file)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one := which("https://a:1", "ca", "u1")
	if !strings.HasPrefix(one, "https://a:1 ") || one != which("https://a:1/", "ca\n", "u2") {
		t.Error(one, which("https://a:1/", "ca\n", "u2"))
	}
	if one == which("https://b:1", "ca", "u1") || one == which("https://a:1", "cb", "u1") {
		t.Error("another control plane is the same:", one)
	}
	if _, err := WhichKubernetes(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no file")
	}
}
