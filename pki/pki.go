// Package pki is the certificate authority of one control plane: it makes the CA once, hands out the server's
// certificate and the client certificates of people and nodes, and writes kubeconfigs.
//
// Everything lives in one directory (0700), one file per identity holding both key and certificate (0600), so
// that a power cut can never leave a key beside another key's certificate. The CA is kept twice: losing it would
// lock out every client it ever named.
//
// Boards without a clock boot in 1970. Every time used here is therefore the clock or the configured floor,
// whichever is later, and every certificate is valid from the CA's own beginning. Times found inside
// certificates never raise the floor.
//
// The package imports nothing of ledge but api.
package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Config says where an authority lives and what it thinks of time. Only Dir is required.
type Config struct {
	Dir string
	// Floor is a moment known to have passed, such as the build time: the clock is never believed before it.
	Floor time.Time
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Authority is an open certificate authority. It is safe for concurrent use.
type Authority struct {
	dir   string
	floor time.Time
	clock func() time.Time
	ca    tls.Certificate // Leaf is set
	made  bool            // by Open

	mu     sync.Mutex // held while a certificate is looked for or made
	loaded map[string]tls.Certificate
	shown  func() (tls.Certificate, error) // the server's certificate, as ServerTLS and Rename want it
}

// How long certificates live. A shorter life of the server's certificate would protect nothing: the CA's key lies beside its key. It
// would also do harm: a board whose clock stands at the floor would hand out a certificate that is expired for everybody else.
const (
	skew       = 24 * time.Hour
	caLife     = 30 * 365 * 24 * time.Hour
	serverLife = 10 * 365 * 24 * time.Hour
	clientLife = 365 * 24 * time.Hour
)

const (
	caFile     = "ca.pem"
	caCopy     = "ca.pem.copy"
	serverFile = "server.pem"
	caName     = "ledge-ca"
	serverName = "ledge"
)

// Open loads the authority kept under a directory, and makes it the first time.
func Open(c Config) (*Authority, error) {
	a := &Authority{dir: c.Dir, floor: c.Floor, clock: c.Now, loaded: map[string]tls.Certificate{}}
	if a.clock == nil {
		a.clock = time.Now
	}
	if c.Dir == "" {
		return nil, errors.New("open certificate authority: no directory given")
	}
	if err := makeDir(c.Dir); err != nil {
		return nil, fmt.Errorf("open certificate authority: %w", err)
	}
	removeLeftovers(c.Dir)
	ca, err := a.openCA()
	if err != nil {
		return nil, fmt.Errorf("open certificate authority: %w", err)
	}
	a.ca = ca
	return a, nil
}

// openCA takes the first good one of the two copies and mends the other. Only when neither file exists is a new
// CA made: two damaged files mean a dying disk, and a new CA would silently lock every client out.
func (a *Authority) openCA() (tls.Certificate, error) {
	var zero tls.Certificate
	paths := []string{filepath.Join(a.dir, caFile), filepath.Join(a.dir, caCopy)}
	var found *pair
	var problems []error
	good := make([]bool, len(paths))
	for i, path := range paths {
		p, err := readPair(path)
		if err == nil {
			err = p.checkCA()
		}
		switch {
		case err == nil:
			good[i] = found == nil || p.same(found)
			if found == nil {
				found = p
			}
		case !errors.Is(err, fs.ErrNotExist):
			problems = append(problems, fmt.Errorf("read %s: %w", path, err))
		}
	}
	if found == nil && len(problems) > 0 {
		return zero, fmt.Errorf("no usable copy of the CA is left: %w", errors.Join(problems...))
	}
	if found == nil {
		p, err := newCA(a.floorOrNow())
		if err != nil {
			return zero, fmt.Errorf("make CA: %w", err)
		}
		found, a.made = p, true
	}
	for i, path := range paths {
		if good[i] {
			continue
		}
		if len(problems) > 0 {
			slog.Warn("mending a damaged copy of the CA", "path", path)
		}
		if err := found.write(path); err != nil {
			return zero, err
		}
	}
	return found.cert, nil
}

// floorOrNow is where a new CA begins: the floor, because certificates must also be valid on a board that has
// lost its clock and stands exactly there; without a floor, the clock.
func (a *Authority) floorOrNow() time.Time {
	if a.floor.IsZero() {
		return a.clock()
	}
	return a.floor
}

// Now is the clock, but never before the floor. TLS configurations should use it as their Time.
func (a *Authority) Now() time.Time {
	now := a.clock()
	if now.Before(a.floor) {
		return a.floor
	}
	return now
}

// Pool holds the CA, for verifying its certificates.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.ca.Leaf)
	return pool
}

