package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sort"
	"strings"
	"time"
)

// pair is a private key and its certificate, as kept in one file.
type pair struct {
	cert tls.Certificate // Leaf is set
	key  *ecdsa.PrivateKey
}

// request is what a leaf certificate must say.
type request struct {
	user   string
	groups []string // sorted
	names  []string // sorted
	ips    []net.IP // sorted
	usage  x509.ExtKeyUsage
	life   time.Duration
}

// fits says whether a certificate still serves: this CA's, saying this and no more but addresses, with a third of its life
// left or as much as this CA can give.
func (r request) fits(leaf, ca *x509.Certificate, now time.Time) bool {
	fresh := now.Add(r.life / 3).Before(leaf.NotAfter)
	last := leaf.NotAfter.Equal(ca.NotAfter) && now.Before(leaf.NotAfter)
	return (fresh || last) &&
		leaf.NotBefore.Equal(ca.NotBefore) &&
		leaf.CheckSignatureFrom(ca) == nil &&
		leaf.Subject.CommonName == r.user &&
		slices.Equal(sortedNames(leaf.Subject.Organization), r.groups) &&
		slices.Equal(sortedNames(leaf.DNSNames), r.names) &&
		!slices.ContainsFunc(r.ips, func(ip net.IP) bool { return !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) }) &&
		slices.Contains(leaf.ExtKeyUsage, r.usage)
}

// sign makes a key and its certificate.
func (r request) sign(ca tls.Certificate, now time.Time) (*pair, error) {
	template, err := r.template(ca.Leaf, now)
	if err != nil {
		return nil, err
	}
	return makePair(template, ca.Leaf, ca.PrivateKey)
}

// template is what the certificate says. It is valid from the day the CA was made, so that a board with a wrong clock
// can use it; its lifetime counts from now.
func (r request) template(ca *x509.Certificate, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	end := now.Add(r.life)
	if end.After(ca.NotAfter) {
		end = ca.NotAfter
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: r.user, Organization: r.groups},
		NotBefore:             ca.NotBefore,
		NotAfter:              end,
		DNSNames:              r.names,
		IPAddresses:           r.ips,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{r.usage},
		BasicConstraintsValid: true,
	}, nil
}

func newCA(start time.Time) (*pair, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	return makePair(&x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: caName},
		NotBefore:             start.Add(-skew).UTC(),
		NotAfter:              start.Add(caLife).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // this CA signs leaves only
	}, nil, nil)
}

// makePair makes a key and its certificate, signed by a parent or by itself.
func makePair(template, parent *x509.Certificate, signer crypto.PrivateKey) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &pair{key: key, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// write keeps the pair in one file, in one step.
func (p *pair) write(path string) error {
	key, err := encodeKey(p.key)
	if err != nil {
		return err
	}
	return writeFile(path, append(key, encodeCert(p.cert.Certificate[0])...))
}

// readPair reads what write wrote.
func readPair(path string) (*pair, error) {
	data, err := readClosed(path)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, err
	}
	if cert.Leaf == nil {
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return nil, err
		}
	}
	key, ok := cert.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T, not ECDSA", cert.PrivateKey)
	}
	return &pair{cert: cert, key: key}, nil
}

// checkCA verifies the signature as well: a flipped bit on the disk must not become a CA that signs
// certificates nobody accepts.
func (p *pair) checkCA() error {
	if !p.cert.Leaf.IsCA {
		return errors.New("the certificate is not a CA")
	}
	return p.cert.Leaf.CheckSignatureFrom(p.cert.Leaf)
}

func (p *pair) same(q *pair) bool { return bytes.Equal(p.cert.Certificate[0], q.cert.Certificate[0]) }

func sortedNames(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

func sortedIPs(in []net.IP) []net.IP {
	out := make([]net.IP, 0, len(in))
	for _, ip := range in {
		if v4 := ip.To4(); v4 != nil {
			ip = v4
		}
		out = append(out, ip)
	}
	sort.Slice(out, func(i, j int) bool { return bytes.Compare(out[i], out[j]) < 0 })
	return slices.CompactFunc(out, net.IP.Equal)
}

// clientFile is the file of a user's certificate. User names such as system:node:a are fine as file names; what
// could leave the directory is refused.
func clientFile(user string) (string, error) {
	if user == "" || len(user) > 200 {
		return "", fmt.Errorf("user name %q must have 1 to 200 characters", user)
	}
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(":._@-", c))
	}
	if strings.ContainsFunc(user, odd) {
		return "", fmt.Errorf("user name %q may have only letters, digits and :._@-", user)
	}
	return "client-" + user + ".pem", nil
}
