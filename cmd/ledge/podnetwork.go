package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/network"
)

// podNetwork is the pods' network of a board whose control plane may give it another one (N-3.60): the one it began with
// until the Node says which it has.
type podNetwork struct {
	open func(cidr, cidr6 netip.Prefix) (network.Setup, error)
	keep func(text string) error                     // for the next start
	node func(context.Context) (*corev1.Node, error) // as the API has it
	busy func() bool                                 // pods have addresses

	mu     sync.Mutex
	inner  network.Setup
	uses   string // "10.0.1.0/24,fd00::/64"
	given  string // to the Node; "" none
	expect bool   // the control plane is here and gives networks
	fault  error  // of the last look
}

// askNode is how long a look at the network waits for the API: a board without its uplink keeps what it has.
const askNode = 2 * time.Second

// now is the network in use.
func (p *podNetwork) now() network.Setup {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inner
}

// Ready implements network.Setup: it is asked whenever the node's status is computed.
func (p *podNetwork) Ready(ctx context.Context) error {
	err := p.follow(ctx)
	if err == nil {
		err = p.now().Ready(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
	return err
}

// Attach implements network.Setup.
func (p *podNetwork) Attach(ctx context.Context, pod network.Pod) ([]netip.Addr, error) {
	return p.now().Attach(ctx, pod)
}

// Detach implements network.Setup.
func (p *podNetwork) Detach(ctx context.Context, uid string) error { return p.now().Detach(ctx, uid) }

// Retain implements network.Setup.
func (p *podNetwork) Retain(ctx context.Context, uids []string) error {
	return p.now().Retain(ctx, uids)
}

// Close implements network.Setup.
func (p *podNetwork) Close(ctx context.Context) error { return p.now().Close(ctx) }

// follow takes over the network that the Node was given, when no pod stands in the old one: pods keep their addresses for
// life.
func (p *podNetwork) follow(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, askNode)
	defer cancel()
	n, err := p.node(ask)
	if err != nil {
		return nil //nolint:nilerr // what cannot be asked changes nothing
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given = strings.Join(n.Spec.PodCIDRs, ",")
	if p.given == "" || p.given == p.uses || p.busy() {
		return nil
	}
	cidr, cidr6, err := parseCIDRs(p.given)
	if err != nil || !cidr.IsValid() {
		return fmt.Errorf("the node was given the pod network %s, which this board cannot have: %w", p.given, errors.Join(err, errNoIPv4))
	}
	next, err := p.open(cidr, cidr6)
	if err != nil {
		return fmt.Errorf("take over pod network %s: %w", p.given, err)
	}
	if err := p.inner.Close(ctx); err != nil {
		return fmt.Errorf("leave pod network %s: %w", p.uses, err)
	}
	p.inner = next
	slog.Info("took over the pod network that the node was given", "cidr", p.given, "was", p.uses)
	p.uses = p.given
	return p.keep(p.given)
}

var errNoIPv4 = errors.New("a board's pods have IPv4 addresses, and IPv6 ones beside them")

// condition tells the truth about the network of pods (N-1.54): it is there when the bridge stands on what the node was
// given. Where nobody gives networks there is no such condition.
func (p *podNetwork) condition() (corev1.NodeCondition, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"}
	switch {
	case p.given == "" && !p.expect:
		return corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable}, false
	case p.given == "":
		c.Message = "the node has no network for its pods yet"
	case p.given != p.uses:
		c.Message = fmt.Sprintf("the node was given %s; pods that run have addresses of %s, and it is taken over when they are gone", p.given, p.uses)
	case p.fault != nil:
		c.Message = "the network of pods is not ready: " + p.fault.Error()
	default:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "RouteCreated", "pods have addresses of "+p.uses
	}
	return c, true
}

// giveNetwork makes the board's pod network one that follows its Node.
func (b *board) giveNetwork(first network.Setup, uses string, open func(cidr, cidr6 netip.Prefix) (network.Setup, error)) {
	b.given = &podNetwork{open: open, inner: first, uses: uses, expect: b.plane != nil && len(b.cidrs.Clusters) > 0,
		keep: func(text string) error { return b.store.Table("settings").Put(podCIDRKey, []byte(text)) },
		node: func(ctx context.Context) (*corev1.Node, error) {
			return api.Get[*corev1.Node](ctx, b.client, api.Nodes, "", b.name)
		},
		busy: b.podsHaveAddresses}
	b.network = b.given
}

// podsHaveAddresses: some pod of this board stands in the pods' network.
func (b *board) podsHaveAddresses() bool {
	for _, p := range b.agent.Pods() {
		if !p.Spec.HostNetwork {
			return true
		}
	}
	return false
}
