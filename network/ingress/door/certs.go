package door

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/network/ingress"
)

var errNoCertificate = errors.New("there is no certificate for this name")

// How often a Secret is read again: a watch for each would be more than an account may hold. One that holds a good certificate is read
// less often than one that may be about to get it.
const (
	certEvery = 30 * time.Second
	certAgain = 10 * time.Second
	readFor   = 5 * time.Second // how long one read takes at the most
)

// certificates are those of the Secrets that Ingresses name. One that was good stays until there is another, or nobody names it: a
// mistake in a renewal must not cut everybody off.
type certificates struct {
	client api.Client
	wake   chan struct{} // capacity 1: other ones are wanted
	whole  atomic.Bool   // all that were wanted first have been asked for

	mu   sync.RWMutex
	held map[types.NamespacedName]*held // all that are wanted; nil: it was not said yet which
}

// held is what is known of a Secret.
type held struct {
	due      time.Time // when it is to be read; zero: it never was
	revision string
	cert     *tls.Certificate // nil: there was never a good one
	bad      string           // why what is there now is none
}

func (c *certificates) of(key types.NamespacedName) *tls.Certificate {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if h := c.held[key]; h != nil {
		return h.cert
	}
	return nil
}

// want says which Secrets count from now on; what nobody names is forgotten.
func (c *certificates) want(keys []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[types.NamespacedName]*held{}
	for _, key := range keys {
		if next[key] = c.held[key]; next[key] == nil {
			next[key] = &held{}
		}
	}
	c.held = next
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run reads them one by one until ctx ends: first those that never were, then whichever has been due for longest.
func (c *certificates) Run(ctx context.Context) error {
	for {
		key, wait := c.next(time.Now())
		if wait <= 0 {
			c.read(ctx, key)
		}
		if ctx.Err() != nil {
			return nil
		}
		if wait <= 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-time.After(wait):
		}
	}
}

// next is which one is to be read, and in which time.
func (c *certificates) next(now time.Time) (first types.NamespacedName, wait time.Duration) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var due time.Time
	for key, h := range c.held {
		if (first == types.NamespacedName{}) || h.due.Before(due) {
			first, due = key, h.due
		}
	}
	if c.held != nil && (len(c.held) == 0 || !due.IsZero()) {
		c.whole.Store(true)
	}
	if len(c.held) == 0 {
		return first, certEvery
	}
	return first, due.Sub(now)
}

func (c *certificates) read(ctx context.Context, key types.NamespacedName) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	obj, err := api.Get[*corev1.Secret](ctx, c.client, api.Secrets, key.Namespace, key.Name)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		c.whole.Store(true) // the API is away: what is there has to do
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.held[key]; h != nil {
		c.held[key] = h.next(obj, err, time.Now())
	}
}

// next is what is known of a Secret after it was read.
func (h *held) next(s *corev1.Secret, err error, now time.Time) *held {
	out := *h
	switch {
	case apierrors.IsNotFound(err):
		out.revision, out.bad = "", "there is no such secret"
	case err == nil && (h.revision == "" || h.revision != s.ResourceVersion):
		out.revision, out.bad = s.ResourceVersion, ""
		cert, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			out.bad = err.Error()
			break
		}
		out.cert = &cert
		if leaf := cert.Leaf; leaf != nil {
			out.bad = outdated(leaf, now)
		}
	}
	out.due = now.Add(certEvery)
	if err != nil || out.bad != "" {
		out.due = now.Add(certAgain)
	}
	return &out
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
