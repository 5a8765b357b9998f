package door

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/networking"
	"ledge/network/ingress"
)

// rig is a door on loopback ports, with the endpoints of its one service.
type rig struct {
	*testing.T
	plain, tls string // addresses
	d          *follower
	s          *server
	stop       func()
}

// lead has the door lead all of a.test to some endpoints.
func (r *rig) lead(to ingress.Pool, change func(*networkingv1.Ingress)) {
	kind := networkingv1.PathTypePrefix
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "i"}}
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s",
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
	i.Spec.Rules = []networkingv1.IngressRule{{Host: "a.test", IngressRuleValue: networkingv1.IngressRuleValue{
		HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &kind, Backend: backend}}}}}}
	i.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "tls", Hosts: []string{"a.test"}}}
	if change != nil {
		change(i)
	}
	table, _ := ingress.Build([]*networkingv1.Ingress{i})
	r.d.present.Store(&present{table: table, pools: map[ingress.Backend]*pool{table.Backends()[0]: {Pool: to}}})
}

func open(t *testing.T, most int) *rig {
	t.Helper()
	r := &rig{T: t, d: &follower{}}
	r.d.certs.held = map[types.NamespacedName]*held{{Namespace: "n", Name: "tls"}: {cert: certFor(t, "a.test")}}
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	r.plain, r.tls, r.s = listeners[0].Addr().String(), listeners[1].Addr().String(), newServer(r.d, most, newTally(true))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.s.run(ctx, listeners[0], listeners[1]) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(r.stop)
	return r
}

func certFor(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	cert, key := pair(t, name, time.Now().Add(time.Hour))
	out, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &out
}

