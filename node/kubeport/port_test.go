package kubeport_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/node/kubeport"
)

// empty is an API without objects.
type empty struct{ api.Client }

func (empty) Get(_ context.Context, k *api.Kind, _, name string) (api.Object, error) {
	return nil, apierrors.NewNotFound(k.GR(), name)
}

// figures are those of the node.
type figures struct{ api.Metrics }

func (figures) Node() string { return "pi" }

func (figures) Page(_ context.Context, path string) (string, []byte, bool, error) {
	return "text/plain", []byte("page of " + path), !strings.HasPrefix(path, "/checkpoint"), nil
}

// board is a port that is open, and its clock.
type board struct {
	t     *testing.T
	plane *plane
	port  *kubeport.Port
	url   string
	later atomic.Int64
	addrs atomic.Pointer[[]corev1.NodeAddress]
	dir   string
	ca    string
	kept  string
	self  []*x509.Certificate
}

func newBoard(t *testing.T, p *plane) *board {
	b := &board{t: t, plane: p, dir: filepath.Join(t.TempDir(), "port")}
	b.addrs.Store(&[]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeHostName, Address: "pi"}})
	return b
}

func (b *board) now() time.Time { return time.Now().Add(time.Duration(b.later.Load())) }

func (b *board) open() *kubeport.Port {
	b.t.Helper()
	var err error
	b.port, err = kubeport.Open(kubeport.Config{Plane: b.plane, Node: "pi", Dir: b.dir, ClientCAFile: b.ca, KeptCAFile: b.kept, Now: b.now,
		Self:      func() []*x509.Certificate { return b.self },
		Addresses: func() []corev1.NodeAddress { return *b.addrs.Load() }})
	must(b.t, err)
	return b.port
}

func (b *board) look() { b.port.Look(b.t.Context()) }

// serve answers on loopback.
func (b *board) serve() {
	b.t.Helper()
	h, err := httpd.NewKubeDoor(httpd.Config{Client: empty{}, Metrics: figures{}, Known: b.port.Known,
		Authenticate: func(token string, _ ...string) (api.User, error) { return b.port.User(token) }}, b.port)
	must(b.t, err)
	l, err := httpd.ListenTLS("127.0.0.1:0", b.port.TLS())
	must(b.t, err)
	b.url = "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- (&httpd.Server{Handler: h, Listeners: []*httpd.Listener{l.WithTokens()}, Grace: time.Millisecond}).Run(ctx)
	}()
	b.t.Cleanup(func() { cancel(); must(b.t, <-done) })
}

// visitor comes with a certificate, a token, both or neither.
func (b *board) visitor(token string, certs ...tls.Certificate) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // not what is tested
	if len(certs) > 0 {                                                                                    // whatever CAs the server asks for
		tr.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
	}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: bearer{token, tr}, Timeout: 20 * time.Second}
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (r bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.token != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	return r.next.RoundTrip(req)
}

// asks is the code that a visitor is answered with; 0: not even that.
func (b *board) asks(c *http.Client, method, path string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, nil)
	must(b.t, err)
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return resp.StatusCode, string(data)
}

