package door

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/network/ingress"
)

var errNoCertificate = errors.New("there is no certificate for this name")

// certificates are those of the Secrets that Ingresses name. One that was good stays until there is another, or nobody names it: a
// mistake in a renewal must not cut everybody off.
type certificates struct {
	client api.Client

	mu   sync.RWMutex
	held map[types.NamespacedName]*held
}

// loadFor is how long a load takes at the most: what was not read in it is read the next time.
const loadFor = 10 * time.Second

type held struct {
	revision string
	fresh    bool             // read since it was asked for
	cert     *tls.Certificate // nil: there was never a good one
	bad      string           // why what is there now is none
}

// stale has each Secret read again.
func (c *certificates) stale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		h.fresh = false
	}
}

func (c *certificates) of(key types.NamespacedName) *tls.Certificate {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if h := c.held[key]; h != nil {
		return h.cert
	}
	return nil
}

// load reads what is not known yet or stale, and forgets what nobody names.
func (c *certificates) load(ctx context.Context, want []types.NamespacedName) {
	ctx, cancel := context.WithTimeout(ctx, loadFor)
	defer cancel()
	for _, key := range want {
		c.mu.RLock()
		was := c.held[key]
		c.mu.RUnlock()
		if was != nil && was.fresh {
			continue
		}
		obj, err := api.Get[*corev1.Secret](ctx, c.client, api.Secrets, key.Namespace, key.Name)
		c.mu.Lock()
		if next := was.next(obj, err); next != nil {
			if c.held == nil {
				c.held = map[types.NamespacedName]*held{}
			}
			c.held[key] = next
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.held {
		if !slices.Contains(want, key) {
			delete(c.held, key)
		}
	}
}

// next is what is known of a Secret after it was read; nil: no more than before.
func (h *held) next(s *corev1.Secret, err error) *held {
	out := &held{fresh: true}
	if h != nil {
		out.cert = h.cert
	}
	switch {
	case apierrors.IsNotFound(err):
		out.bad = "there is no such secret"
	case err != nil:
		return nil
	case h != nil && h.revision == s.ResourceVersion:
		out.revision, out.bad = h.revision, h.bad
	default:
		out.revision = s.ResourceVersion
		cert, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			out.bad = err.Error()
			break
		}
		out.cert = &cert
		if leaf := cert.Leaf; leaf != nil {
			out.bad = outdated(leaf, time.Now())
		}
	}
	return out
}

// outdated says so of a certificate that is served all the same: a board may have lost its clock.
func outdated(leaf *x509.Certificate, now time.Time) string {
	if now.After(leaf.NotAfter) {
		return "the certificate has run out, at " + leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

// lacking are the Secrets that hold no good certificate.
func (c *certificates) lacking(all []*networkingv1.Ingress) (out []ingress.Fault) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, i := range all {
		for _, t := range i.Spec.TLS {
			if h := c.held[types.NamespacedName{Namespace: i.Namespace, Name: t.SecretName}]; h != nil && h.bad != "" {
				out = append(out, ingress.Fault{Ingress: i, Reason: "BadCertificate", Message: "Secret " + t.SecretName + ": " + h.bad})
			}
		}
	}
	return out
}

// faults are what is wrong, since when, and whether it was told.
type faults struct{ since map[fault]*since }

type fault struct {
	uid             types.UID
	reason, message string
}

type since struct {
	at   time.Time
	told bool
}

// mostFaults is how many are remembered.
const mostFaults = 1000

// tell makes an event of each that lasts.
func (f *faults) tell(now time.Time, all []ingress.Fault, to recorder) {
	next := map[fault]*since{}
	for _, x := range all {
		key := fault{x.Ingress.UID, x.Reason, x.Message}
		is := f.since[key]
		if is == nil {
			is = &since{at: now}
		}
		if !is.told && now.Sub(is.at) >= faultAfter {
			is.told = true
			to.Event(x.Ingress, corev1.EventTypeWarning, x.Reason, x.Message)
		}
		if len(next) < mostFaults {
			next[key] = is
		}
	}
	f.since = next
}
