// Package local is the Client of the process that holds the store: it admits, checks and writes objects in
// one transaction each, and knows nothing of HTTP. All rules that make a store of objects behave as the
// Kubernetes API does live here; what an object must look like lives in package api.
//
//	create: server fields -> name -> defaults -> namespace -> who asks -> admission -> validation -> limits, security -> quotas -> put
//	update: what may not change is put back -> defaults -> admission -> validation -> limits, security -> quotas -> put, or nothing
//	delete: preconditions -> mark (grace, finalizers, namespace) or remove -> an emptied namespace goes too
//
// Everything is in the store. What a Client has in memory can be made from it again, but for the authors of events: the number of events,
// what pods name, the rights, and what quotas count. It has no goroutine.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"ledge/api"
	"ledge/api/managed"
	"ledge/storage"
)

// Config says what a Client works on. Only Store is required.
type Config struct {
	Store *storage.Store
	Now   func() time.Time // nil: time.Now

	// How long a pod stays on a node that is not ready or unreachable, unless it says so itself (N-3.29).
	// nil: 300 seconds.
	NotReadySeconds, UnreachableSeconds *int64

	// Endpoint is where the pods of all boards find the API: what stands behind the service default/kubernetes; invalid: nowhere.
	Endpoint netip.AddrPort

	// Services is where addresses and ports of services come from.
	Services Services

	// PodSecurity is the level that namespaces without a label of their own are held to, kube-system aside: privileged,
	// baseline or restricted; "" is privileged, as on Kubernetes.
	PodSecurity string

	Tokens *Tokens // nil: there are no service-account tokens

	EventTTL  time.Duration // 0: 1 hour (N-11.39)
	MaxEvents int           // 0: 1000; beyond it the oldest of those go who have the most
	Bookmarks time.Duration // how often a quiet watch says where it is; 0: 1 minute (N-11.31)
}

// Client implements api.Client over a store.
type Client struct {
	*inTx

	restore chan struct{} // capacity 1: something of the system's was deleted

	served served
	issuer issuer
	roles  defaultRoles
}

// inTx is what a client does inside a transaction: admission, the write of an object, and what follows from it.
type inTx struct {
	cfg   Config
	store *storage.Store

	fields managed.Fields // who set what

	quotas     *quotas
	references references
	rights     rights
	shares     shares
	events     eventBounds
	security   podSecurity
	accounts   serviceAccounts
	patience   patience
	collector  collector

	unended chan struct{} // capacity 1: a namespace that is going had more in it than one transaction should read

	mu sync.Mutex // of cfg.Endpoint
}

var (
	_ api.Client = (*Client)(nil)
	_ api.Sparse = (*Client)(nil)
)

// New makes a Client and the objects that always exist (N-2.10, N-10.15).
func New(cfg Config) (*Client, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	wait := int64(300)
	if cfg.NotReadySeconds == nil {
		cfg.NotReadySeconds = &wait
	}
	if cfg.UnreachableSeconds == nil {
		cfg.UnreachableSeconds = &wait
	}
	if cfg.EventTTL == 0 {
		cfg.EventTTL = time.Hour
	}
	if cfg.MaxEvents == 0 {
		cfg.MaxEvents = 1000
	}
	if cfg.Bookmarks == 0 {
		cfg.Bookmarks = time.Minute
	}
	if err := checkPodSecurity(cfg.PodSecurity); err != nil {
		return nil, err
	}
	cfg.Services.fill()
	in := &inTx{cfg: cfg, store: cfg.Store, unended: make(chan struct{}, 1),
		quotas: newQuotas(cfg.Store), references: references{store: cfg.Store},
		rights: rights{store: cfg.Store}, security: podSecurity{cfg.PodSecurity}, accounts: serviceAccounts{cfg.Tokens},
		events:   eventBounds{store: cfg.Store, now: cfg.Now, ttl: cfg.EventTTL, most: cfg.MaxEvents},
		patience: patience{cfg.NotReadySeconds, cfg.UnreachableSeconds}}
	in.shares.references, in.fields.Kinds = &in.references, cfg.Store.Kinds()
	c := &Client{inTx: in, restore: make(chan struct{}, 1), served: served{store: cfg.Store},
		issuer: issuer{cfg: cfg.Tokens, store: cfg.Store, clock: cfg.Now}}
	c.collector = collector{store: cfg.Store, client: c, now: c.now, free: c.free, asked: make(chan struct{}, 1)}
	c.roles = defaultRoles{store: cfg.Store, make: c.makeSystem}
	if err := c.EnsureSystem(); err != nil {
		return nil, fmt.Errorf("make the system's objects: %w", err)
	}
	if err := ensureAddresses(in); err != nil {
		return nil, fmt.Errorf("bring the addresses of services in order: %w", err)
	}
	if !c.roles.there() {
		c.roles.once()
	}
	return c, c.Expire(cfg.Now())
}