func pair(t *testing.T, name string, until time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// backend is an endpoint.
func backend(t *testing.T, h2c bool, do http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewUnstartedServer(do)
	if h2c {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	s.Start()
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// gone is an address where nobody listens.
func gone(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func at(ends ...netip.AddrPort) ingress.Pool { return ingress.Pool{Ends: ends} }

// client asks the door for any name, in the ways that it says.
func (r *rig) client(set func(*http.Protocols)) *http.Client {
	protocols := new(http.Protocols)
	set(protocols)
	t := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			to := r.plain
			if strings.HasSuffix(address, ":443") {
				to = r.tls
			}
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		}}
	r.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func one(p *http.Protocols) { p.SetHTTP1(true) }
func two(p *http.Protocols) { p.SetHTTP2(true); p.SetUnencryptedHTTP2(true) }

// ask gives status and body.
func (r *rig) ask(c *http.Client, method, url string, body io.Reader, headers ...string) (int, string, http.Header) {
	r.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = []string{headers[i+1]}
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error(), nil
	}
	return resp.StatusCode, string(text), resp.Header
}

// TestWhoAsks: the endpoint is told who asks, and how, by us alone.
func TestWhoAsks(t *testing.T) {
	r := open(t, 100)
	r.lead(at(backend(t, false, func(w http.ResponseWriter, q *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Real-Ip", "Forwarded",
			"X_forwarded_for", "Proxy", "X-Mine", "Cookie"} {
			fmt.Fprintf(w, "%s ", q.Header.Get(name))
		}
		fmt.Fprintf(w, "%s %s", q.Host, q.RequestURI)
	})), nil)
	lies := []string{"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "ftp", "X-Forwarded-Host", "evil", "X-Forwarded-Port", "1", "X-Real-Ip",
		"6.6.6.6", "Forwarded", "for=6.6.6.6", "X_forwarded_for", "6.6.6.6", "Proxy", "http://evil", "X-Mine", "kept", "Cookie",
		"a=1; __Host-ledge=secret; b=2"} // the cookie of the board's page is nobody else's
	for scheme, port := range map[string]string{"http": "80", "https": "443"} {
		want := "127.0.0.1 " + scheme + " a.test " + port + " 127.0.0.1    kept a=1; b=2 a.test /a%2Fb?q=%zz"
		for name, protocol := range map[string]func(*http.Protocols){"HTTP/1.1": one, "HTTP/2": two} {
			if _, got, _ := r.ask(r.client(protocol), "GET", scheme+"://a.test/a%2Fb?q=%zz", nil, lies...); got != want {
				t.Errorf("%s, %s:\n got %q\nwant %q", scheme, name, got, want)
			}
		}
	}
}

// TestAnswers: what is said where nobody can be led on, and to whom asks for too much.
func TestAnswers(t *testing.T) {
	r := open(t, 100)
	c := r.client(one)
	if code, _, _ := r.ask(c, "GET", "http://a.test/", nil); code != 503 {
		t.Errorf("before anything is known: %d", code)
	}
	echo := backend(t, false, func(w http.ResponseWriter, q *http.Request) { _, _ = io.Copy(w, q.Body) })
	r.lead(at(echo), func(i *networkingv1.Ingress) {
		i.Annotations = map[string]string{"nginx.ingress.kubernetes.io/proxy-body-size": "1k"}
	})
	for what, tt := range map[string]struct {
		method, url string
		body        io.Reader
		code        int
	}{
		"another host":     {"GET", "http://b.test/", nil, 404},
		"its own":          {"POST", "http://a.test/", strings.NewReader("x"), 200},
		"large":            {"POST", "http://a.test/", strings.NewReader(strings.Repeat("x", 2000)), 413},
		"large, unsaid":    {"POST", "http://a.test/", io.MultiReader(strings.NewReader(strings.Repeat("x", 2000))), 413},
		"not for proxies":  {"CONNECT", "http://a.test/", nil, 503},
		"another port":     {"GET", "http://a.test:8080/", nil, 200},
		"a certificate":    {"GET", "https://a.test/", nil, 200},
		"no certificate":   {"GET", "https://b.test/", nil, 0},
		"an open redirect": {"GET", "http://a.test//evil.test/..", nil, 200},
	} {
		if code, text, _ := r.ask(c, tt.method, tt.url, tt.body); code != tt.code {
			t.Errorf("%s: %d %s, want %d", what, code, text, tt.code)
		}
	}
	code, text, _ := r.ask(c, "GET", "http://a.test/", nil, "X-Large", strings.Repeat("x", 2*mostHeader))
	if code != 431 && code != 0 { // 0: it was cut off while it wrote
		t.Errorf("large headers: %d %s", code, text)
	}
	r.lead(at(gone(t), gone(t)), nil)
	if code, text, _ := r.ask(c, "GET", "http://a.test/", nil); code != 502 {
		t.Errorf("nobody listens: %d %s", code, text)
	}
	r.lead(ingress.Pool{Lacks: "x"}, nil)
	if code, text, _ := r.ask(c, "GET", "http://a.test/", nil); code != 503 {
		t.Errorf("no endpoint: %d %s", code, text)
	}
	r.lead(at(echo), func(i *networkingv1.Ingress) {
		i.Annotations = map[string]string{"nginx.ingress.kubernetes.io/ssl-redirect": "true"}
	})
	code, _, header := r.ask(c, "GET", "http://a.test:80/x?y=z", nil)
	if to := header.Get("Location"); code != 308 || to != "https://a.test/x?y=z" {
		t.Errorf("redirect: %d %s", code, to)
	}
	if code, _, _ := r.ask(c, "GET", "https://a.test/x?y=z", nil); code != 200 {
		t.Errorf("redirected: %d", code)
	}
}

// TestTargets: whatever a client writes in the first line, it is sent to the host that it asked, and led by what the endpoint reads.
func TestTargets(t *testing.T) {
	r := open(t, 100)
	for _, redirect := range []string{"true", "false"} {
		echo := backend(t, false, func(w http.ResponseWriter, q *http.Request) { w.Header().Set("Location", q.RequestURI) })
		r.lead(at(echo), func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].Host = ""
			i.Annotations = map[string]string{"nginx.ingress.kubernetes.io/ssl-redirect": redirect}
		})
		for _, tt := range []struct{ target, host, want string }{
			{"/a%2Fb?q=%zz", "a.test:80", "https://a.test/a%2Fb?q=%zz"},
			{"/", "[fd00::1]:80", "https://[fd00::1]/"},
			{"/", "[fd00::1]", "https://[fd00::1]/"},
			{"//evil.test/x", "a.test", "https://a.test//evil.test/x"},
			{"http://a.test?x", "b.test", "https://a.test?x"},
			{"http:foo", "a.test", "400"},
			{"http:.evil.test/", "a.test", "400"},
			{"*", "a.test", "400"},
		} {
			c, err := net.Dial("tcp", r.plain)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tt.target, tt.host)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			got := resp.Header.Get("Location")
			if got == "" {
				got = fmt.Sprint(resp.StatusCode)
			}
			if redirect == "true" && got != tt.want || redirect == "false" && (got == "400") != (tt.want == "400") {
				t.Errorf("%s of %s, redirect %s: %s, want %s", tt.target, tt.host, redirect, got, tt.want)
			}
		}
	}
}

