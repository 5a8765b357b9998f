package brain

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/api/kinds"
	"ledge/brain/place"
	"ledge/network"
	"ledge/network/given"
	"ledge/node/services"
)

// forwarding of Services on this machine. The zero value forwards none.
type forwarding struct {
	rules network.Forwarder
	loop  *services.Loop
}

// forwarder is what forwards for the pods on a bridge; nil: nobody does.
func forwarder(n Network, bridge string) network.Forwarder {
	if !slices.Contains(kinds.All.Kept, discovery.EndpointSlices) { // no Service can lead anywhere
		return nil
	}
	if bridge == place.NoBridge {
		bridge = ""
	}
	return n.Forwarder(bridge)
}

func openForwarding(n Network, bridge string, client api.Client, node string, pods func() []netip.Prefix) (f forwarding) {
	if f.rules = forwarder(n, bridge); f.rules != nil {
		f.loop = services.New(services.Config{Client: client, Forwarder: f.rules, Node: node, Pods: pods})
	}
	return f
}

// shown shows the Node to those who follow it.
func (f forwarding) shown(g *given.Network) func(*corev1.Node) bool {
	switch {
	case f.loop == nil && g == nil:
		return nil
	case f.loop == nil:
		return g.Saw
	}
	return func(n *corev1.Node) bool {
		f.loop.Saw(n)
		return g != nil && g.Saw(n)
	}
}

// of is where pods hear of Services; nil: nobody follows them.
func (f forwarding) of() func(context.Context, string) ([]*corev1.Service, error) {
	if f.loop == nil {
		return nil
	}
	return f.loop.Of
}

// remove takes every rule away.
func (f forwarding) remove(ctx context.Context) error {
	if f.rules == nil {
		return nil
	}
	return f.rules.Delete(ctx)
}
