package join

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/rest"
)

const tokenText = "abcdef.0123456789abcdef"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ticket(t *testing.T, text string) *Ticket {
	t.Helper()
	out, ok, err := Parse(text)
	if err != nil || !ok {
		t.Fatalf("%q: %v", text, err)
	}
	return &out
}

func TestParse(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0a", 32)
	for text, want := range map[string]struct {
		token, fails string
		pins         int
	}{
		tokenText:                           {token: tokenText},
		tokenText + " " + hash:              {token: tokenText, pins: 1},
		tokenText + " " + hash + "," + hash: {token: tokenText, pins: 2},
		"kubeadm join 10.0.0.1:6443 --token " + tokenText + " --discovery-token-ca-cert-hash " + hash + "\n": {token: tokenText, pins: 1},
		"ledge agent --token=" + tokenText + " --ca-hash=" + hash:                                            {token: tokenText, pins: 1},
		"ledge1.AAAA":                          {},
		"":                                     {},
		"ABCDEF.0123456789abcdef":              {},
		"abcdef.0123456789abcde":               {},
		"abcdef.0123456789abcdefa":             {},
		"abcdef0123456789abcdef":               {},
		tokenText + " sha256:12":               {fails: "64 hexadecimal"},
		tokenText + " sha256:zz":               {fails: "64 hexadecimal"},
		tokenText + " fedcba.0123456789abcdef": {fails: "two tokens"},
		tokenText + strings.Repeat(" "+hash, mostPins+1): {fails: "no hash"},
	} {
		got, ok, err := Parse(text)
		switch {
		case want.fails != "":
			if err == nil || !strings.Contains(err.Error(), want.fails) {
				t.Errorf("%q: %v", text, err)
			}
		case err != nil || ok != (want.token != "") || ok && got.Token() != want.token || len(got.Pins) != want.pins:
			t.Errorf("%q: %v %t %v", text, got, ok, err)
		}
	}
}

// ca is one that signs.
type ca struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newCA(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &ca{key, cert}
}