// TestTries: a request goes on to the next endpoint where nobody takes the connection, with its body.
func TestTries(t *testing.T) {
	r := open(t, 100)
	r.lead(at(gone(t), backend(t, false, func(w http.ResponseWriter, q *http.Request) { _, _ = io.Copy(w, q.Body) }), gone(t)), nil)
	for range 6 {
		if code, text, _ := r.ask(r.client(one), "POST", "http://a.test/", strings.NewReader("body")); code != 200 || text != "body" {
			t.Errorf("%d %s", code, text)
		}
	}
}

// TestWebSocket: what is upgraded goes both ways, with TLS and without.
func TestWebSocket(t *testing.T) {
	r := open(t, 100)
	r.lead(at(backend(t, false, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
	})), nil)
	for _, encrypted := range []bool{false, true} {
		var c net.Conn
		var err error
		if encrypted {
			c, err = tls.Dial("tcp", r.tls, &tls.Config{InsecureSkipVerify: true, ServerName: "a.test"})
		} else {
			c, err = net.Dial("tcp", r.plain)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("%v %v", resp, err)
		}
		fmt.Fprint(c, "hello\n")
		if line, err := br.ReadString('\n'); line != "hello\n" {
			t.Errorf("%q %v", line, err)
		}
	}
}

// TestGRPC: an answer to each message before the next one comes, and trailers.
func TestGRPC(t *testing.T) {
	r := open(t, 100)
	p := at(backend(t, true, func(w http.ResponseWriter, q *http.Request) {
		if q.ProtoMajor != 2 || q.Header.Get("Te") != "trailers" {
			t.Errorf("%s %v", q.Proto, q.Header)
		}
		w.Header().Set("Trailer", "Grpc-Status")
		br := bufio.NewReader(q.Body)
		for { // an answer to each line before the next one comes
			line, err := br.ReadString('\n')
			if err != nil {
				break
			}
			fmt.Fprint(w, "got "+line)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	}))
	p.H2C = true
	r.lead(p, nil)
	for _, scheme := range []string{"http", "https"} {
		in, out := io.Pipe()
		req, err := http.NewRequest("POST", scheme+"://a.test/service/method", in)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Te", "trailers")
		sent := make(chan bool)
		go func() {
			fmt.Fprint(out, "one\n")
			<-sent
			fmt.Fprint(out, "two\n")
			_ = out.Close()
		}()
		resp, err := r.client(two).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(resp.Body)
		first, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		close(sent)
		rest, err := io.ReadAll(br)
		_ = resp.Body.Close()
		if first+string(rest) != "got one\ngot two\n" || err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%q %q %v %v", first, rest, err, resp.Trailer)
		}
	}
}

