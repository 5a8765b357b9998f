package pki

import (
	"bytes"
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
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ledge/api"
)

// IdentityConfig says whose identity it is and where it is kept.
type IdentityConfig struct {
	Dir   string
	Node  string
	Floor time.Time        // as in Config
	Now   func() time.Time // nil: time.Now
}

// Identity is who a board is to its control plane: a key made here, which never leaves, the certificate that the control
// plane gave for it, and the CA by which the control plane is known. It is safe for concurrent use.
type Identity struct {
	cfg IdentityConfig
	key *ecdsa.PrivateKey

	mu   sync.Mutex
	cert *tls.Certificate  // nil: not joined yet
	ca   *x509.Certificate // likewise
}

const (
	identityFile = "board.pem"
	identityCopy = "board.pem.copy"
)

// ErrOtherCA says that who answers is not the control plane of the token, or not the one that the board has joined.
var ErrOtherCA = errors.New("it is not the control plane that this board was told to join: its CA is another one")

// OpenIdentity loads what is kept, the first good one of two copies, and makes a key the first time. Losing it would take
// somebody to the board with a new token.
func OpenIdentity(c IdentityConfig) (*Identity, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	i := &Identity{cfg: c}
	if err := makeDir(c.Dir); err != nil {
		return nil, fmt.Errorf("open this board's identity: %w", err)
	}
	removeLeftovers(c.Dir)
	var problems []error
	for _, file := range []string{identityFile, identityCopy} {
		err := i.load(filepath.Join(c.Dir, file))
		if err == nil {
			return i, i.fits()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("read %s: %w", filepath.Join(c.Dir, file), err))
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("this board's identity is damaged: %w; remove %s and join again with a new token", errors.Join(problems...), c.Dir)
	}
	var err error
	if i.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make this board's key: %w", err)
	}
	return i, i.save(nil, nil) // before it is used: a board that has lost the answer asks again with the same key
}

// JoinedAs says which node the board with an identity in dir is, and by which CA its control plane is known; ok is false for one
// that has not joined. Nothing is made.
func JoinedAs(dir string) (node string, ca Pin, ok bool) {
	for _, file := range []string{identityFile, identityCopy} {
		i := &Identity{}
		if err := i.load(filepath.Join(dir, file)); err == nil && i.cert != nil {
			ca, _ = i.CA()
			return strings.TrimPrefix(i.cert.Leaf.Subject.CommonName, api.NodeUserPrefix), ca, true
		}
	}
	return "", Pin{}, false
}

// load reads the key, and the certificates that follow it once the board has joined.
func (i *Identity) load(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	block, rest := pem.Decode(data)
	if block == nil {
		return errors.New("not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("the key is a %T, not ECDSA", parsed)
	}
	var certs []*x509.Certificate
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		certs = append(certs, cert)
	}
	switch {
	case len(bytes.TrimSpace(rest)) > 0:
		return errors.New("there is something behind the certificates")
	case len(certs) == 0:
		i.key = key
		return nil
	case len(certs) != 2:
		return fmt.Errorf("%d certificates, not the board's and the CA's", len(certs))
	}
	if err := checkOwn(key, certs[0], certs[1]); err != nil {
		return err
	}
	i.key = key
	i.hold(certs[0], certs[1])
	return nil
}

func checkOwn(key *ecdsa.PrivateKey, leaf, ca *x509.Certificate) error {
	if pub, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(key.Public()) {
		return errors.New("the certificate is for another key")
	}
	return leaf.CheckSignatureFrom(ca)
}

func (i *Identity) hold(leaf, ca *x509.Certificate) {
	i.cert = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: i.key, Leaf: leaf}
	i.ca = ca
}

// fits refuses an identity under another name: a board that was renamed is another board to its control plane.
func (i *Identity) fits() error {
	if i.cert == nil || i.cert.Leaf.Subject.CommonName == api.NodeUserPrefix+i.cfg.Node {
		return nil
	}
	return fmt.Errorf("this board has joined as %q and is named %q now: start it with --hostname-override %[1]s, or remove %s and join again with a new token",
		strings.TrimPrefix(i.cert.Leaf.Subject.CommonName, api.NodeUserPrefix), i.cfg.Node, i.cfg.Dir)
}

// save writes both copies, one after the other.
func (i *Identity) save(leaf, ca *x509.Certificate) error {
	data, err := encodeKey(i.key)
	if err != nil {
		return err
	}
	if leaf != nil {
		data = append(append(data, encodeCert(leaf.Raw)...), encodeCert(ca.Raw)...)
	}
	for _, file := range []string{identityFile, identityCopy} {
		if err := writeFile(filepath.Join(i.cfg.Dir, file), data); err != nil {
			return fmt.Errorf("keep this board's identity: %w", err)
		}
	}
	return nil
}