func (c *ca) pin() string {
	sum := sha256.Sum256(c.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// sign makes a certificate; change may spoil it.
func (c *ca) sign(t *testing.T, subject pkix.Name, pub any, change func(*x509.Certificate)) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: subject, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, pub, c.key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func sign(id, secret, payload string) string {
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"` + id + `"}`))
	return head + ".." + mac(secret, head, payload)
}

func mac(secret, head, payload string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(head + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func clusterInfo(cas ...*ca) string {
	var bundle []byte
	for _, c := range cas {
		bundle = append(bundle, encode([]*x509.Certificate{c.cert})...)
	}
	return "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://elsewhere:6443\n    certificate-authority-data: " +
		base64.StdEncoding.EncodeToString(bundle) + "\n"
}

// TestBelieve: only what the token's secret has signed is read, and of its CAs only what is pinned is trusted.
func TestBelieve(t *testing.T) {
	right, other := newCA(t), newCA(t)
	info := clusterInfo(right)
	good := map[string]string{"kubeconfig": info, "jws-kubeconfig-abcdef": sign("abcdef", "0123456789abcdef", info)}
	with := func(key, value string) map[string]string {
		out := map[string]string{key: value}
		for k, v := range good {
			if _, ok := out[k]; !ok {
				out[k] = v
			}
		}
		return out
	}
	signed := func(info string) map[string]string {
		return map[string]string{"kubeconfig": info, "jws-kubeconfig-abcdef": sign("abcdef", "0123456789abcdef", info)}
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"abcdef"}`))
	crit := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"abcdef","crit":["b64"]}`))
	const jws = "jws-kubeconfig-abcdef"
	for name, tc := range map[string]struct {
		data  map[string]string
		pins  string
		fails string
		cas   int
	}{
		"good":                    {data: good, cas: 1},
		"pinned":                  {data: good, pins: right.pin(), cas: 1},
		"one of two pins":         {data: good, pins: other.pin() + " " + right.pin(), cas: 1},
		"another beside it":       {data: signed(clusterInfo(other, right)), pins: right.pin(), cas: 1},
		"two, no pin":             {data: signed(clusterInfo(other, right)), cas: 2},
		"wrong pin":               {data: good, pins: other.pin(), fails: "not the control plane"},
		"no kubeconfig":           {data: map[string]string{}, fails: "no kubeconfig"},
		"not signed":              {data: map[string]string{"kubeconfig": info}, fails: "not signed with token abcdef"},
		"another token's":         {data: map[string]string{"kubeconfig": info, "jws-kubeconfig-fedcba": good[jws]}, fails: "not signed"},
		"another secret":          {data: with(jws, sign("abcdef", "0123456789abcdeF", info)), fails: "does not know the token"},
		"another kid":             {data: with(jws, sign("fedcba", "0123456789abcdef", info)), fails: "not HS256 with token"},
		"changed":                 {data: with("kubeconfig", clusterInfo(other)), fails: "signature of its cluster-info is wrong"},
		"alg none":                {data: with(jws, none+".."), fails: "not HS256"},
		"alg none, signed":        {data: with(jws, none+".."+mac("0123456789abcdef", none, info)), fails: "not HS256"},
		"critical":                {data: with(jws, crit+".."+mac("0123456789abcdef", crit, info)), fails: "not HS256"},
		"no signature":            {data: with(jws, good[jws][:strings.LastIndex(good[jws], ".")+1]), fails: "is wrong"},
		"a payload":               {data: with(jws, strings.Replace(good[jws], "..", ".e30.", 1)), fails: "detached"},
		"dots":                    {data: with(jws, "...."), fails: "detached"},
		"empty":                   {data: with(jws, ""), fails: "detached"},
		"no YAML":                 {data: signed("{"), fails: "cannot be read"},
		"no cluster":              {data: signed("clusters: []"), fails: "0 clusters"},
		"no CA":                   {data: signed("clusters: [{cluster: {server: x}}]"), fails: "no certificate"},
		"more CAs than there are": {data: signed(clusterInfo(slices.Repeat([]*ca{right}, mostCAs+1)...)), fails: "more than 16"},
	} {
		cas, err := ticket(t, tokenText+" "+tc.pins).believe(tc.data)
		switch {
		case tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)):
			t.Errorf("%s: %v", name, err)
		case tc.fails == "" && (err != nil || len(cas) != tc.cas):
			t.Errorf("%s: %d, %v", name, len(cas), err)
		case tc.pins == right.pin() && tc.fails == "" && !cas[0].Equal(right.cert):
			t.Errorf("%s: another CA is trusted", name)
		}
	}
}

// played is a control plane as it should be, whose answers a test changes.
type played struct {
	t       *testing.T
	ca      *ca
	server  *httptest.Server
	approve bool                                                    // without anybody
	issue   func(t *testing.T, req *x509.CertificateRequest) []byte // nil: as it should be

	mu       sync.Mutex
	asked    []string // who asked for what
	requests map[string]*signingRequest
	instead  func(w http.ResponseWriter, r *http.Request) bool // true: answered
}

func play(t *testing.T) *played {
	p := &played{t: t, ca: newCA(t), requests: map[string]*signingRequest{}, approve: true}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	p.server = httptest.NewUnstartedServer(p)
	leaf := p.ca.sign(t, pkix.Name{CommonName: "kube-apiserver"}, key.Public(), func(c *x509.Certificate) {
		c.ExtKeyUsage, c.NotAfter = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, p.ca.cert.NotAfter
	})
	block, _ := pem.Decode(leaf)
	p.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: key}}}
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	return p
}

func (p *played) who(r *http.Request) string {
	if len(r.TLS.PeerCertificates) > 0 {
		c := r.TLS.PeerCertificates[0]
		if c.CheckSignatureFrom(p.ca.cert) != nil || time.Now().After(c.NotAfter) {
			return "nobody"
		}
		return c.Subject.CommonName
	}
	switch r.Header.Get("Authorization") {
	case "":
		return "anonymous"
	case "Bearer " + tokenText:
		return "bootstrap"
	case "Bearer admin":
		return "admin"
	}
	return "nobody"
}

func (p *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who := p.who(r)
	p.asked = append(p.asked, who+" "+r.Method+" "+r.URL.Path)
	if p.instead != nil && p.instead(w, r) {
		return
	}
	refuse := func(code int) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","message":"%s: no"}`, who)
	}
	name, isRequest := strings.CutPrefix(r.URL.Path, requestsPath+"/")
	switch {
	case who == "nobody":
		refuse(401)
	case r.URL.Path == clusterInfoPath:
		info := clusterInfo(p.ca)
		_ = json.NewEncoder(w).Encode(configMap{map[string]string{"kubeconfig": info, "jws-kubeconfig-abcdef": sign("abcdef", "0123456789abcdef", info)}})
	case who == "anonymous":
		refuse(401)
	case strings.HasSuffix(r.URL.Path, "/extension-apiserver-authentication") && who == "admin":
		_ = json.NewEncoder(w).Encode(configMap{map[string]string{"client-ca-file": string(encode([]*x509.Certificate{p.ca.cert}))}})
	case r.Method == http.MethodPost && r.URL.Path == requestsPath:
		var csr signingRequest
		must(p.t, json.NewDecoder(r.Body).Decode(&csr))
		p.requests[csr.Name] = &csr
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(&csr)
		if p.approve {
			csr.Status.Conditions = []condition{{Type: "Approved", Status: "True"}}
			p.give(&csr)
		}
	case isRequest && r.Method == http.MethodPut && strings.HasSuffix(name, "/approval") && who == "admin":
		csr := p.requests[strings.TrimSuffix(name, "/approval")]
		must(p.t, json.NewDecoder(r.Body).Decode(csr))
		_ = json.NewEncoder(w).Encode(csr)
		p.give(csr)
	case isRequest && r.Method == http.MethodGet && p.requests[name] != nil:
		_ = json.NewEncoder(w).Encode(p.requests[name])
	default:
		refuse(404)
	}
}