// TestReload: another certificate counts with the next connection, and costs none that is there.
func TestReload(t *testing.T) {
	r := open(t, 100)
	r.lead(at(backend(t, false, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })), nil)
	old := r.client(two)
	serial := func(c *http.Client) *big.Int {
		resp, err := c.Get("https://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.TLS.PeerCertificates[0].SerialNumber
	}
	before := serial(old)
	secret := types.NamespacedName{Namespace: "n", Name: "tls"}
	r.d.certs.mu.Lock()
	r.d.certs.held[secret] = &held{cert: certFor(t, "a.test")}
	r.d.certs.mu.Unlock()
	if serial(old).Cmp(before) != 0 {
		t.Error("a connection was lost")
	}
	if serial(r.client(two)).Cmp(before) == 0 {
		t.Error("the old certificate for a new connection")
	}
}

// TestClients: a client has a share, by whichever of its addresses it comes.
func TestClients(t *testing.T) {
	if clientOf(netip.MustParseAddr("2001:db8::1")) != clientOf(netip.MustParseAddr("2001:db8::ffff")) {
		t.Error("one network is two clients")
	}
	if clientOf(netip.MustParseAddr("192.0.2.1")) == clientOf(netip.MustParseAddr("192.0.2.2")) {
		t.Error("two addresses are one client")
	}
}

// TestHall: connections beyond the share end at once, and those of the others go on; requests beyond it are told to come again.
func TestHall(t *testing.T) {
	r := open(t, 8)
	hold := make(chan bool)
	var under atomic.Int64
	r.lead(at(backend(t, false, func(http.ResponseWriter, *http.Request) { under.Add(1); <-hold })), nil)
	defer close(hold)
	for range 8 {
		if c, err := net.Dial("tcp", r.plain); err == nil {
			defer c.Close()
		}
	}
	c, err := net.Dial("tcp", r.plain)
	if err == nil { // else it was sent away so soon
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the ninth connection: %v", err)
	}

	r = open(t, 8) // of requests half as many: one client has two
	r.lead(at(backend(t, false, func(http.ResponseWriter, *http.Request) { under.Add(1); <-hold })), nil)
	h2 := r.client(two)
	for range 2 {
		go func() {
			if resp, err := h2.Get("https://a.test/"); err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	for under.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	if code, text, header := r.ask(h2, "GET", "https://a.test/", nil); code != 503 || header.Get("Retry-After") == "" {
		t.Errorf("one request too many: %d %s", code, text)
	}
}

// TestEnds: a door that ends takes nobody in, and lets requests end that are under way.
func TestEnds(t *testing.T) {
	r := open(t, 100)
	began, hold := make(chan bool), make(chan bool)
	r.lead(at(backend(t, false, func(w http.ResponseWriter, _ *http.Request) { close(began); <-hold; fmt.Fprint(w, "done") })), nil)
	got := make(chan string)
	go func() {
		_, text, _ := r.ask(r.client(one), "GET", "http://a.test/", nil)
		got <- text
	}()
	<-began
	ended := make(chan bool)
	go func() { r.stop(); close(ended) }()
	for { // until it is closed
		c, err := net.Dial("tcp", r.plain)
		if err != nil {
			break
		}
		_ = c.Close()
		time.Sleep(time.Millisecond)
	}
	close(hold)
	if text := <-got; text != "done" {
		t.Error(text)
	}
	<-ended
}

// secrets answers for one Secret.
type secrets struct {
	api.Client
	now *corev1.Secret
	err error
}

func (s *secrets) Get(context.Context, *api.Kind, string, string) (api.Object, error) {
	return s.now, s.err
}

// TestBadSecrets: what is no certificate is told and takes none away.
func TestBadSecrets(t *testing.T) {
	cert, key := pair(t, "a.test", time.Now().Add(time.Hour))
	past, pastKey := pair(t, "a.test", time.Now().Add(-time.Hour))
	good := map[string][]byte{"tls.crt": cert, "tls.key": key}
	s := &secrets{}
	c := certificates{client: s}
	name := types.NamespacedName{Namespace: "n", Name: "tls"}
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "i"}, Spec: networkingv1.IngressSpec{
		TLS: []networkingv1.IngressTLS{{SecretName: "tls"}}}}
	for n, tt := range []struct {
		data map[string][]byte
		err  error
		want bool // there is one
		said string
	}{
		{nil, apierrors.NewNotFound(api.Secrets.GR(), "tls"), false, "no such secret"},
		{map[string][]byte{"tls.crt": []byte("x")}, nil, false, "failed to find any PEM"},
		{map[string][]byte{"tls.crt": cert, "tls.key": pastKey}, nil, false, "private key does not match"},
		{good, nil, true, ""},
		{nil, apierrors.NewServiceUnavailable("away"), true, ""},
		{map[string][]byte{"tls.crt": bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\n"), 1000)}, nil, true, "failed to find any PEM"},
		{nil, apierrors.NewNotFound(api.Secrets.GR(), "tls"), true, "no such secret"},
		{map[string][]byte{"tls.crt": past, "tls.key": pastKey}, nil, true, "has run out"},
		{good, nil, true, ""},
	} {
		s.now, s.err = &corev1.Secret{Data: tt.data, ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(n)}}, tt.err
		c.want([]types.NamespacedName{name})
		c.read(t.Context(), name)
		said := ""
		for _, f := range c.lacking([]*networkingv1.Ingress{i}) {
			said += f.Message
		}
		if (c.of(name) != nil) != tt.want || (said == "") != (tt.said == "") || !strings.Contains(said, tt.said) {
			t.Errorf("%d: certificate %v, said %q", n, c.of(name) != nil, said)
		}
	}
	c.want(nil)
	if c.of(name) != nil {
		t.Error("a certificate that nobody names")
	}
}

// slowly takes a time for each read, and notes them.
type slowly struct {
	api.Client
	takes time.Duration
	mu    sync.Mutex
	read  map[string]int
	order []string
}

func (s *slowly) Get(ctx context.Context, _ *api.Kind, _, name string) (api.Object, error) {
	s.mu.Lock()
	s.read[name]++
	s.order = append(s.order, name)
	takes := s.takes
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(takes):
		return nil, apierrors.NewNotFound(api.Secrets.GR(), name)
	}
}

