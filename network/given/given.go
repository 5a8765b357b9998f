// Package given is the pods' network of a board whose control plane says which one it is.
package given

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
	"ledge/network"
	"ledge/network/plan"
)

// Network is the pod network of a board whose control plane may assign one (N-3.60). Until the Node has an assigned
// network the board uses the one it started with.
type Network struct {
	Open func(cidr, cidr6 netip.Prefix) (network.Setup, error)
	Keep func(text string) error // for the next start
	Busy func() bool             // pods have addresses
	// Before waits until pods may be connected; nil: they may.
	Before func(context.Context) error
	// Moved is called when boards' networks are heard; nil: nobody asks.
	Moved func()
	Name  string // of the board

	mu     sync.Mutex
	Inner  network.Setup
	Uses   string           // "10.0.1.0/24,fd00::/64"
	given  string           // to the Node; "" none
	Expect bool             // the control plane is here and gives networks
	fault  error            // of the last look
	boards []api.PodNetwork // of the whole shed, this one too; nil: not heard of yet, and routes stay as they are
	astray error            // why there may be no routes to other boards' pods
	missed []network.Missed

	told atomic.Pointer[map[string][]netip.Prefix] // the networks of boards
}

// Saw takes note of the Node as the API has it; true: what it says of the network is new. A board without its uplink keeps
// what it has.
func (p *Network) Saw(n *corev1.Node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	given := strings.Join(n.Spec.PodCIDRs, ",")
	other := given != p.given
	p.given = given
	return other
}

// CIDRs are the networks in use.
func (p *Network) CIDRs() (cidr, cidr6 netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cidr, cidr6, _ = plan.ParseCIDRs(p.Uses) // it was read before
	return cidr, cidr6
}

// Prefixes are the networks in use, as many as there are; none where pods have the host's.
func (p *Network) Prefixes() (out []netip.Prefix) {
	if p == nil {
		return nil
	}
	cidr, cidr6 := p.CIDRs()
	for _, n := range []netip.Prefix{cidr, cidr6} {
		if n.IsValid() {
			out = append(out, n)
		}
	}
	return out
}

// Answerable implements network.Answerer, where the network in use does.
func (p *Network) Answerable() error {
	if n, ok := p.now().(network.Answerer); ok {
		return n.Answerable()
	}
	return nil
}

// now is the network in use.
func (p *Network) now() network.Setup {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Inner
}

// Ready implements network.Setup: it is asked whenever the node's status is computed.
func (p *Network) Ready(ctx context.Context) error {
	err := p.follow(ctx)
	if err == nil {
		err = p.now().Ready(ctx)
	}
	if err == nil {
		p.reach(ctx) // a board that others cannot be reached from is ready all the same
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
	return err
}

// Attach implements network.Setup.
func (p *Network) Attach(ctx context.Context, pod network.Pod) ([]netip.Addr, error) {
	if p.Before != nil {
		if err := p.Before(ctx); err != nil {
			return nil, err
		}
	}
	return p.now().Attach(ctx, pod)
}

// Detach implements network.Setup.
func (p *Network) Detach(ctx context.Context, uid string) error { return p.now().Detach(ctx, uid) }

// Retain implements network.Setup.
func (p *Network) Retain(ctx context.Context, uids []string) error {
	return p.now().Retain(ctx, uids)
}

// Close implements network.Setup.
func (p *Network) Close(ctx context.Context) error { return p.now().Close(ctx) }

// follow takes over the network that the Node was given, when no pod stands in the old one: pods keep their addresses for
// life.
func (p *Network) follow(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given == "" || p.given == p.Uses || p.Busy() {
		return nil
	}
	cidr, cidr6, err := plan.ParseCIDRs(p.given)
	if err != nil || !cidr.IsValid() {
		return fmt.Errorf("the node was given the pod network %s, which this board cannot have: %w", p.given, errors.Join(err, errNoIPv4))
	}
	next, err := p.Open(cidr, cidr6)
	if err != nil {
		return fmt.Errorf("take over pod network %s: %w", p.given, err)
	}
	if err := p.Inner.Close(ctx); err != nil {
		return fmt.Errorf("leave pod network %s: %w", p.Uses, err)
	}
	p.Inner = next
	slog.Info("took over the pod network that the node was given", "cidr", p.given, "was", p.Uses)
	p.Uses = p.given
	return p.Keep(p.given)
}

// Watch follows what the control plane says of all boards' pods, until ctx ends.
func (p *Network) Watch(ctx context.Context, client api.Client) error {
	sel := api.Selection{Namespace: metav1.NamespaceSystem, Fields: fields.OneTermEqualSelector("metadata.name", api.PodNetworksName)}
	view := api.NewView[*corev1.ConfigMap](client, api.ConfigMaps, sel)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return view.Run(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-view.Changed():
			}
			boards := []api.PodNetwork{}
			if c, ok := view.Get(metav1.NamespaceSystem, api.PodNetworksName); ok {
				boards = append(boards, api.ParsePodNetworks(c.Data)...)
			}
			p.mu.Lock()
			p.boards = boards
			p.mu.Unlock()
			told := map[string][]netip.Prefix{}
			for _, b := range boards {
				told[b.Node] = b.CIDRs
			}
			p.told.Store(&told)
			if p.Moved != nil {
				p.Moved()
			}
			p.reach(ctx)
		}
	})
	return g.Wait()
}