// give signs a request.
func (p *played) give(csr *signingRequest) {
	block, _ := pem.Decode(csr.Spec.Request)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	must(p.t, err)
	if p.issue != nil {
		csr.Status.Certificate = p.issue(p.t, req)
		return
	}
	csr.Status.Certificate = p.ca.sign(p.t, req.Subject, req.PublicKey, nil)
}

func (p *played) config(t *testing.T, with *Ticket) Config {
	return Config{Dir: filepath.Join(t.TempDir(), "kubernetes"), Node: "pi1", Server: p.server.URL, Ticket: with, Now: time.Now}
}

// open is one that is closed when the test ends.
func open(t *testing.T, c Config) *Node {
	t.Helper()
	n, err := Open(c)
	must(t, err)
	t.Cleanup(n.Close)
	return n
}

// joined asks until it is no more pending.
func joined(t *testing.T, n *Node) error {
	t.Helper()
	err := n.Join(t.Context())
	if _, ok := errors.AsType[*Pending](err); ok {
		err = n.Join(t.Context())
	}
	return err
}

// TestJoin: a board joins by a ticket, keeps who it is, shows its token to nobody unverified, and renews by what it is.
func TestJoin(t *testing.T) {
	p := play(t)
	c := p.config(t, ticket(t, tokenText+" "+p.ca.pin()))
	left := 0
	c.Leaving = func() error {
		left++
		if _, err := os.Stat(filepath.Join(c.Dir, pairFile)); err == nil {
			t.Error("two identities at a time")
		}
		return nil
	}
	n := open(t, c)
	if _, err := Open(c); err == nil {
		t.Error("opened twice")
	}
	if n.Joined() || n.RenewIn() != 0 {
		t.Error("joined before it has asked")
	}
	must(t, joined(t, n))
	if !n.Joined() || left != 1 || n.RenewIn() < 30*time.Minute || n.RenewIn() > 55*time.Minute {
		t.Error(left, n.RenewIn())
	}
	for _, name := range []string{pairFile, kubeconfigFile, clientCAFile} {
		if info, err := os.Stat(filepath.Join(c.Dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(name, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(c.Dir, nextFile)); err == nil {
		t.Error("the next key is still there")
	}
	if at, ok := JoinedAt(c.Dir); !ok || at != p.server.URL || Trouble(c.Dir, time.Now()) != "" {
		t.Error(at, ok, Trouble(c.Dir, time.Now()))
	}
	// The agent's client reads what is kept, and comes as the board.
	p.asked = nil
	client, err := rest.FromKubeconfig(Kubeconfig(c.Dir))
	must(t, err)
	defer client.Close()
	if _, err := client.Get(t.Context(), api.Nodes, "", "pi1"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if !slices.Equal(p.asked, []string{"system:node:pi1 GET /api/v1/nodes/pi1"}) {
		t.Error(p.asked)
	}
	p.asked = nil
	before := n.chain[0]
	if err := n.Renew(t.Context()); err != nil {
		if err = n.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n.chain[0].Equal(before) || before.PublicKey.(*ecdsa.PublicKey).Equal(n.chain[0].PublicKey) || left != 1 {
		t.Error("the certificate is not another one, of another key")
	}
	for _, line := range p.asked {
		if !strings.HasPrefix(line, "system:node:pi1 ") {
			t.Error("renewed by", line)
		}
	}
}

// TestCutOff: a board that is cut off while its request waits asks for the same one, and finds the answer.
func TestCutOff(t *testing.T) {
	p := play(t)
	p.approve = false
	c := p.config(t, ticket(t, tokenText))
	for range 3 {
		n, err := Open(c)
		must(t, err)
		err = n.Join(t.Context())
		waits, ok := errors.AsType[*Pending](err)
		if !ok || !strings.Contains(err.Error(), "kubectl certificate approve "+waits.Name) || len(p.requests) != 1 {
			t.Fatal(err, len(p.requests))
		}
		if why := Trouble(c.Dir, time.Now()); !strings.Contains(why, "kubectl certificate approve "+waits.Name) {
			t.Error(why)
		}
		n.Close()
	}
	for _, csr := range p.requests {
		csr.Status.Conditions = []condition{{Type: "Approved", Status: "True"}}
	}
	n := open(t, c)
	if err := n.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "kube-controller-manager") {
		t.Error(err)
	}
	for _, csr := range p.requests {
		p.give(csr)
	}
	must(t, n.Join(t.Context()))
	// The request may be collected while it waits: the board asks again.
	p.requests = map[string]*signingRequest{}
	_ = n.Renew(t.Context())
	p.requests = map[string]*signingRequest{}
	_ = n.Renew(t.Context())
	if len(p.requests) != 1 {
		t.Error("it was not asked again")
	}
}

// TestLies: no certificate is kept that was not asked for, and none of what a server makes up harms the board.
func TestLies(t *testing.T) {
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	node := pkix.Name{CommonName: "system:node:pi1", Organization: []string{"system:nodes"}}
	issue := func(subject pkix.Name, change func(*x509.Certificate)) func(p *played) {
		return func(p *played) {
			p.issue = func(t *testing.T, req *x509.CertificateRequest) []byte {
				return p.ca.sign(t, subject, req.PublicKey, change)
			}
		}
	}
	status := func(kind string) func(p *played) {
		return func(p *played) {
			p.issue = func(*testing.T, *x509.CertificateRequest) []byte {
				for _, csr := range p.requests {
					csr.Status.Conditions = []condition{{Type: kind, Status: "True", Reason: "Nope"}}
				}
				return nil
			}
		}
	}
	answers := func(path string, do func(w http.ResponseWriter)) func(p *played) {
		return func(p *played) {
			p.instead = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, path) {
					do(w)
					return true
				}
				return false
			}
		}
	}
	for name, tc := range map[string]struct {
		spoil func(*played)
		fails string
		final bool
	}{
		"another name":  {issue(pkix.Name{CommonName: "system:node:pi2", Organization: node.Organization}, nil), "is for \"system:node:pi2\"", true},
		"another group": {issue(pkix.Name{CommonName: node.CommonName, Organization: []string{"system:masters"}}, nil), "group system:nodes", true},
		"another key": {func(p *played) {
			p.issue = func(t *testing.T, _ *x509.CertificateRequest) []byte {
				return p.ca.sign(t, node, another.Public(), nil)
			}
		}, "another key; have", true},
		"for servers": {issue(node, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "not for clients", true},
		"ended":       {issue(node, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }), "has ended already", true},
		"garbage":     {func(p *played) { p.issue = func(*testing.T, *x509.CertificateRequest) []byte { return []byte("x") } }, "cannot be read: no certificate", true},
		"denied":      {status("Denied"), "is denied (Nope", true},
		"failed":      {status("Failed"), "is not signed (Nope", true},
		"a stranger's request": {func(p *played) {
			p.instead = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasPrefix(r.URL.Path, requestsPath+"/") {
					return false
				}
				der, _ := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: node}, another)
				var csr signingRequest
				csr.Spec.SignerName, csr.Spec.Request = signerName, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
				csr.Status.Certificate = p.ca.sign(p.t, node, another.Public(), nil)
				_ = json.NewEncoder(w).Encode(&csr)
				return true
			}
		}, "not the one that this board has made", true},
		"the token has ended": {answers(requestsPath, func(w http.ResponseWriter) { w.WriteHeader(401) }), "kubeadm token create", true},
		"no rights":           {answers(requestsPath, func(w http.ResponseWriter) { w.WriteHeader(403) }), "node-bootstrapper", true},
		"500":                 {answers(requestsPath, func(w http.ResponseWriter) { w.WriteHeader(500) }), "500", false},
		"no cluster-info":     {answers(clusterInfoPath, func(w http.ResponseWriter) { w.WriteHeader(404) }), "ledge join --kubeconfig", false},
		"a long complaint": {answers(clusterInfoPath, func(w http.ResponseWriter) {
			w.WriteHeader(500)
			fmt.Fprintf(w, `{"message":%q}`, strings.Repeat("x", 100000))
		}), "xxx...", false},
		"huge": {answers(clusterInfoPath, func(w http.ResponseWriter) {
			for range answerBytes/1000 + 2 {
				_, _ = w.Write(make([]byte, 1000))
			}
		}), "more than", false},
		"a redirect": {answers(clusterInfoPath, func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://127.0.0.1:1/")
			w.WriteHeader(302)
		}), "302", false},
		"no JSON": {answers(clusterInfoPath, func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }), "not what was asked", false},
	} {
		p := play(t)
		tc.spoil(p)
		n := open(t, p.config(t, ticket(t, tokenText+" "+p.ca.pin())))
		err := joined(t, n)
		_, final := errors.AsType[*Refusal](err)
		if err == nil || !strings.Contains(err.Error(), tc.fails) || final != tc.final || n.Joined() || len(err.Error()) > 1000 {
			t.Errorf("%s: %v, final %t", name, err, final)
		}
		if final && len(p.requests) > 0 && p.instead == nil && !strings.Contains(err.Error(), "kubectl delete csr node-csr-") {
			t.Errorf("%s: nobody can act on %v", name, err)
		}
	}
}

