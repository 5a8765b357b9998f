package kubeport

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// clientCA is where the CA of clients' certificates is from.
type clientCA struct {
	plane Plane
	file  string                     // what somebody named; empty: the plane is asked
	kept  string                     // a file with what the plane said to who joined this board: for boards that may not ask; empty: none
	self  func() []*x509.Certificate // what this board shows the plane; nil: not known
	next  time.Time                  // when it is asked again, if it may not be asked
	text  string                     // that holds now, PEM; empty: none

	why error // nobody gets in by a certificate, or what was known last holds on
}

const (
	maxCA       = 256 << 10 // bytes of CAs
	forbidden   = 10 * time.Minute
	caConfigMap = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
	caHelp      = "name a file with the cluster's client CA by --client-ca-file (kubeadm has it in /etc/kubernetes/pki/ca.crt)"
)

// look reads the CA anew; fresh is true when there is another one. What cannot be read now stays as it was.
func (c *clientCA) look(ctx context.Context, now time.Time) (pool *x509.CertPool, fresh bool) {
	if now.Before(c.next) {
		return nil, false
	}
	text, fromKept, err := c.read(ctx)
	if err == nil {
		if pool = x509.NewCertPool(); !pool.AppendCertsFromPEM([]byte(text)) {
			err = errors.New("there is no certificate in it")
		}
	}
	if err == nil && fromKept && c.outdated(pool) {
		c.why = errors.New("the client CA that this board kept when it joined has not signed the certificate that it has now: the cluster has " +
			"another CA, and its API server may be shut out. Join again ('ledge join'), or " + caHelp)
	} else {
		c.why = c.explain(err)
	}
	if err == nil && text == c.text {
		return nil, false
	}
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		c.next = now.Add(forbidden)
	}
	if err == nil {
		c.text = text
	}
	return pool, err == nil
}

// outdated says whether the plane has signed the board's own certificate with another CA than those that were kept: the one that signs
// nodes' certificates is always a CA of clients.
func (c *clientCA) outdated(kept *x509.CertPool) bool {
	if c.self == nil {
		return false
	}
	own := c.self()
	if len(own) == 0 {
		return false
	}
	// Whether it has ended is not asked here.
	o := x509.VerifyOptions{Roots: kept, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		CurrentTime: own[0].NotBefore.Add(own[0].NotAfter.Sub(own[0].NotBefore) / 2)}
	for _, c := range own[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := own[0].Verify(o)
	return err != nil
}

func (c *clientCA) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case c.file != "":
		return fmt.Errorf("--client-ca-file %s: %s", c.file, clipped(err))
	case apierrors.IsForbidden(err):
		return errors.New("who the cluster's clients are is not known: this board may not read ConfigMap kube-system/extension-apiserver-authentication. " +
			"Either " + caHelp + ", or allow it: kubectl create rolebinding -n kube-system boards-read-client-ca " +
			"--role=extension-apiserver-authentication-reader --group=system:nodes")
	}
	return fmt.Errorf("the client CA in ConfigMap kube-system/extension-apiserver-authentication: %s; or %s", clipped(err), caHelp)
}

func (c *clientCA) read(ctx context.Context) (text string, fromKept bool, err error) {
	if c.file != "" {
		text, err = readCA(c.file)
		return text, false, err
	}
	text, err = c.ask(ctx)
	if c.kept != "" && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
		if kept, err := readCA(c.kept); !errors.Is(err, fs.ErrNotExist) {
			return kept, true, err
		}
	}
	return text, false, err
}

func readCA(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCA+1))
	if err == nil && len(data) > maxCA {
		err = fmt.Errorf("%s: more than %d bytes", path, maxCA)
	}
	return string(data), err
}

func (c *clientCA) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var m struct{ Data map[string]string }
	if err := c.plane.Ask(ctx, get, caConfigMap, nil, &m); err != nil {
		return "", err
	}
	text := m.Data["client-ca-file"]
	switch {
	case text == "":
		return "", errors.New("it has no client-ca-file: the API server knows no clients by certificate either")
	case len(text) > maxCA:
		return "", fmt.Errorf("more than %d bytes", maxCA)
	}
	return text, nil
}