// TestSecretsInTurn: however long a round of reads takes, none is left out, new ones come first, and nobody waits for them.
func TestSecretsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &slowly{takes: time.Second, read: map[string]int{}}
		c := certificates{client: s, wake: make(chan struct{}, 1)}
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Hour)
		if c.whole.Load() || len(s.order) > 0 {
			t.Error("whole before anything is wanted")
		}
		var want []types.NamespacedName
		for i := range 60 { // a minute for one round
			want = append(want, types.NamespacedName{Namespace: "n", Name: fmt.Sprintf("s%02d", i)})
		}
		c.want(want)
		time.Sleep(30 * time.Second)
		if c.whole.Load() {
			t.Error("whole before each was read")
		}
		time.Sleep(31 * time.Second)
		s.mu.Lock()
		if len(s.read) != 60 || !c.whole.Load() {
			t.Errorf("%d of 60 were read in a minute, whole %v", len(s.read), c.whole.Load())
		}
		s.mu.Unlock()
		c.want(append(want, types.NamespacedName{Namespace: "n", Name: "new"}))
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		if s.read["new"] != 1 {
			t.Error("a new one waits for the old ones")
		}
		s.mu.Unlock()
		time.Sleep(10 * time.Minute)
		least, most := 1000, 0
		s.mu.Lock()
		for _, n := range s.read {
			least, most = min(least, n), max(most, n)
		}
		s.mu.Unlock()
		if least < 9 || most > 13 {
			t.Errorf("in ten rounds one was read %d times, another %d times", least, most)
		}
		s.mu.Lock()
		s.takes = time.Hour // the API hangs: the table does not
		s.mu.Unlock()
		d := follower{certs: certificates{client: s}, ingresses: api.NewView[*networkingv1.Ingress](s, networking.Ingresses, api.Selection{}),
			classes: api.NewView[*networkingv1.IngressClass](s, networking.IngressClasses, api.Selection{})}
		before := time.Now()
		if d.renew(); d.present.Load() == nil || time.Since(before) > 0 {
			t.Error("the table waits for certificates")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestRoom: one namespace leaves room for others, and what is held may change and go.
func TestRoom(t *testing.T) {
	d := newFollower(nil, nil)
	name := func(namespace string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("s", i), Labels: map[string]string{discoveryv1.LabelServiceName: "s"}}
	}
	service := func(namespace string, i int) api.Object { return &corev1.Service{ObjectMeta: name(namespace, i)} }
	slice := func(namespace string, i int) api.Object {
		return &discoveryv1.EndpointSlice{ObjectMeta: name(namespace, i), AddressType: discoveryv1.AddressTypeIPv4}
	}
	var services, slices []api.Object
	for i := range mostSlices {
		services, slices = append(services, service("greedy", i)), append(slices, slice("greedy", i))
	}
	check := func(when string, wantServices, wantSlices int) {
		t.Helper()
		if a, b := len(d.services.of), len(d.slices.of); a != wantServices || b != wantSlices {
			t.Errorf("%s: %d services and %d slices, want %d and %d", when, a, b, wantServices, wantSlices)
		}
	}
	d.allServices(services)
	d.allSlices(slices)
	check("one namespace", mostServices/2, mostSlices/2)
	d.oneService(api.Event{Type: api.Added, Object: service("other", 1)})
	d.oneSlice(api.Event{Type: api.Added, Object: slice("other", 1)})
	check("another one", mostServices/2+1, mostSlices/2+1)
	changed := slice("greedy", 0).(*discoveryv1.EndpointSlice)
	changed.AddressType = discoveryv1.AddressTypeIPv6
	d.oneSlice(api.Event{Type: api.Modified, Object: changed})
	if check("changed", mostServices/2+1, mostSlices/2+1); !d.slices.of[api.Key(changed)].V6 {
		t.Error("no room for a change")
	}
	d.allServices(services[:1])
	d.allSlices(slices[:1])
	check("most have gone", 1, 1)
	d.oneService(api.Event{Type: api.Deleted, Object: services[0]})
	d.oneSlice(api.Event{Type: api.Deleted, Object: slices[0]})
	if check("all have gone", 0, 0); len(d.services.has)+len(d.slices.has) > 0 {
		t.Errorf("still counted: %v %v", d.services.has, d.slices.has)
	}
}

