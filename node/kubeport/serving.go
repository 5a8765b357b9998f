package kubeport

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/durable"
)

// serving is the certificate that the port shows: of kubernetes.io/kubelet-serving once somebody has approved it, until then one of
// its own.
//
//	DIR/serving.pem   the key and the chain that was given for it
//	DIR/next.pem      the key that a certificate is asked for with; gone once it is there
type serving struct {
	plane Plane
	dir   string
	node  string

	given *tls.Certificate // nil: none was given yet
	own   *tls.Certificate // shown until then
	next  *ecdsa.PrivateKey

	asked   time.Time // the last request that was made
	refused error     // why it was not taken
}

const (
	servingFile = "serving.pem"
	nextFile    = "next.pem"
	maxFile     = 256 << 10

	signer      = "kubernetes.io/kubelet-serving"
	csrPath     = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	askPace     = time.Minute // between two requests that are made
	ownLife     = 365 * 24 * time.Hour
	ownSkew     = 24 * time.Hour // clocks of boards are wrong now and then
	mostServing = 8              // certificates of a chain
)

// request is a CertificateSigningRequest, as much of it as is used.
type request struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Request    []byte   `json:"request"`
		SignerName string   `json:"signerName"`
		Usages     []string `json:"usages"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type    string `json:"type"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"conditions,omitempty"`
		Certificate []byte `json:"certificate,omitempty"`
	} `json:"status,omitzero"`
}

// names are what a certificate must say the board is called, sorted.
type names struct {
	dns []string
	ips []net.IP
}

func namesOf(node string, addresses []corev1.NodeAddress) (n names) {
	n.dns = []string{node}
	for _, a := range addresses {
		if ip := net.ParseIP(a.Address); ip != nil {
			n.ips = append(n.ips, ip)
		} else if !slices.Contains(n.dns, a.Address) {
			n.dns = append(n.dns, a.Address)
		}
	}
	slices.Sort(n.dns)
	sort.Slice(n.ips, func(i, j int) bool { return bytes.Compare(n.ips[i].To16(), n.ips[j].To16()) < 0 })
	n.ips = slices.CompactFunc(n.ips, net.IP.Equal)
	return n
}

// in says whether a certificate has all of them.
func (n names) in(c *x509.Certificate) bool {
	return !slices.ContainsFunc(n.dns, func(s string) bool { return !slices.Contains(c.DNSNames, s) }) &&
		!slices.ContainsFunc(n.ips, func(ip net.IP) bool { return !slices.ContainsFunc(c.IPAddresses, ip.Equal) })
}

// open reads what is kept. What cannot be read is made anew: the key alone is no loss.
func (s *serving) open() {
	key, chain, err := s.load(servingFile)
	if err == nil && len(chain) > 0 && fits(key, chain[0]) {
		s.given = certificate(key, chain)
	}
	if key, _, err = s.load(nextFile); err != nil {
		return
	}
	if s.given == nil || !key.Equal(s.given.PrivateKey) {
		s.next = key
		return
	}
	// The power was cut after it had become the present one: another key is made when one is needed.
	if err := (durable.Disk{}).Remove(filepath.Join(s.dir, nextFile)); err != nil {
		slog.Warn("the key of a certificate that is there already cannot be removed", "err", err)
	}
}

func (s *serving) load(name string) (key *ecdsa.PrivateKey, chain []*x509.Certificate, err error) {
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return nil, nil, err
	}
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, nil, errors.New("not PEM")
	}
	if key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		return nil, nil, err
	}
	chain, err = parseChain(rest)
	return key, chain, err
}

// parseChain reads a few certificates.
func parseChain(text []byte) (chain []*x509.Certificate, err error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return chain, nil
		}
		if len(chain) == mostServing {
			return nil, fmt.Errorf("more than %d certificates", mostServing)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
}

func (s *serving) save(name string, key *ecdsa.PrivateKey, chain []*x509.Certificate) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	for _, c := range chain {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("keep the port's certificate: %w", err)
	}
	if err := durable.Replace(filepath.Join(s.dir, name), data, 0o600); err != nil {
		return fmt.Errorf("keep the port's certificate: %w", err)
	}
	return nil
}

func fits(key *ecdsa.PrivateKey, leaf *x509.Certificate) bool {
	pub, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	return ok && pub.Equal(key.Public())
}

func certificate(key *ecdsa.PrivateKey, chain []*x509.Certificate) *tls.Certificate {
	c := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, one := range chain {
		c.Certificate = append(c.Certificate, one.Raw)
	}
	return c
}

// shown is what the port shows now; nil before the first look.
func (s *serving) shown(now time.Time) *tls.Certificate {
	if s.given != nil && now.Before(s.given.Leaf.NotAfter) {
		return s.given
	}
	return s.own
}

// renewAt is when a certificate is asked for anew: after seven to nine tenths of its life, no two boards of a shed at once.
func renewAt(c *x509.Certificate) time.Time {
	at := 70 + 20*time.Duration(sha256.Sum256(c.Raw)[0])/255
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 100 * at)
}

// look asks for a certificate if one is needed, or whether it is there. The error says what is amiss, and what to do.
func (s *serving) look(ctx context.Context, want names, now time.Time) error {
	if s.given != nil && want.in(s.given.Leaf) && now.Before(renewAt(s.given.Leaf)) {
		s.own = nil
		return nil
	}
	if err := s.prepare(want, now); err != nil {
		return err
	}
	name, body, err := s.request(want)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var r request
	err = s.plane.Ask(ctx, get, csrPath+"/"+name, nil, &r)
	if apierrors.IsNotFound(err) {
		if !s.asked.IsZero() && now.Sub(s.asked) < askPace {
			return cmp.Or(s.refused, fmt.Errorf("the request %s for a certificate is gone; another one follows", name))
		}
		r = request{}
		err = s.plane.Ask(ctx, post, csrPath, body, &r)
		s.asked, s.refused = now, s.unasked(err, want, now)
	}
	if err != nil {
		return s.unasked(err, want, now)
	}
	return s.take(name, r, want, now)
}

// meanwhile is what the port shows while it waits for another certificate.
func (s *serving) meanwhile(want names, now time.Time) string {
	switch {
	case s.given == nil || s.shown(now) != s.given:
		return "the port shows a certificate that nobody signed"
	case !want.in(s.given.Leaf):
		return "the port's certificate has not all names and addresses of this board"
	}
	return "the port's certificate ends on " + s.given.Leaf.NotAfter.UTC().Format(time.DateTime) + " UTC"
}

// unasked says why there is no request.
func (s *serving) unasked(err error, want names, now time.Time) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the identity of --kubeconfig may not ask for a certificate of %s, as system:node:%s may; %s (%s)",
			signer, s.node, s.meanwhile(want, now), clipped(err))
	}
	return fmt.Errorf("ask for a certificate for the port: %s; %s", clipped(err), s.meanwhile(want, now))
}

// prepare makes the key, and what is shown meanwhile.
func (s *serving) prepare(want names, now time.Time) error {
	if s.next == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := s.save(nextFile, key, nil); err != nil { // a board that starts again asks once more then
			slog.Debug("the key for the port's certificate is not kept", "err", err)
		}
		s.next = key
	}
	if s.own != nil && want.in(s.own.Leaf) && now.Before(renewAt(s.own.Leaf)) {
		return nil
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: s.node}, DNSNames: want.dns, IPAddresses: want.ips,
		NotBefore: now.Add(-ownSkew), NotAfter: now.Add(ownLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, t, t, s.next.Public(), s.next)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	s.own = certificate(s.next, []*x509.Certificate{leaf})
	return nil
}

// request is what is asked for. Its name follows from the key and the names, so that it is found again.
func (s *serving) request(want names) (name string, r request, err error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: want.dns, IPAddresses: want.ips,
		Subject: pkix.Name{CommonName: api.NodeUserPrefix + s.node, Organization: []string{api.NodesGroup}}}, s.next)
	if err != nil {
		return "", r, err
	}
	pub, err := x509.MarshalPKIXPublicKey(s.next.Public())
	if err != nil {
		return "", r, err
	}
	sum := sha256.Sum256(fmt.Appendf(pub, "%q %q", want.dns, want.ips))
	r.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	r.Name = fmt.Sprintf("csr-%x", sum[:8])
	r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	r.Spec.SignerName, r.Spec.Usages = signer, []string{"digital signature", "server auth"}
	return r.Name, r, nil
}

// take keeps the certificate if it is there.
func (s *serving) take(name string, r request, want names, now time.Time) error {
	for _, c := range r.Status.Conditions {
		if c.Type == "Denied" || c.Type == "Failed" {
			return fmt.Errorf("the certificate %s for the port is %s: %.200s; %s. The board asks again once the request is gone: Kubernetes removes "+
				"it after an hour, kubectl delete csr %[1]s does at once", name, strings.ToLower(c.Type), c.Message, s.meanwhile(want, now))
		}
	}
	if len(r.Status.Certificate) == 0 {
		return fmt.Errorf("%s; its request for another waits: kubectl certificate approve %s", s.meanwhile(want, now), name)
	}
	chain, err := parseChain(r.Status.Certificate)
	switch {
	case err != nil:
	case len(chain) == 0:
		err = errors.New("there is none in it")
	case !fits(s.next, chain[0]):
		err = errors.New("it is for another key")
	case !want.in(chain[0]):
		err = errors.New("it has not all names and addresses of this board")
	case !now.Before(chain[0].NotAfter):
		err = errors.New("it has ended")
	case !slices.Contains(chain[0].ExtKeyUsage, x509.ExtKeyUsageServerAuth):
		err = errors.New("it is not for a server")
	}
	if err != nil {
		return fmt.Errorf("the certificate that %s gives for the port cannot be used: %w; kubectl delete csr %[1]s has the board ask again", name, err)
	}
	if err := s.save(servingFile, s.next, chain); err != nil {
		return err
	}
	s.given, s.own, s.next = certificate(s.next, chain), nil, nil
	if err := (durable.Disk{}).Remove(filepath.Join(s.dir, nextFile)); err != nil {
		return fmt.Errorf("keep the port's certificate: %w", err)
	}
	return nil
}