// PodsOf are the networks of the pods of a board; false: the control plane has said that of none.
func (p *Network) PodsOf(node string) ([]netip.Prefix, bool) {
	all := p.told.Load()
	if all == nil {
		return nil, false
	}
	return (*all)[node], len(*all) > 0
}

// reach makes the routes to other boards' pods, and takes back those to boards that are gone. While this board's own pods
// have other addresses than the shed knows, nobody could answer them: there are none then.
func (p *Network) reach(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	router, ok := p.Inner.(network.Router)
	if !ok || p.boards == nil {
		return
	}
	var peers []network.Peer
	known := false
	for _, b := range p.boards {
		if b.Node == p.Name {
			known = prefixTexts(b.CIDRs) == p.Uses
			continue
		}
		peers = append(peers, network.Peer{Name: b.Node, CIDRs: b.CIDRs, Addresses: b.Addresses})
	}
	if !known {
		peers = nil
	}
	missed, err := router.Reach(ctx, peers)
	if ctx.Err() != nil {
		return
	}
	if err != nil && (p.astray == nil || p.astray.Error() != err.Error()) {
		slog.Warn("cannot make the routes to the pods of other boards; trying again at each look", "err", err)
	}
	if !slices.Equal(missed, p.missed) && len(missed) > 0 {
		slog.Warn("pods of some boards cannot be reached from this one", "boards", missedText(missed))
	}
	p.astray, p.missed = err, missed
}

func prefixTexts(list []netip.Prefix) string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.String()
	}
	return strings.Join(out, ",")
}

// mostMissed bounds how many boards a condition names.
const mostMissed = 5

func missedText(missed []network.Missed) string {
	var out []string
	for i, m := range missed {
		if i == mostMissed {
			out = append(out, fmt.Sprintf("and %d more", len(missed)-i))
			break
		}
		out = append(out, m.Peer+" ("+m.Why+")")
	}
	return strings.Join(out, ", ")
}

var errNoIPv4 = errors.New("a board's pods have IPv4 addresses, and IPv6 ones beside them")

// Condition tells the truth about the network of pods (N-1.54): it is there when the bridge stands on what the node was
// given. Where nobody gives networks there is no such condition.
func (p *Network) Condition() (corev1.NodeCondition, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"}
	switch {
	case p.given == "" && !p.Expect:
		return corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable}, false
	case p.given == "":
		c.Message = "the node has no network for its pods yet"
	case p.given != p.Uses:
		c.Message = fmt.Sprintf("the node was given %s; pods that run have addresses of %s, and it is taken over when they are gone", p.given,
			p.Uses)
	case p.fault != nil:
		c.Message = "the network of pods is not ready: " + p.fault.Error()
	case p.astray != nil:
		c.Message = p.astray.Error()
	default:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "RouteCreated", "pods have addresses of "+p.Uses
		if len(p.missed) > 0 { // a board elsewhere must not keep pods off this one
			c.Message += "; pods of these boards cannot be reached: " + missedText(p.missed)
		}
	}
	return c, true
}