type told []string

func (s *told) Event(o api.Object, _, reason, _ string) { *s = append(*s, o.GetName()+" "+reason) }

// TestFaults: what lasts is told once, and again when it came back.
func TestFaults(t *testing.T) {
	var f faults
	var to told
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "i"}}
	bad := []ingress.Fault{{Ingress: i, Reason: "Bad"}}
	now := time.Now()
	for n, step := range []struct {
		after time.Duration
		all   []ingress.Fault
		want  int
	}{{0, bad, 0}, {faultAfter / 2, bad, 0}, {faultAfter, bad, 1}, {time.Hour, bad, 1}, {0, nil, 1}, {0, bad, 1}, {faultAfter, bad, 2}} {
		now = now.Add(step.after)
		if f.tell(now, step.all, &to); len(to) != step.want {
			t.Errorf("step %d: told %v", n, to)
		}
	}
	_ = networking.Pods
}

// TestBackendGoes: while many ask, an endpoint ends before anybody hears of it. Those who only read lose nothing.
func TestBackendGoes(t *testing.T) {
	r := open(t, 200)
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	stays, goes := backend(t, false, ok), httptest.NewServer(ok)
	r.lead(at(stays, netip.MustParseAddrPort(goes.Listener.Addr().String())), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		c := r.client(one)
		all.Go(func() {
			for ctx.Err() == nil {
				if code, text, _ := r.ask(c, "GET", "http://a.test/", nil); code != 200 {
					t.Errorf("%d %s", code, text)
				}
				asked.Add(1)
			}
		})
	}
	more := func(n int64) {
		for until := asked.Load() + n; asked.Load() < until; time.Sleep(time.Millisecond) {
		}
	}
	more(200)
	goes.Close()
	more(200)
	cancel()
	all.Wait()
}
