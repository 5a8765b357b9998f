package kubeport_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/node/kubeport"
)

// ca signs certificates of clients and of the port.
type ca struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newCA(t *testing.T) *ca {
	t.Helper()
	c := &ca{t: t}
	c.key, c.cert = c.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(1000 * time.Hour)})
	return c
}

func (c *ca) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw}))
}

func (c *ca) sign(of *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(c.t, err)
	return key, c.signFor(of, key.Public(), key)
}

func (c *ca) signFor(of *x509.Certificate, pub any, self *ecdsa.PrivateKey) *x509.Certificate {
	c.t.Helper()
	of.SerialNumber, of.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour)
	parent, signer := c.cert, c.key
	if parent == nil {
		parent, signer = of, self
	}
	der, err := x509.CreateCertificate(rand.Reader, of, parent, pub, signer)
	must(c.t, err)
	cert, err := x509.ParseCertificate(der)
	must(c.t, err)
	return cert
}

// client is a certificate of a user, good for so long.
func (c *ca) client(user, group string, life time.Duration) tls.Certificate {
	key, cert := c.sign(&x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: []string{group}},
		NotAfter: time.Now().Add(life), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// plane is a played API server. Only what the test says is there.
type plane struct {
	t *testing.T

	mu     sync.Mutex
	asked  map[string]int // by path
	fails  error          // instead of answers to reviews
	hangs  bool
	tokens map[string]string // the users of tokens for it
	rights map[string]string // by user and verb, the subresources
	caText string            // of its clients; empty: it may not be read
	signs  *ca
	csrs   map[string]map[string]any
}

var _ kubeport.Plane = (*plane)(nil)

func newPlane(t *testing.T) *plane {
	return &plane{t: t, asked: map[string]int{}, tokens: map[string]string{}, rights: map[string]string{}, csrs: map[string]map[string]any{}}
}

// change changes what it is while it is asked.
func (p *plane) change(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

func (p *plane) Ask(ctx context.Context, verb, path string, in, out any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[path]++
	if strings.HasSuffix(path, "reviews") {
		if p.hangs {
			p.mu.Unlock()
			<-ctx.Done()
			p.mu.Lock()
			return apierrors.NewServiceUnavailable(ctx.Err().Error())
		}
		if p.fails != nil {
			return p.fails
		}
	}
	switch in := in.(type) {
	case authenticationv1.TokenReview:
		if user, ok := p.tokens[in.Spec.Token]; ok {
			in.Status.Authenticated, in.Status.User.Username = true, user
		}
		*out.(*authenticationv1.TokenReview) = in
		return nil
	case authorizationv1.SubjectAccessReview:
		a := in.Spec.ResourceAttributes
		for _, sub := range strings.Fields(p.rights[in.Spec.User+" "+a.Verb]) {
			if sub == a.Subresource && a.Name == "pi" && a.Resource == "nodes" {
				in.Status.Allowed = true
			}
		}
		*out.(*authorizationv1.SubjectAccessReview) = in
		return nil
	}
	var answer any
	switch name := path[strings.LastIndex(path, "/")+1:]; {
	case name == "extension-apiserver-authentication":
		if p.caText == "" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, name, nil)
		}
		answer = map[string]any{"data": map[string]string{"client-ca-file": p.caText}}
	case verb == http.MethodPost:
		made := map[string]any{}
		copyJSON(p.t, in, &made)
		p.csrs[made["metadata"].(map[string]any)["name"].(string)] = made
		answer = made
	case p.csrs[name] == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "certificatesigningrequests"}, name)
	default:
		answer = p.csrs[name]
	}
	copyJSON(p.t, answer, out)
	return nil
}

func copyJSON(t *testing.T, from, to any) {
	t.Helper()
	data, err := json.Marshal(from)
	must(t, err)
	must(t, json.Unmarshal(data, to))
}

// approve signs what has been asked for, as kubernetes.io/kubelet-serving does.
func (p *plane) approve(name string, life time.Duration) *x509.Certificate {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	spec := p.csrs[name]["spec"].(map[string]any)
	var said struct {
		Request []byte
		Signer  string `json:"signerName"`
		Usages  []string
	}
	copyJSON(p.t, spec, &said)
	block, _ := pem.Decode(said.Request)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	must(p.t, err)
	must(p.t, r.CheckSignature())
	if said.Signer != "kubernetes.io/kubelet-serving" || r.Subject.CommonName != "system:node:pi" || len(r.Subject.Organization) != 1 ||
		r.Subject.Organization[0] != "system:nodes" || strings.Join(said.Usages, ",") != "digital signature,server auth" {
		p.t.Fatalf("no request that would be signed: %v %v %v", said.Signer, r.Subject, said.Usages)
	}
	cert := p.signs.signFor(&x509.Certificate{Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses,
		NotAfter: time.Now().Add(life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, r.PublicKey, nil)
	p.csrs[name]["status"] = map[string]any{"certificate": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})}
	return cert
}

func (p *plane) names() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.csrs {
		out = append(out, name)
	}
	return out
}

func (p *plane) times(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shows is the certificate that the port meets a connection with.
func shows(t *testing.T, p *kubeport.Port) *x509.Certificate {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		s := tls.Server(there, p.TLS())
		_ = s.Handshake()
		there.Close()
	}()
	c := tls.Client(here, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // what it shows is looked at
	must(t, c.Handshake())
	return c.ConnectionState().PeerCertificates[0]
}
