package kubeport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Config says whose port it is.
type Config struct {
	Plane        Plane
	Node         string
	Dir          string                      // for the certificate that it shows
	ClientCAFile string                      // empty: the plane says who its clients are
	KeptCAFile   string                      // what it said once, for a board that may not ask; empty or not there: nothing
	Self         func() []*x509.Certificate  // what the board shows the plane, if it keeps that; may be nil, and give none
	Addresses    func() []corev1.NodeAddress // of the board, as its Node has them
	Now          func() time.Time            // nil: time.Now
}

// Port is who gets in by a board's port, and as whom the board shows itself. It is safe for concurrent use.
type Port struct {
	*Gate
	cfg Config

	ca   clientCA // of the loop alone, as is the next
	cert serving

	mu   sync.Mutex
	tls  *tls.Config    // of the next connection; another one after each change
	pool *x509.CertPool // nil: nobody gets in by a certificate
	why  map[string]error
}

// The reasons of the condition PortTrouble.
const (
	noClientCA = "NoClientCA"
	notSigned  = "CertificateNotSigned"
)

// Open makes the port ready to be shown: with the certificate that it had, or one of its own.
func Open(c Config) (*Port, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &Port{Gate: NewGate(c.Plane, c.Node, c.Now), cfg: c, why: map[string]error{},
		ca:   clientCA{plane: c.Plane, file: c.ClientCAFile, kept: c.KeptCAFile, self: c.Self},
		cert: serving{plane: c.Plane, dir: c.Dir, node: c.Node}}
	p.cert.open()
	now := c.Now()
	if p.cert.shown(now) == nil {
		if err := p.cert.prepare(namesOf(c.Node, nil), now); err != nil {
			return nil, err
		}
	}
	p.show(now)
	return p, nil
}

const (
	quick = 2 * time.Second // after something has changed
	slow  = time.Minute
)

// Run follows the client CA and the certificate until ctx ends: often after a change, once a minute when all is quiet.
func (p *Port) Run(ctx context.Context) error {
	for wait := quick; ; wait = min(2*wait, slow) {
		if p.look(ctx) {
			wait = quick
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// look is one turn of Run. Something may have changed, and a look soon is worth it.
func (p *Port) look(ctx context.Context) (changed bool) {
	now := p.cfg.Now()
	pool, fresh := p.ca.look(ctx, now)
	addresses := p.cfg.Addresses()
	var err error
	if before := p.cert.shown(now); len(addresses) > 0 { // a request with half of the names would be in vain
		err = p.cert.look(ctx, namesOf(p.cfg.Node, addresses), now)
		changed = before != p.cert.shown(now)
	}
	changed = changed || fresh
	changed = p.tell(noClientCA, p.ca.why) || changed
	if len(addresses) > 0 {
		changed = p.tell(notSigned, err) || changed
	}
	p.mu.Lock()
	if fresh {
		p.pool = pool
	}
	p.mu.Unlock()
	p.show(now)
	return changed
}

// tell logs a trouble once, and keeps it for the Node.
func (p *Port) tell(reason string, err error) (fresh bool) {
	p.mu.Lock()
	before := p.why[reason]
	p.why[reason] = err
	p.mu.Unlock()
	switch {
	case err == nil && before != nil:
		slog.Info("the trouble with this board's port is over", "reason", reason)
	case err != nil && (before == nil || before.Error() != err.Error()):
		slog.Warn("this board's port is not all that it should be", "reason", reason, "why", err)
	default:
		return false
	}
	return true
}

// Condition is PortTrouble of the Node; without trouble there is none.
func (p *Port) Condition() corev1.NodeCondition {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := corev1.NodeCondition{Type: "PortTrouble"}
	var said []string
	for _, reason := range []string{noClientCA, notSigned} {
		if err := p.why[reason]; err != nil {
			said = append(said, err.Error())
			if c.Status == "" {
				c.Status, c.Reason = corev1.ConditionTrue, reason
			}
		}
	}
	c.Message = strings.Join(said, "; ")
	return c
}

// show makes what the next connection is met with, if it is not that already.
func (p *Port) show(now time.Time) {
	cert := p.cert.shown(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if cert == nil || p.tls != nil && p.tls.Certificates[0].Leaf == cert.Leaf && p.tls.ClientCAs == p.pool {
		return
	}
	c := p.base()
	c.Certificates, c.ClientCAs, c.ClientAuth = []tls.Certificate{*cert}, p.pool, tls.VerifyClientCertIfGiven
	if p.pool == nil { // without roots the machine's own would count
		c.ClientAuth = tls.NoClientCert
	}
	p.tls = c
}

func (p *Port) base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Time: p.cfg.Now, NextProtos: []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true} // who comes again is looked at again
}

// TLS is what a listener is opened with. Each connection finds what holds when it comes.
func (p *Port) TLS() *tls.Config {
	c := p.base()
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.tls, nil
	}
	return c
}

// Known says whether a client's certificate still counts: a connection may last longer than it, or than its CA.
func (p *Port) Known(peer []*x509.Certificate) error {
	p.mu.Lock()
	pool := p.pool
	p.mu.Unlock()
	if pool == nil {
		return errors.New("no client is known by a certificate here")
	}
	o := x509.VerifyOptions{Roots: pool, Intermediates: x509.NewCertPool(), CurrentTime: p.cfg.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range peer[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := peer[0].Verify(o)
	return err
}
