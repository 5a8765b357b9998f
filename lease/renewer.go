package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
)

// The numbers of section 2.1 of the node semantics.
const (
	defaultDuration = 40 * time.Second       // N-2.1
	renewFraction   = 4                      // N-2.2: renewed every quarter of the duration
	jitter          = 0.04                   // N-2.2
	maxTries        = 5                      // N-2.5
	firstBackoff    = 200 * time.Millisecond // N-2.6
	maxBackoff      = 7 * time.Second        // N-2.6
)

// RenewerConfig says whose lease is renewed, and where.
type RenewerConfig struct {
	Client api.Client
	Node   string
	// Duration is how long the lease counts as held after a renewal (nodeLeaseDurationSeconds); zero is 40 s. It is
	// written at every renewal, so that a changed setting reaches an existing lease (N-2.7).
	Duration time.Duration
	// Failing is called from the second failed update in a row on (N-2.5): the owner of the connections then closes
	// them, since a half-open connection would fail for ever. It may be nil.
	Failing func()
}

// Renewer keeps one node's Lease fresh. It knows nothing of the node's status, and goes on during a graceful
// shutdown: hand Run the context of the process, not that of the agent (N-2.8). The Lease is left behind when it
// ends (N-2.9).
type Renewer struct {
	cfg     RenewerConfig
	last    *coordinationv1.Lease // as the last successful write answered it
	failing bool
}

// NewRenewer prepares a Renewer; Run renews.
func NewRenewer(cfg RenewerConfig) (*Renewer, error) {
	if cfg.Duration == 0 {
		cfg.Duration = defaultDuration
	}
	switch {
	case cfg.Client == nil:
		return nil, errors.New("renew node lease: no client")
	case cfg.Node == "":
		return nil, errors.New("renew node lease: no node name")
	case cfg.Duration < time.Second:
		return nil, fmt.Errorf("renew node lease: a duration of %s is less than a second", cfg.Duration)
	}
	return &Renewer{cfg: cfg}, nil
}

// Run renews until ctx ends. A failure to renew is not its end: that is what leases are there to show.
func (r *Renewer) Run(ctx context.Context) error {
	for {
		r.heard(ctx, r.sync(ctx))
		if !sleep(ctx, r.period()+time.Duration(rand.Float64()*jitter*float64(r.period()))) {
			return nil
		}
	}
}

// period is the time between renewals (N-2.2), and the longest that one request may take.
func (r *Renewer) period() time.Duration { return r.cfg.Duration / renewFraction }

// heard logs the first failure of a row and the recovery: at a dead uplink every try would fill the log.
func (r *Renewer) heard(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !r.failing:
		slog.Warn("cannot renew node lease", "node", r.cfg.Node, "err", err)
	case err == nil && r.failing:
		slog.Info("node lease is renewed again", "node", r.cfg.Node)
	}
	r.failing = err != nil
}

// sync renews once: from memory if it can (N-2.4), else from what the server has.
func (r *Renewer) sync(ctx context.Context) error {
	if r.last != nil {
		err := r.update(ctx, r.last)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	lease, created, err := r.ensure(ctx)
	if err != nil || created {
		return err
	}
	return r.update(ctx, lease)
}

// update writes a fresh renewTime over base, up to five times back to back (N-2.5).
func (r *Renewer) update(ctx context.Context, base *coordinationv1.Lease) error {
	var last error
	for try := range maxTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := r.write(ctx, base)
		if err == nil {
			return nil
		}
		last = err
		if apierrors.IsConflict(err) {
			if base, _, err = r.ensure(ctx); err != nil {
				return err
			}
			continue
		}
		if try > 0 && r.cfg.Failing != nil {
			r.cfg.Failing()
		}
	}
	return fmt.Errorf("update lease of node %s, tried %d times: %w", r.cfg.Node, maxTries, last)
}

func (r *Renewer) write(ctx context.Context, base *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, r.period())
	defer cancel()
	next, err := r.renewed(ctx, base)
	if err != nil {
		return err
	}
	next, err = api.Update(ctx, r.cfg.Client, coordination.Leases, next)
	if err == nil {
		r.last = next
	}
	return err
}

// errNoNode: no Lease before its Node (N-2.3).
var errNoNode = errors.New("node cannot be read")

// ensure reads the Lease, and makes it if there is none, with growing waits for as long as it takes (N-2.6). When
// the Node cannot be read nothing is made in this round.
func (r *Renewer) ensure(ctx context.Context) (lease *coordinationv1.Lease, created bool, err error) {
	for wait := firstBackoff; ; wait = min(2*wait, maxBackoff) {
		lease, created, err = r.readOrMake(ctx)
		if err == nil || errors.Is(err, errNoNode) {
			return lease, created, err
		}
		r.heard(ctx, err)
		if !sleep(ctx, wait) {
			return nil, false, ctx.Err()
		}
	}
}

func (r *Renewer) readOrMake(ctx context.Context) (lease *coordinationv1.Lease, created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.period())
	defer cancel()
	lease, err = api.Get[*coordinationv1.Lease](ctx, r.cfg.Client, coordination.Leases, corev1.NamespaceNodeLease, r.cfg.Node)
	if err == nil || !apierrors.IsNotFound(err) {
		return lease, false, err
	}
	r.last = nil
	if lease, err = r.renewed(ctx, nil); err != nil {
		return nil, false, err
	}
	if lease, err = api.Create(ctx, r.cfg.Client, coordination.Leases, lease); err != nil {
		return nil, false, err
	}
	r.last = lease
	return lease, true, nil
}

// renewed is the Lease to write now: base with what N-2.1 asks for, or a new one.
func (r *Renewer) renewed(ctx context.Context, base *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: r.cfg.Node}}
	if base != nil {
		lease = base.DeepCopy()
	}
	seconds := int32(r.cfg.Duration / time.Second)
	lease.Spec.HolderIdentity = &r.cfg.Node
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	if len(lease.OwnerReferences) > 0 {
		return lease, nil
	}
	node, err := api.Get[*corev1.Node](ctx, r.cfg.Client, api.Nodes, "", r.cfg.Node)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoNode, err)
	}
	lease.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: api.Nodes.APIVersion(), Kind: api.Nodes.Name, Name: node.Name, UID: node.UID}}
	return lease, nil
}

// sleep waits; false means ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
