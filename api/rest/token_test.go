package rest_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/api/rest"
	"ledge/pki"
	"ledge/storage"
)

// office is a server with tokens: its admin, its address and its CA.
func office(t *testing.T) (admin *rest.Client, url string, a *pki.Authority) {
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
	if a, err = pki.Open(pki.Config{Dir: filepath.Join(dir, "pki")}); err != nil {
		t.Fatal(err)
	}
	keys, err := a.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	store, err := local.New(local.Config{Store: db, Tokens: &local.Tokens{Keys: keys, RootCA: a.CA()}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := httpd.New(httpd.Config{Client: store, Authenticate: store.Authenticate})
	if err != nil {
		t.Fatal(err)
	}
	conf, err := a.ServerTLS(nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, h, l.WithTokens())
	url = "https://" + l.Addr().String()
	path := filepath.Join(dir, "admin.conf")
	if err := a.WriteKubeconfig(path, url); err != nil {
		t.Fatal(err)
	}
	if admin, err = rest.FromKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return admin, url, a
}

// TestTokens: an agent gets a token through its Client, and the bearer of one is let in where a certificate is not
// needed; the bearer of nothing, or of a certificate of somebody else's, is not.
func TestTokens(t *testing.T) {
	admin, url, a := office(t)
	r := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	obj, err := admin.Create(t.Context(), api.ServiceAccounts, r, api.WriteOptions{Subresource: "token"})
	if err != nil {
		t.Fatal(err)
	}
	got, ok := obj.(*authenticationv1.TokenRequest)
	if st := got.Status; !ok || st.Token == "" || st.ExpirationTimestamp.IsZero() || *got.Spec.ExpirationSeconds != 3600 || got.Name != "default" {
		t.Fatalf("%+v", obj)
	}
	stranger, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	foreign, bob, root := certificate(t, stranger, "ledge-admin", api.AdminGroup), certificate(t, a, "bob"),
		certificate(t, a, "ledge-admin", api.AdminGroup)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.CA())
	ask := func(method, path, body string, auth []string, certs ...tls.Certificate) (int, string, error) {
		t.Helper()
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS12}}
		defer tr.CloseIdleConnections()
		req, err := http.NewRequest(method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Authorization"] = auth
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(data), err
	}
	bearer := []string{"Bearer " + got.Status.Token}
	for _, c := range []struct {
		what string
		auth []string
		code int
	}{
		{"a token", bearer, 200}, {"small letters", []string{"bearer " + got.Status.Token}, 200}, {"nothing", nil, 401},
		{"an empty one", []string{"Bearer "}, 401},
		{"two", []string{bearer[0], bearer[0]}, 401}, {"basic", []string{"Basic YTpi"}, 401}, {"no scheme", []string{got.Status.Token}, 401},
	} {
		if code, body, err := ask("GET", "/api", "", c.auth); code != c.code {
			t.Errorf("%s: %d %s %v", c.what, code, body, err)
		}
	}
	if code, _, _ := ask("GET", "/api/v1/namespaces/default/configmaps", "", bearer); code != 403 {
		t.Errorf("what is not open: %d", code)
	}
	if code, body, err := ask("GET", "/version", "", bearer, foreign); err == nil {
		t.Errorf("somebody else's certificate: %d %s", code, body)
	}
	// A certificate says who one is, whatever token comes with it.
	const self = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`
	if code, body, _ := ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", self, bearer, bob); code != 201 ||
		!strings.Contains(body, `"username":"bob"`) {
		t.Errorf("both: %d %s", code, body)
	}
	review := func(token string, audiences ...string) string {
		review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		data, err := json.Marshal(review)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
	for _, c := range []struct {
		what, body, want string
		code             int
	}{
		{"good", review(got.Status.Token), `"authenticated":true,"user":{"username":"system:serviceaccount:default:default"`, 201},
		{"bad", review("x"), `"error":"invalid bearer token"`, 201},
		{"for another", review(got.Status.Token, "vault"), `"error":"invalid bearer token"`, 201},
		{"none", review(""), "token is required", 400},
	} {
		code, body, err := ask("POST", reviews, c.body, nil, root)
		if err != nil || code != c.code || !strings.Contains(body, c.want) || strings.Contains(body, got.Status.Token) {
			t.Errorf("review, %s: %d %s %v", c.what, code, body, err)
		}
	}
	if code, _, _ := ask("POST", reviews, review(got.Status.Token), bearer); code != 403 {
		t.Errorf("a pod asks about others: %d", code)
	}
}

func certificate(t *testing.T, of *pki.Authority, user string, groups ...string) tls.Certificate {
	t.Helper()
	cert, err := of.Client(user, groups)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