// TestStranger: who has another CA is shown no token, even if it knows the secret of the signature.
func TestStranger(t *testing.T) {
	p, right := play(t), newCA(t)
	n := open(t, p.config(t, ticket(t, tokenText+" "+right.pin())))
	if err := n.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "not the control plane") {
		t.Error(err)
	}
	// A cluster-info that was taken from the right one does not help either.
	info := clusterInfo(right)
	p.instead = func(w http.ResponseWriter, r *http.Request) bool {
		_ = json.NewEncoder(w).Encode(configMap{map[string]string{"kubeconfig": info, "jws-kubeconfig-abcdef": sign("abcdef", "0123456789abcdef", info)}})
		return true
	}
	if err := n.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
	for _, line := range p.asked {
		if !strings.HasPrefix(line, "anonymous ") {
			t.Error("it was told", line)
		}
	}
}

// TestSlow: a server that never ends its answer holds the board no longer than the bound.
func TestSlow(t *testing.T) {
	p := play(t)
	ctx, cancel := context.WithCancel(t.Context()) // as the bound does
	defer cancel()
	gone := make(chan struct{})
	p.instead = func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		close(gone)
		return true
	}
	n := open(t, p.config(t, ticket(t, tokenText)))
	if err := n.Join(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-gone
}

// TestAfterAMonth: a certificate that has ended is replaced by a ticket, if there is one, and otherwise the board says what to do.
func TestAfterAMonth(t *testing.T) {
	p := play(t)
	c := p.config(t, ticket(t, tokenText))
	n := open(t, c)
	must(t, joined(t, n))
	n.Close()

	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	p.issue = func(t *testing.T, req *x509.CertificateRequest) []byte {
		return p.ca.sign(t, req.Subject, req.PublicKey, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(1000 * time.Hour) })
	}
	c.Now, c.Ticket = later, nil
	n = open(t, c)
	err := n.Renew(t.Context())
	if err == nil || !strings.Contains(err.Error(), "kubeadm token create") || n.RenewIn() != 0 {
		t.Error(err)
	}
	if why := Trouble(c.Dir, later()); err == nil || why != err.Error() {
		t.Error(why)
	}
	n.Close()

	p.asked = nil
	c.Ticket, c.Server = ticket(t, tokenText+" "+p.ca.pin()), "" // the board knows where it has joined
	n = open(t, c)
	if err := n.Renew(t.Context()); err != nil {
		must(t, n.Renew(t.Context()))
	}
	if n.RenewIn() == 0 || Trouble(c.Dir, later()) != "" || !strings.Contains(strings.Join(p.asked, "\n"), "bootstrap POST") {
		t.Error(n.RenewIn(), Trouble(c.Dir, later()), p.asked)
	}
	n.Close()

	c.Ticket = ticket(t, tokenText+" "+newCA(t).pin())
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "another one's CA") {
		t.Error("a ticket for another control plane:", err)
	}
	c.Ticket, c.Server = ticket(t, tokenText), "https://127.0.0.1:1"
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "to move it, remove "+c.Dir) || !strings.Contains(err.Error(), p.server.URL) {
		t.Error("a token of another control plane, without a hash:", err)
	}
	for _, same := range []string{p.server.URL, p.server.URL + "/", strings.ToUpper(p.server.URL[:5]) + p.server.URL[5:]} {
		c.Server = same
		n, err := Open(c)
		must(t, err)
		n.Close()
	}
	c.Ticket, c.Server = ticket(t, tokenText+" "+p.ca.pin()), "https://127.0.0.1:1" // the hash proves that it is another way to the same one
	n, err = Open(c)
	must(t, err)
	n.Close()
	c.Ticket, c.Node = nil, "pi2"
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "--hostname-override pi1") {
		t.Error("another name:", err)
	}
	must(t, os.WriteFile(filepath.Join(c.Dir, pairFile), []byte("torn"), 0o600))
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "damaged") || Trouble(c.Dir, later()) == "" {
		t.Error("damaged:", err)
	}
}