// TestWhoGetsIn: everybody who may try the port, and every path of it (N-13.16).
func TestWhoGetsIn(t *testing.T) {
	cluster, other := newCA(t), newCA(t)
	p := newPlane(t)
	p.caText, p.signs = cluster.pem(), cluster
	p.tokens["of-prom"], p.tokens["of-reader"] = "prom", "reader"
	p.rights["kube-apiserver get"], p.rights["kube-apiserver create"] = "proxy stats metrics", "proxy"
	p.rights["prom get"], p.rights["reader get"] = "metrics", "proxy pods healthz"
	b := newBoard(t, p)
	b.open()
	b.look()
	b.serve()
	nobody := []*http.Client{b.visitor(""), b.visitor("of-nobody"), b.visitor("", other.client("kube-apiserver", "system:masters", time.Hour)),
		b.visitor("of-prom", other.client("kube-apiserver", "system:masters", time.Hour)),
		b.visitor("", cluster.client("kube-apiserver", "system:masters", -time.Minute))}
	node := b.visitor("", cluster.client("system:node:other", "system:nodes", time.Hour))
	plane := b.visitor("", cluster.client("kube-apiserver", "system:masters", time.Hour))
	prom, reader := b.visitor("of-prom"), b.visitor("of-reader")
	for _, c := range []struct {
		method, path        string
		plane, prom, reader int
	}{
		{"GET", "/metrics", 200, 200, 403}, {"GET", "/metrics/resource", 200, 200, 403}, {"GET", "/metrics/cadvisor", 200, 200, 403},
		{"GET", "/stats/summary", 200, 403, 403}, {"GET", "/pods", 200, 403, 200}, {"GET", "/healthz", 200, 403, 200},
		{"GET", "/configz", 200, 403, 200}, {"GET", "/containerLogs/default/web/main", 501, 403, 501},
		{"POST", "/exec/default/web/main?command=id&output=1", 501, 403, 403}, {"GET", "/exec/default/web/main?command=id&output=1", 501, 403, 403},
		{"POST", "/exec/default/web/main?command=sh&input=1&output=1&error=1&tty=1", 501, 403, 403}, // as a kubelet: it drops stderr
		{"POST", "/exec/default/web/main?command=sh&error=1&tty=1", 400, 403, 403},
		{"GET", "/attach/default/web/main?output=1", 501, 403, 403}, {"POST", "/portForward/default/web", 501, 403, 403},
		{"GET", "/portForward/default/web", 501, 403, 403}, {"POST", "/checkpoint/default/web/main", 403, 403, 403},
		{"GET", "/metrics/../exec/default/web/main", 404, 403, 404}, {"GET", "/metrics/%2e%2e/exec/default/web/main", 404, 403, 404},
		{"GET", "//exec/default/web/main", 404, 403, 404}, {"POST", "/metrics", 403, 403, 403}, {"GET", "/ledge/measured", 200, 403, 200},
		{"GET", "/podAddress/default/web/80", 200, 403, 200}, {"GET", "/livez", 200, 403, 200}, {"HEAD", "/metrics", 403, 403, 403},
	} {
		what := c.method + " " + c.path
		for i, v := range nobody {
			if code, said := b.asks(v, c.method, c.path); code != 0 && code != 401 {
				t.Errorf("nobody %d: %s: %d %s", i, what, code, said)
			}
		}
		for who, v := range map[string]struct {
			c    *http.Client
			want int
		}{"another node": {node, 403}, "the plane": {plane, c.plane}, "prom": {prom, c.prom}, "reader": {reader, c.reader}} {
			if code, said := b.asks(v.c, c.method, c.path); code != v.want {
				t.Errorf("%s: %s: %d, want %d: %s", who, what, code, v.want, said)
			}
		}
	}

	// A connection does not outlast the certificate that it was made with, nor the CA.
	b.later.Store(int64(2 * time.Hour))
	if code, said := b.asks(plane, "GET", "/metrics"); code == 200 {
		t.Errorf("after the end of its certificate: %d %s", code, said)
	}
	b.later.Store(0)
	if code, said := b.asks(plane, "GET", "/metrics"); code != 200 {
		t.Errorf("the clock is right again: %d %s", code, said)
	}
	p.change(func() { p.caText = other.pem() })
	b.look()
	if code, said := b.asks(plane, "GET", "/metrics"); code == 200 {
		t.Errorf("after its CA has gone: %d %s", code, said)
	}
	if code, said := b.asks(b.visitor("", other.client("kube-apiserver", "system:masters", time.Hour)), "GET", "/metrics"); code != 200 {
		t.Errorf("of the new CA: %d %s", code, said)
	}

	// An API server that does not answer lets nobody in whom it has not judged.
	p.change(func() { p.fails = api.NewInternal("it is broken") })
	for what, v := range map[string]*http.Client{"a token": b.visitor("new"), "a certificate": b.visitor("", other.client("x", "y", time.Hour))} {
		if code, said := b.asks(v, "GET", "/metrics"); code != 503 || !strings.Contains(said, "it is broken") {
			t.Errorf("%s: %d %s", what, code, said)
		}
	}
}

