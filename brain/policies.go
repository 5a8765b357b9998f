package brain

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"ledge/brain/place"
	"ledge/config"
	"ledge/network"
	"ledge/node/policies"
)

// fences are the network policies of this board's pods. The zero value holds none.
type fences struct {
	rules network.Fencer
	loop  *policies.Loop
}

// fencer is what holds policies for the pods on a bridge; nil: pods have the host's network, or packets are played.
func fencer(n Network, bridge string) network.Fencer {
	if bridge == place.NoBridge || bridge == config.PluginNetwork {
		return nil
	}
	return n.Fencer(bridge)
}

// open is for a board whose agent is not there yet.
func (f *fences) open(b *Brain) {
	if f.rules = fencer(b.rims.Network, b.Bridge); f.rules == nil {
		return
	}
	f.loop = policies.New(policies.Config{Client: b.client, Fencer: f.rules, Where: b.given.PodsOf,
		Pods: func() []*corev1.Pod { return b.agent.Pods() }})
	b.given.Before, b.given.Moved = f.loop.Known, f.loop.Moved
}

// guard has a network ask before it connects a pod.
func (f *fences) guard(n network.Setup) {
	if g, ok := n.(network.Guarded); ok {
		g.Guard(func(ctx context.Context, pod network.Pod, addrs []netip.Addr) error {
			if f.loop == nil {
				return nil
			}
			return f.loop.Guard(ctx, pod, addrs)
		})
	}
}

// handed tells of the pods of this board.
func (f *fences) handed() {
	if f.loop != nil {
		f.loop.Handed()
	}
}

// remove takes every rule away.
func (f *fences) remove(ctx context.Context) error {
	if f.rules == nil {
		return nil
	}
	return f.rules.Delete(ctx)
}