// asAdmin adds an administrator's token.
type asAdmin struct{ http.RoundTripper }

func (a asAdmin) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer admin")
	return a.RoundTripper.RoundTrip(r)
}

// TestJoinBy: an administrator's way in makes the board a node, and nothing of it is kept.
func TestJoinBy(t *testing.T) {
	p := play(t)
	p.approve = false
	c := p.config(t, nil)
	n := open(t, c)
	if _, ok := errors.AsType[*Refusal](n.Join(t.Context())); !ok {
		t.Error("joined without anything")
	}
	roots := encode([]*x509.Certificate{p.ca.cert})
	who := Administrator{Server: p.server.URL, CA: roots, HTTP: &http.Client{Transport: asAdmin{&http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: poolOf([]*x509.Certificate{p.ca.cert})}, DisableKeepAlives: true}}}}
	clients, err := n.JoinBy(t.Context(), who)
	if err != nil || !clients || !n.Joined() {
		t.Fatal(clients, err)
	}
	entries, err := os.ReadDir(c.Dir)
	must(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(c.Dir, e.Name()))
		must(t, err)
		if strings.Contains(string(data), "admin") {
			t.Error(e.Name(), "has something of the administrator's")
		}
	}
	p.approve = true
	if err := n.Renew(t.Context()); err != nil {
		must(t, n.Renew(t.Context()))
	}
	// The control plane decides at the same moment: who comes second looks again.
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		p.requests, p.approve = map[string]*signingRequest{}, method == http.MethodPost
		lost := 0
		p.instead = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method || lost > 0 {
				return false
			}
			lost++
			for _, csr := range p.requests {
				csr.Status.Conditions = []condition{{Type: "Approved", Status: "True"}}
				p.give(csr)
			}
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"kind":"Status","message":"the object has been modified; please apply your changes to the latest version and try again"}`)
			return true
		}
		if _, err := n.JoinBy(t.Context(), who); err != nil || lost != 1 {
			t.Errorf("%s: %v after %d conflicts", method, err, lost)
		}
	}
	p.instead = nil
	// One that is never signed: it waits as long as it is told, and says for what.
	p.issue = func(*testing.T, *x509.CertificateRequest) []byte { return nil }
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := n.JoinBy(ctx, who); err == nil || !strings.Contains(err.Error(), "kube-controller-manager makes it") || !n.Joined() {
		t.Error(err)
	}
}

// TestRenewAt: always between seven and nine tenths of a life, and not for all boards at once.
func TestRenewAt(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := map[time.Duration]bool{}
	for i := range 200 {
		leaf := &x509.Certificate{Raw: []byte{byte(i)}, NotBefore: begin, NotAfter: begin.Add(1000 * time.Hour)}
		at := renewAt(leaf).Sub(begin)
		if at < 700*time.Hour || at > 900*time.Hour {
			t.Error(at)
		}
		seen[at.Truncate(10*time.Hour)] = true
	}
	if len(seen) < 15 {
		t.Errorf("only %d times of 20", len(seen))
	}
}

// TestCutAfterKept: a power cut between the new certificate and the end of its request leaves no key that is asked for again.
func TestCutAfterKept(t *testing.T) {
	p := play(t)
	c := p.config(t, ticket(t, tokenText))
	n := open(t, c)
	must(t, joined(t, n))
	n.Close()
	data, err := encodePair(n.key, nil)
	must(t, err)
	next := filepath.Join(c.Dir, nextFile)
	must(t, os.WriteFile(next, data, 0o600))
	n = open(t, c)
	if _, err := os.Stat(next); err == nil {
		t.Error("the present key is the next one too")
	}
	_, waits := errors.AsType[*Pending](n.Renew(t.Context()))
	n.Close()
	before, err := os.ReadFile(next)
	must(t, err)
	open(t, c)
	if after, err := os.ReadFile(next); err != nil || !waits || !slices.Equal(before, after) {
		t.Error("the key of a request that waits is gone:", err)
	}
}

// TestClockOfTheBoard: a board that knows by its floor what day it is believes that, not its clock that begins in the past.
func TestClockOfTheBoard(t *testing.T) {
	p := play(t)
	c := p.config(t, ticket(t, tokenText))
	n := open(t, c)
	must(t, joined(t, n))
	later := func() time.Time { return time.Now().Add(2000 * time.Hour) } // the CA has ended by then
	n.cfg.Now = later
	if err := n.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Error(err)
	}
}