// TestClientCA: nobody gets in by a certificate whose CA is not known (N-13.16), and the Node says what to do.
func TestClientCA(t *testing.T) {
	cluster, other := newCA(t), newCA(t)
	p := newPlane(t)
	p.rights["kube-apiserver get"], p.rights["prom get"] = "metrics", "metrics"
	p.tokens["of-prom"] = "prom"
	b := newBoard(t, p)
	b.open()
	b.look()
	b.serve()
	plane := func(of *ca) *http.Client {
		return b.visitor("", of.client("kube-apiserver", "system:masters", time.Hour))
	}
	if code, said := b.asks(plane(cluster), "GET", "/metrics"); code != 401 {
		t.Errorf("no CA is known: %d %s", code, said)
	}
	if code, said := b.asks(b.visitor("of-prom"), "GET", "/metrics"); code != 200 {
		t.Errorf("a token needs none: %d %s", code, said)
	}
	says := func(b *board, part string) {
		t.Helper()
		if c := b.port.Condition(); !strings.Contains(c.Message, part) || (part == "") != !strings.Contains(c.Message, "client") {
			t.Errorf("%s %s: %q, want %q", c.Status, c.Reason, c.Message, part)
		}
	}
	says(b, "--client-ca-file")

	file := filepath.Join(t.TempDir(), "ca.crt")
	f := newBoard(t, p)
	f.ca = file
	f.open()
	f.serve()
	for _, c := range []struct {
		text, says     string
		cluster, other int
	}{
		{"", "no certificate in it", 401, 401},
		{cluster.pem(), "", 200, 0},
		{"nonsense", "no certificate in it", 200, 0}, // what was known holds
		{strings.Repeat("x", 1<<20), "more than", 200, 0},
		{other.pem(), "", 0, 200},
		{cluster.pem() + other.pem(), "", 200, 200},
	} {
		must(t, os.WriteFile(file, []byte(c.text), 0o600))
		f.look()
		says(f, c.says)
		for of, want := range map[*ca]int{cluster: c.cluster, other: c.other} {
			if code, said := f.asks(plane(of), "GET", "/metrics"); code != want {
				t.Errorf("%.40q: %d, want %d: %s", c.text, code, want, said)
			}
		}
	}
	must(t, os.Remove(file))
	f.look()
	says(f, "no such file")

	k := newBoard(t, p)
	k.kept = file
	k.open()
	k.serve()
	k.look()
	says(k, "--client-ca-file")
	must(t, os.WriteFile(file, []byte(other.pem()), 0o600))
	k.later.Add(int64(10 * time.Minute))
	k.look()
	says(k, "")
	if code, said := k.asks(plane(other), "GET", "/metrics"); code != 200 {
		t.Errorf("the CA that joining kept: %d %s", code, said)
	}
	_, own := other.sign(&x509.Certificate{NotAfter: time.Now().Add(time.Hour)})
	k.self = []*x509.Certificate{own}
	k.look()
	says(k, "")
	_, own = cluster.sign(&x509.Certificate{NotAfter: time.Now().Add(time.Hour)}) // its renewal, by the cluster's new CA
	k.self = []*x509.Certificate{own}
	k.look()
	says(k, "Join again ('ledge join'), or name a file")
	p.caText = cluster.pem()
	k.look()
	if code, said := k.asks(plane(cluster), "GET", "/metrics"); code != 200 {
		t.Errorf("the board may ask now: %d %s", code, said)
	}
}

// saysOfASigned: while a signed certificate is shown the condition says something of it, and not that nobody signed it.
func (b *board) saysOfASigned(part string) {
	b.t.Helper()
	if c := b.port.Condition(); !strings.Contains(c.Message, part) || strings.Contains(c.Message, "nobody signed") {
		b.t.Errorf("%q, want %q", c.Message, part)
	}
}

