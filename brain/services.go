package brain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/api/discovery"
	"ledge/api/kinds"
	"ledge/brain/place"
	"ledge/network"
	"ledge/network/given"
	"ledge/node/services"
	"ledge/storage"
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

// openForwarding has the Services of the control plane heard, if somebody forwards them.
func openForwarding(b *Brain) (f forwarding) {
	if f.rules = forwarder(b.rims.Network, b.Bridge); f.rules == nil {
		return f
	}
	cfg := services.Config{Client: b.client, Forwarder: f.rules, Node: b.Name, Pods: b.given.Prefixes,
		Here: func() []*corev1.Pod { return b.agent.Pods() }}
	if b.plane == nil {
		cfg.Memory = remembered{b.store.Table("services")}
	}
	f.loop = services.New(cfg)
	return f
}

// remembered is what a board that has joined remembers of Services.
type remembered struct{ *storage.Table }

func (r remembered) Load() (rows map[string][]byte, whole bool, err error) {
	rows, damaged, err := r.All()
	return rows, len(damaged) == 0, err
}

func (r remembered) Save(rows map[string][]byte) error { return r.PutAll(rows) }

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
