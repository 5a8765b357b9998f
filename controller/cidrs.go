package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// When a node that got no network is looked at again.
const (
	firstCIDRRetry = 5 * time.Second
	mostCIDRRetry  = 5 * time.Minute
)

// CIDRs gives every Node the networks of its pods, and takes them back when it goes (N-3.52 to N-3.58).
type CIDRs struct {
	w       *World
	nodes   Of[*corev1.Node]
	events  Recorder
	cfg     NodeCIDRs
	changed <-chan struct{}

	blocks  []*Blocks
	held    map[types.UID][]netip.Prefix
	doubt   map[types.UID][]netip.Prefix // written, perhaps: nobody else gets them
	retry   time.Duration
	next    time.Time
	grumble grumble
}

// NewCIDRs prepares the loop; call it before the World runs.
func NewCIDRs(w *World, events Recorder, cfg NodeCIDRs) (*CIDRs, error) {
	blocks, err := cfg.blocks()
	if err != nil {
		return nil, err
	}
	return &CIDRs{w: w, nodes: w.nodes(), events: events, cfg: cfg, changed: listen(w.nodes()), blocks: blocks,
		held: map[types.UID][]netip.Prefix{}, doubt: map[types.UID][]netip.Prefix{}}, nil
}

// Run gives networks until ctx ends. A Node with a network that is not its to have takes nothing out of the choice (N-3.55);
// Networks tells of it.
func (c *CIDRs) Run(ctx context.Context) error { return loop(ctx, c.changed, c.pass, c.nodes) }

func (c *CIDRs) pass(ctx context.Context, now time.Time) time.Duration {
	nodes := c.nodes.List()
	present := make(map[types.UID]bool, len(nodes))
	astray := strays(nodes, c.cfg)
	for _, n := range nodes {
		present[n.UID] = true
		c.record(n, astray[n.Name] != "")
	}
	for _, all := range []map[types.UID][]netip.Prefix{c.held, c.doubt} {
		for uid, parts := range all {
			if !present[uid] {
				delete(all, uid)
				c.release(parts)
			}
		}
	}
	if now.Before(c.next) {
		return c.next.Sub(now)
	}
	failed := false
	for _, n := range nodes {
		if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR == "" && n.DeletionTimestamp == nil && c.held[n.UID] == nil {
			failed = !c.give(ctx, n) || failed
		}
	}
	if !failed {
		c.retry = 0
		return idle
	}
	c.retry = min(max(2*c.retry, firstCIDRRetry), mostCIDRRetry)
	c.next = now.Add(c.retry)
	return c.retry
}

// record notes what a node has (N-3.56): what is there is never changed.
func (c *CIDRs) record(n *corev1.Node, stray bool) {
	if len(n.Spec.PodCIDRs) == 0 {
		return
	}
	parts := []netip.Prefix{} // not nil: it is given no other
	if !stray {
		parts, _ = partsOf(n, c.cfg)
	}
	old := append(c.doubt[n.UID], c.held[n.UID]...)
	delete(c.doubt, n.UID)
	c.held[n.UID] = parts
	if slices.Equal(old, parts) {
		return
	}
	for _, p := range parts {
		c.blocks[c.cfg.family(p)].Exclude(p)
	}
	c.release(slices.DeleteFunc(old, func(p netip.Prefix) bool { return slices.Contains(parts, p) }))
}

// release gives parts back, but for what others have of them: Nodes made by hand may share a network.
func (c *CIDRs) release(parts []netip.Prefix) {
	for _, b := range c.blocks {
		for _, p := range parts {
			b.Release(p)
		}
		for _, all := range []map[types.UID][]netip.Prefix{c.held, c.doubt} {
			for _, others := range all {
				for _, p := range others {
					b.Exclude(p)
				}
			}
		}
		for _, p := range c.cfg.Services {
			b.Exclude(p)
		}
	}
}

// give allocates one part of each family, all or nothing (N-3.57), and writes them; false: to be tried again.
func (c *CIDRs) give(ctx context.Context, n *corev1.Node) bool {
	parts := c.doubt[n.UID]
	delete(c.doubt, n.UID)
	for i := len(parts); i < len(c.blocks); i++ {
		p, err := c.blocks[i].Next()
		if err != nil {
			c.release(parts)
			c.events.Event(n, corev1.EventTypeNormal, "CIDRNotAvailable", fmt.Sprintf("Node %s status is now: CIDRNotAvailable", n.Name))
			c.grumble.about(ctx, "no pod network is left for a node", err, "node", n.Name)
			return false
		}
		parts = append(parts, p)
	}
	var text []string
	for _, p := range parts {
		text = append(text, p.String())
	}
	_, changed, err := amend(ctx, c.w.Client, api.Nodes, n, "", func(n *corev1.Node) bool {
		if len(n.Spec.PodCIDRs) > 0 || n.Spec.PodCIDR != "" {
			return false // somebody was faster
		}
		n.Spec.PodCIDR, n.Spec.PodCIDRs = text[0], text
		return true
	})
	switch {
	case err == nil && changed:
		c.held[n.UID] = parts
		slog.Info("gave a node its pod network", "node", n.Name, "cidrs", text)
		return true
	case err == nil:
		c.release(parts) // the next look records what it has
		return true
	}
	c.events.Event(n, corev1.EventTypeNormal, "CIDRAssignmentFailed", fmt.Sprintf("Node %s status is now: CIDRAssignmentFailed", n.Name))
	c.grumble.about(ctx, "cannot give a node its pod network", err, "node", n.Name)
	if apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		c.doubt[n.UID] = parts // it may have been written all the same (N-3.56)
		return false
	}
	c.release(parts)
	return false
}