// expireEvery is how often expired events are removed: each time costs a look at all of them and, where one has expired, a
// commit. A cap holds meanwhile.
const expireEvery = 5 * time.Minute

// Run does what an API server does without a request, until ctx ends: it removes old events, makes the system's objects again that
// somebody deleted, and writes into the quotas' statuses how much is used.
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.quotas.Run(ctx, c.cfg.Now) })
	g.Go(func() error { return tidy(ctx, c) })
	return g.Wait()
}

// Collect does at once what Run does soon after a deletion: whatever belonged to objects that are gone goes too.
func (c *Client) Collect(ctx context.Context) error { return c.collector.collect(ctx) }

// tidy keeps the system's objects, the events, and what belonged to others in order.
func tidy(ctx context.Context, c *Client) error {
	c.collector.soon() // a power cut may have come between a deletion and its consequences
	uncollected := false
	tick, sweep, roles := time.NewTicker(time.Minute), time.NewTicker(expireEvery), time.NewTimer(rolesWait)
	defer roles.Stop()
	defer tick.Stop()
	defer sweep.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			err = errors.Join(c.EnsureSystem(), endNamespaces(ctx, c))
			c.roles.once()
			if uncollected {
				c.collector.soon()
			}
		case <-roles.C:
			c.roles.once()
		case <-c.restore:
			err = c.EnsureSystem()
		case <-c.unended:
			err = endNamespaces(ctx, c)
		case <-sweep.C:
			err = c.Expire(c.cfg.Now())
		case <-c.collector.asked:
			if !pause(ctx, collectWait) {
				return nil
			}
			err := c.collector.collect(ctx)
			if uncollected = err != nil; uncollected {
				slog.Warn("cannot delete what belonged to deleted objects; trying again in a minute", "err", err)
			}
			continue
		}
		// A full or failing disk must not end the process: what could not be done now is done a minute later.
		if err != nil {
			slog.Warn("cannot keep the system's objects and events in order; trying again", "err", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// WhenAny implements api.Sparse.
func (c *Client) WhenAny(kind *api.Kind, do func()) (none bool) {
	if kind.View != nil {
		kind = kind.View.Of
	}
	return c.store.WhenAny(kind, do)
}

// Get implements api.Client.
func (c *Client) Get(ctx context.Context, kind *api.Kind, namespace, name string) (obj api.Object, err error) {
	if kind.View != nil {
		out, err := c.Get(ctx, kind.View.Of, namespace, name)
		return show(kind, out, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, timeout(err)
	}
	err = c.store.View(func(tx *storage.Tx) error {
		obj, err = get(tx, kind, namespace, name)
		return err
	})
	if err != nil {
		return nil, status(err, "read %s %q", kind.Singular, name)
	}
	return obj, nil
}

// get is the stored object, which belongs to the caller.
func get(tx *storage.Tx, kind *api.Kind, namespace, name string) (api.Object, error) {
	obj, err := tx.Get(kind, namespace, name)
	if err != nil {
		return nil, storeError(err, kind, namespace, name)
	}
	kind.Stamp(obj)
	return obj, nil
}

func clone(obj api.Object) api.Object {
	return obj.DeepCopyObject().(api.Object)
}

// write runs fn in one transaction. A dry run does all of it and then takes it back.
func (c *Client) write(ctx context.Context, dryRun bool, fn func(tx *storage.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return timeout(err)
	}
	err := c.store.Update(func(tx *storage.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		if dryRun {
			return errDryRun
		}
		return nil
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}

// put stores an object; lazily when a power cut may forget it (architecture: Leases are lazy).
func put(tx *storage.Tx, kind *api.Kind, obj api.Object, lazy bool) error {
	kind.Stamp(obj)
	if lazy {
		return tx.PutLazy(kind, obj)
	}
	return tx.Put(kind, obj)
}

// checkKind refuses an object handed in under another kind's name, which would be stored where it cannot be
// read back.
func checkKind(kind *api.Kind, obj runtime.Object) error {
	if !kind.Is(obj) {
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized: got %T, expected %s", obj, kind.Name))
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk != kind.GVK() {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in body does not match the expected %s", gvk, kind.GVK()))
	}
	return nil
}