// CA is the CA's certificate in PEM.
func (a *Authority) CA() []byte { return encodeCert(a.ca.Certificate[0]) }

// Made says whether Open found no CA and made this one.
func (a *Authority) Made() bool { return a.made }

// Pin is what tokens name the CA by.
func (a *Authority) Pin() Pin { return sha256.Sum256(a.ca.Certificate[0]) }

// Server is the server's certificate for these names and addresses. It is kept on disk and made again when the names
// differ or an address is missing, when a third of its life is left, when it has expired and when it is damaged. An address
// that is no longer wanted stays until then: a board that waits for its network at every boot would write a certificate
// without its address and then the old one again.
func (a *Authority) Server(names []string, ips []net.IP) (tls.Certificate, error) {
	names, ips = sortedNames(names), sortedIPs(ips)
	want := request{
		user: serverName, names: names, ips: ips, usage: x509.ExtKeyUsageServerAuth, life: serverLife,
	}
	cert, err := a.issue(serverFile, want)
	if err != nil {
		return cert, fmt.Errorf("server certificate: %w", err)
	}
	return cert, nil
}

// Client is a client certificate: user becomes the common name, groups the organizations. It is kept on disk
// under the user's name and made again like the server's.
func (a *Authority) Client(user string, groups []string) (tls.Certificate, error) {
	file, err := clientFile(user)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("client certificate: %w", err)
	}
	want := request{user: user, groups: sortedNames(groups), usage: x509.ExtKeyUsageClientAuth, life: clientLife}
	cert, err := a.issue(file, want)
	if err != nil {
		return cert, fmt.Errorf("client certificate of %s: %w", user, err)
	}
	return cert, nil
}

// ServerTLS is how the server of this authority listens: TLS 1.2 or later, with a client certificate of this CA. Each handshake looks at
// the server's certificate. So one is replaced that runs out while the process lives, or that turns out to be expired when the clock is
// set at last. What the client asks for in the handshake has no influence on it: a server that adds the names it is asked for can be made
// to serve a certificate too large to send (CVE-2023-32187). Names and addresses are changed by Rename.
func (a *Authority) ServerTLS(names []string, ips []net.IP) (*tls.Config, error) {
	if err := a.Rename(names, ips); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  a.Pool(),
		Time:       a.Now,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			a.mu.Lock()
			shown := a.shown
			a.mu.Unlock()
			cert, err := shown()
			if err != nil {
				return nil, err
			}
			// The CA comes along, for boards that know no more of it than its hash.
			cert.Certificate = [][]byte{cert.Certificate[0], a.ca.Certificate[0]}
			return &cert, nil
		},
	}, nil
}

// Rename makes the certificate good for other names and addresses, from the next handshake on.
func (a *Authority) Rename(names []string, ips []net.IP) error {
	shown := func() (tls.Certificate, error) { return a.Server(names, ips) }
	if _, err := shown(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown = shown
	return nil
}

// issue finds the certificate in memory or on disk, or makes it.
func (a *Authority) issue(file string, want request) (tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	if cert, ok := a.loaded[file]; ok && want.fits(cert.Leaf, a.ca.Leaf, now) {
		return cert, nil
	}
	path := filepath.Join(a.dir, file)
	if p, err := readPair(path); err == nil && want.fits(p.cert.Leaf, a.ca.Leaf, now) {
		a.loaded[file] = p.cert
		return p.cert, nil
	}
	if now.After(a.ca.Leaf.NotAfter) {
		return tls.Certificate{}, fmt.Errorf("the CA ended on %s and the clock says %s",
			a.ca.Leaf.NotAfter.Format(time.DateOnly), now.Format(time.DateOnly))
	}
	p, err := want.sign(a.ca, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	slog.Info("made a certificate", "for", want.user, "addresses", want.ips)
	if err := p.write(path); err != nil {
		// A full or read-only disk must not stop the server: the certificate is good, the next process
		// will only not find it and make another.
		slog.Warn("certificate could not be kept on disk", "path", path, "err", err)
	}
	a.loaded[file] = p.cert
	return p.cert, nil
}

// makeDir makes the directory, and closes one that others can look into.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}
