package rest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apitest"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/api/rest"
	"ledge/pki"
	"ledge/storage"
)

// plane is a control plane that boards may join.
type plane struct {
	t     *testing.T
	a     *pki.Authority
	joins *pki.Joins
	h     http.Handler
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	store, err := local.New(local.Config{Store: db})
	must(t, err)
	p := &plane{t: t}
	p.a, err = pki.Open(pki.Config{Dir: t.TempDir()})
	must(t, err)
	p.joins, err = p.a.Joins(pki.JoinsConfig{Tokens: db.Table("tokens"), Boards: db.Table("boards")})
	must(t, err)
	p.h, err = httpd.New(httpd.Config{Client: store, Known: func(peer []*x509.Certificate) error { return p.joins.Known(peer[0]) },
		Join: func(ctx context.Context, _ string, request []byte, token string) ([]byte, error) {
			cert, _, err := p.joins.Sign(request, token, func(node string) (is, alive bool, err error) {
				_, err = store.Get(ctx, api.Nodes, "", node)
				return err == nil, false, nil
			})
			if err != nil {
				return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Message: err.Error()}}
			}
			return cert, nil
		}})
	must(t, err)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen opens one address of the control plane, which answers until stop is called.
func (p *plane) listen() (url string, stop func()) {
	p.t.Helper()
	conf, err := p.a.ServerTLS([]string{pki.ServerIdentity}, nil) // no address: boards do not look at it
	must(p.t, err)
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	must(p.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	srv := &httpd.Server{Handler: p.h, Listeners: []*httpd.Listener{l.WithTokens()}}
	go func() { done <- srv.Run(ctx) }()
	var stopped atomic.Bool
	stop = func() {
		if !stopped.Swap(true) {
			cancel()
			must(p.t, <-done)
		}
	}
	p.t.Cleanup(stop)
	return "https://" + l.Addr().String(), stop
}

func (p *plane) token(uses int) string {
	p.t.Helper()
	tok, err := p.joins.Create(pki.TokenTerms{TTL: 1e12, Uses: uses})
	must(p.t, err)
	return tok.Proof()
}

func board(t *testing.T, name string) *pki.Identity {
	t.Helper()
	i, err := pki.OpenIdentity(pki.IdentityConfig{Dir: filepath.Join(t.TempDir(), "board"), Node: name})
	must(t, err)
	return i
}

// ask sends something to the address where boards join.
func (p *plane) ask(i *pki.Identity, url, method, authorization string, body []byte) (*http.Response, string) {
	p.t.Helper()
	servers, err := rest.NewServers([]string{url}, i.Join(p.a.Pin()), nil)
	must(p.t, err)
	req, err := http.NewRequestWithContext(p.t.Context(), method, servers.URL()+httpd.JoinPath, bytes.NewReader(body))
	must(p.t, err)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	client := &http.Client{Transport: servers.Transport()}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	must(p.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(p.t, err)
	return resp, string(data)
}

func (p *plane) join(i *pki.Identity, url, token string) {
	p.t.Helper()
	csr, err := i.Request()
	must(p.t, err)
	resp, cert := p.ask(i, url, "POST", "Bearer "+token, csr)
	if resp.StatusCode != 200 {
		p.t.Fatalf("%s: %s", resp.Status, cert)
	}
	must(p.t, i.Accept([]byte(cert), p.a.Pin(), resp.TLS.PeerCertificates))
}

func client(t *testing.T, conf *tls.Config, refused func(), urls ...string) *rest.Client {
	t.Helper()
	servers, err := rest.NewServers(urls, conf, refused)
	must(t, err)
	c, err := rest.New(rest.Config{Servers: servers})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func makeNode(ctx context.Context, c api.Client, name string) error {
	_, err := api.Create(ctx, c, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return err
}

// TestJoinAndWork: a board that has joined may do what a node may (N-1.36), and nothing else.
func TestJoinAndWork(t *testing.T) {
	p := newPlane(t)
	url, _ := p.listen()
	one := board(t, "pi1")
	p.join(one, url, p.token(1))
	c := client(t, one.Client(), nil, url)
	must(t, makeNode(t.Context(), c, "pi1"))
	if err := makeNode(t.Context(), c, "pi2"); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `node "pi1" is not allowed to modify node "pi2"`) {
		t.Errorf("another's Node: %v", err)
	}
	if _, err := c.List(t.Context(), api.Secrets, api.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("all secrets: %v", err)
	}
	// Its Node goes, another board takes the name: the first one is told so by whatever it asks.
	admin := api.WithUser(t.Context(), api.User{Groups: []string{api.AdminGroup}})
	l, dial := httpd.Pipe(api.User{Name: "root", Groups: []string{api.AdminGroup}})
	serve(t, p.h, l)
	root, err := rest.FromDialer(dial)
	must(t, err)
	t.Cleanup(root.Close)
	_, err = root.Delete(admin, api.Nodes, "", "pi1", api.DeleteOptions{})
	must(t, err)
	p.join(board(t, "pi1"), url, p.token(1))
	if _, err := c.Get(t.Context(), api.Nodes, "", "pi1"); !apierrors.IsUnauthorized(err) ||
		!strings.Contains(err.Error(), `another board has joined as "pi1"`) {
		t.Errorf("the board that was replaced: %v", err)
	}
}

// TestJoinEndpoint is what strangers may send.
func TestJoinEndpoint(t *testing.T) {
	p := newPlane(t)
	url, _ := p.listen()
	i := board(t, "pi1")
	csr, err := i.Request()
	must(t, err)
	for _, c := range []struct {
		what, method, auth string
		body               []byte
		code               int
		want               string
	}{
		{"no token", "POST", "", csr, 403, "no token was given"},
		{"a bad token", "POST", "Bearer x", csr, 403, "not one of this control plane"},
		{"another scheme", "POST", "Basic YTpi", csr, 401, "Unauthorized"},
		{"an empty token", "POST", "Bearer ", csr, 401, "Unauthorized"},
		{"nothing asked for", "POST", "Bearer " + p.token(1), nil, 403, "cannot be read"},
		{"much", "POST", "Bearer " + p.token(1), make([]byte, 9<<10), 400, "up to 8192 bytes"},
		{"a look", "GET", "", nil, 405, "only POST"},
	} {
		if resp, body := p.ask(i, url, c.method, c.auth, c.body); resp.StatusCode != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %s %s", c.what, resp.Status, body)
		}
	}
	// Without TLS nobody joins: the board could not know whom it shows its token.
	l, dial := httpd.Pipe(api.User{Name: "root", Groups: []string{api.AdminGroup}})
	serve(t, p.h, l)
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	defer hc.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://ledge"+httpd.JoinPath, bytes.NewReader(csr))
	must(t, err)
	resp, err := hc.Do(req)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Errorf("without TLS: %s", resp.Status)
	}
}

// TestServersInTurn: whichever answers.
func TestServersInTurn(t *testing.T) {
	p := newPlane(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	dead.Close()
	other, _ := newPlane(t).listen() // answers, but is somebody else
	one, stopOne := p.listen()
	two, stopTwo := p.listen()
	i := board(t, "pi1")
	p.join(i, one, p.token(1))
	c := client(t, i.Client(), nil, "https://"+dead.Addr().String(), other, one, two)
	must(t, makeNode(t.Context(), c, "pi1"))
	stopOne()
	look := func() error {
		_, err := c.Get(t.Context(), api.Nodes, "", "pi1")
		return err
	}
	// The connection that was in use may still be handed out once.
	if err := look(); err != nil {
		must(t, look())
	}
	stopTwo()
	_ = look()
	if err = look(); !apierrors.IsServiceUnavailable(err) || !errors.Is(err, pki.ErrOtherCA) ||
		!strings.Contains(err.Error(), dead.Addr().String()) {
		t.Errorf("none is left: %v", err)
	}
	if rest.Everywhere(err, pki.ErrOtherCA) || rest.Everywhere(nil, pki.ErrOtherCA) {
		t.Errorf("one of four is another's: %v", err)
	}
	if _, err := client(t, i.Client(), nil, other, other).Get(t.Context(), api.Nodes, "", "pi1"); !rest.Everywhere(err, pki.ErrOtherCA) {
		t.Errorf("all are another's: %v", err)
	}
}

// TestServersRefuse tells a board whose certificate has ended, whatever its own clock says.
func TestServersRefuse(t *testing.T) {
	p := newPlane(t)
	url, _ := p.listen()
	stranger, err := pki.Open(pki.Config{Dir: t.TempDir()})
	must(t, err)
	cert, err := stranger.Client("system:node:pi1", nil)
	must(t, err)
	conf := board(t, "pi1").Join(p.a.Pin())
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	told := 0
	c := client(t, conf, func() { told++ }, url)
	// The connection may break before the reason has been read; a board asks again and again.
	for range 100 {
		if _, err = c.Get(t.Context(), api.Nodes, "", "pi1"); err == nil || told > 0 {
			break
		}
	}
	if err == nil || told == 0 {
		t.Errorf("told %d times: %v", told, err)
	}
	for _, bad := range []string{"", "10.0.0.1", "http://10.0.0.1", "https://", "https://x/api", "https://u@x"} {
		if _, err := rest.NewServers([]string{bad}, &tls.Config{}, nil); err == nil {
			t.Errorf("%q is taken for a server", bad)
		}
	}
}

func TestConformanceOverServers(t *testing.T) {
	p := newPlane(t)
	url, _ := p.listen()
	admin, err := p.a.Client(pki.AdminUser, []string{api.AdminGroup})
	must(t, err)
	conf := board(t, "pi1").Join(p.a.Pin())
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &admin, nil }
	c := client(t, conf, nil, url)
	apitest.Run(t, func(*testing.T) api.Client { return c })
}