// TestServingCertificate (N-13.16): asked for, shown once it was approved, kept over a start, renewed before its end, and never lost to
// what the plane answers.
func TestServingCertificate(t *testing.T) {
	p := newPlane(t)
	p.signs = newCA(t)
	p.caText = p.signs.pem()
	b := newBoard(t, p)
	b.open()
	own := shows(t, b.port)
	b.look()
	names := p.names()
	if len(names) != 1 {
		t.Fatalf("requests %v", names)
	}
	first := names[0]
	if c := b.port.Condition(); c.Status != corev1.ConditionTrue || c.Reason != "CertificateNotSigned" ||
		!strings.Contains(c.Message, "nobody signed") || !strings.Contains(c.Message, "kubectl certificate approve "+first) {
		t.Errorf("nobody has approved: %+v", c)
	}
	b.open() // a start asks for the same, and makes no other
	b.look()
	if again := p.names(); len(again) != 1 || !own.PublicKey.(*ecdsa.PublicKey).Equal(shows(t, b.port).PublicKey) {
		t.Errorf("requests after a start: %v", again)
	}
	given := p.approve(first, 100*time.Hour)
	signed := func(want *x509.Certificate) {
		t.Helper()
		b.look()
		if got := shows(t, b.port); !got.Equal(want) || b.port.Condition().Status != "" {
			t.Errorf("shown: %v of %v, want of %v; %+v", got.Subject, got.Issuer, want.Issuer, b.port.Condition())
		}
	}
	signed(given)
	b.open()
	signed(given)
	if info, err := os.Stat(filepath.Join(b.dir, "serving.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v %v", info, err)
	}
	p.change(func() { clear(p.csrs) }) // Kubernetes removes them

	// What is renewed: after seven to nine tenths of its life, with another key.
	b.later.Store(int64(60 * time.Hour))
	signed(given)
	b.later.Store(int64(95 * time.Hour))
	b.look()
	if got := shows(t, b.port); !got.Equal(given) || b.port.Condition().Reason != "CertificateNotSigned" {
		t.Errorf("until it is renewed the old one is shown: %v", b.port.Condition())
	}
	b.saysOfASigned("the port's certificate ends on " + given.NotAfter.UTC().Format(time.DateTime))
	second := p.names()[0]
	if second == first {
		t.Error("it is renewed with the same key")
	}
	for what, status := range map[string]map[string]any{
		"once the request is gone": {"conditions": []map[string]string{{"type": "Denied"}}},
		"delete csr " + second:     {"certificate": []byte(p.signs.pem())},
		"is denied":                {"conditions": []map[string]string{{"type": "Denied", "message": "who are you"}}},
		"none in it":               {"certificate": []byte("nonsense")},
		"another key":              {"certificate": []byte(p.signs.pem())},
		"more than":                {"certificate": []byte(strings.Repeat(p.signs.pem(), 20))},
		"more than 262":            {"certificate": make([]byte, 1<<20)},
	} {
		p.change(func() { p.csrs[second]["status"] = status })
		b.look()
		if c := b.port.Condition(); !strings.Contains(c.Message, what) || !shows(t, b.port).Equal(given) {
			t.Errorf("%s: %q", what, c.Message)
		}
	}
	given = p.approve(second, 300*time.Hour)
	signed(given)

	// Another address: it is asked for once more, and what is there is shown meanwhile.
	b.addrs.Store(&[]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.8"}})
	b.later.Store(int64(96 * time.Hour))
	b.look()
	if got := shows(t, b.port); !got.Equal(given) || len(p.names()) != 2 {
		t.Errorf("another address: %v, requests %v", got.IPAddresses, p.names())
	}
	b.saysOfASigned("has not all names and addresses of this board")
	// Nobody renews it for ever: a port that shows one of its own is better than none.
	b.later.Store(int64(400 * time.Hour))
	b.look()
	if c := b.port.Condition(); !strings.Contains(c.Message, "nobody signed") {
		t.Errorf("after its end: %q", c.Message)
	}
	if got := shows(t, b.port); got.Equal(given) || fmt.Sprint(got.IPAddresses) != "[192.0.2.8]" {
		t.Errorf("after its end: %v %v", got.Issuer, got.IPAddresses)
	}
}

// TestCutAfterKept: a power cut between the certificate and the end of its key's request leaves no key that is asked for again.
func TestCutAfterKept(t *testing.T) {
	p := newPlane(t)
	p.signs = newCA(t)
	p.caText = p.signs.pem()
	b := newBoard(t, p)
	b.open()
	b.look()
	next, serving := filepath.Join(b.dir, "next.pem"), filepath.Join(b.dir, "serving.pem")
	key, err := os.ReadFile(next)
	must(t, err)
	b.open()
	if again, err := os.ReadFile(next); err != nil || string(again) != string(key) {
		t.Error("the key of a request that waits:", err)
	}
	given := p.approve(p.names()[0], 100*time.Hour)
	b.look()
	must(t, os.WriteFile(next, key, 0o600))
	if data, err := os.ReadFile(serving); err != nil || !strings.HasPrefix(string(data), string(key)) {
		t.Fatal("the key is not the one that was asked with:", err)
	}
	b.open()
	if _, err := os.Stat(next); err == nil || !shows(t, b.port).Equal(given) {
		t.Error("the present key is the next one too")
	}
}

// loud has much to say about everything.
type loud struct{ kubeport.Plane }

func (loud) Ask(context.Context, string, string, any, any) error {
	return apierrors.NewServiceUnavailable(strings.Repeat("\u00e4", 500_000))
}

// TestLoud: what an API server says gets no further than a few hundred bytes of it.
func TestLoud(t *testing.T) {
	b := newBoard(t, nil)
	port, err := kubeport.Open(kubeport.Config{Plane: loud{}, Node: "pi", Dir: b.dir, Now: b.now,
		Addresses: func() []corev1.NodeAddress { return *b.addrs.Load() }})
	must(t, err)
	port.Look(t.Context())
	if c := port.Condition(); len(c.Message) > 1500 || !strings.Contains(c.Message, "...") || !utf8.ValidString(c.Message) {
		t.Errorf("%d bytes of a condition: %.2000q", len(c.Message), c.Message)
	}
	for range 2 { // the second is not asked any more
		if _, err := port.May(api.User{Name: "x"}, "get", "metrics"); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.1000s", err)
		}
	}
}