// Forget removes what is kept. A board that was refused for good leaves nothing of the try.
func (i *Identity) Forget() error {
	return os.RemoveAll(i.cfg.Dir)
}

// Joined says whether the board has a certificate, good or expired.
func (i *Identity) Joined() bool { return i.current() != nil }

func (i *Identity) current() *tls.Certificate {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cert
}

// CA names the control plane that the board has joined, and is its CA in PEM; nil before it has.
func (i *Identity) CA() (Pin, []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ca == nil {
		return Pin{}, nil
	}
	return sha256.Sum256(i.ca.Raw), encodeCert(i.ca.Raw)
}

// Request asks for a certificate, the first one and every further one. It proves that the board holds the key.
func (i *Identity) Request() ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: api.NodeUserPrefix + i.cfg.Node}}, i.key)
}

// Accept keeps the certificate that was given for a Request. peers are the certificates of who gave it, among them the CA.
func (i *Identity) Accept(cert []byte, pin Pin, peers []*x509.Certificate) error {
	ca := pin.find(peers)
	block, _ := pem.Decode(cert)
	if ca == nil || block == nil {
		return errors.New("the answer has no certificate in it")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	if err := checkOwn(i.key, leaf, ca); err != nil {
		return fmt.Errorf("the certificate cannot be used: %w", err)
	}
	if leaf.Subject.CommonName != api.NodeUserPrefix+i.cfg.Node {
		return fmt.Errorf("the certificate is for %q", leaf.Subject.CommonName)
	}
	if err := i.save(leaf, ca); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hold(leaf, ca)
	return nil
}

// RenewIn is how long the certificate is good without care: two thirds of its life. It is never negative.
func (i *Identity) RenewIn() time.Duration {
	cert := i.current()
	if cert == nil {
		return 0
	}
	return max(0, cert.Leaf.NotAfter.Add(-clientLife/3).Sub(i.now()))
}

// now is the clock, but not before the floor, nor before the CA that the board knows was made.
func (i *Identity) now() time.Time {
	i.mu.Lock()
	ca := i.ca
	i.mu.Unlock()
	return i.after(ca)
}

func (i *Identity) after(ca *x509.Certificate) time.Time {
	now := i.cfg.Now()
	if now.Before(i.cfg.Floor) {
		now = i.cfg.Floor
	}
	if ca != nil && now.Before(ca.NotBefore) {
		now = ca.NotBefore
	}
	return now
}

// Join is how a board talks to a control plane that it knows by a token alone, or whose certificate it cannot show because
// it has ended. Nothing is sent before it is certain who answers.
func (i *Identity) Join(pin Pin) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: ServerIdentity,
		Time:       i.now,
		// The chain is checked below, up to a CA that is known by its hash only. What it says of hosts does not count:
		// who the control plane is does not change with where it is reached.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return i.verify(pin, state.PeerCertificates)
		},
	}
}

// Client is how a board that has joined talks to its control plane.
func (i *Identity) Client() *tls.Config {
	pin, _ := i.CA()
	conf := i.Join(pin)
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if cert := i.current(); cert != nil {
			return cert, nil
		}
		return &tls.Certificate{}, nil
	}
	return conf
}

// Server is how a board that has joined listens on its own port: its control plane gets in, and nobody else whom the same CA
// knows.
func (i *Identity) Server() *tls.Config {
	roots := x509.NewCertPool()
	i.mu.Lock()
	if i.ca != nil {
		roots.AddCert(i.ca)
	}
	i.mu.Unlock()
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		ClientAuth:     tls.RequireAndVerifyClientCert,
		ClientCAs:      roots,
		Time:           i.now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.current(), nil },
		VerifyConnection: func(state tls.ConnectionState) error {
			if user := state.PeerCertificates[0].Subject.CommonName; user != PlaneUser {
				return fmt.Errorf("%q is not this board's control plane", user)
			}
			return nil
		},
	}
}

func (i *Identity) verify(pin Pin, peers []*x509.Certificate) error {
	ca := pin.find(peers)
	if ca == nil {
		return ErrOtherCA
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := peers[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: ServerIdentity, CurrentTime: i.after(ca),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func (p Pin) find(peers []*x509.Certificate) *x509.Certificate {
	for _, cert := range peers {
		if sha256.Sum256(cert.Raw) == p {
			return cert
		}
	}
	return nil
}
