package brain

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/api/discovery"
	"ledge/api/kinds"
	"ledge/brain/place"
	"ledge/config"
	"ledge/host"
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
	switch bridge {
	case config.PluginNetwork: // what forwards for its pods comes with it
		return nil
	case place.NoBridge:
		bridge = ""
	}
	return n.Forwarder(bridge)
}

// openForwarding has the Services of the control plane heard, if somebody forwards them.
func openForwarding(b *Brain) (f forwarding) {
	if f.rules = forwarder(b.rims.Network, b.Bridge); f.rules == nil && b.Bridge != config.PluginNetwork {
		return f
	}
	cfg := services.Config{Client: b.client, Forwarder: f.rules, Node: b.Name, Pods: b.given.Prefixes, Events: b.events,
		Here:      func() []*corev1.Pod { return b.agent.Pods() },
		Addresses: func() ([]netip.Addr, error) { return b.rims.Host.Addresses() },
		Listeners: func() ([]services.Listener, error) { return listeners(b) }}
	if b.plane == nil {
		cfg.Memory = remembered{b.store.Table("services"), filepath.Join(b.RunDir, "services.lag")}
	}
	f.loop = services.New(cfg)
	return f
}

// listeners are the sockets on which processes of this machine wait for others.
func listeners(b *Brain) ([]services.Listener, error) {
	list, err := host.Listeners(b.rims.Host)
	out := make([]services.Listener, len(list))
	for i, l := range list {
		out[i] = services.Listener(l)
	}
	return out, err
}

// remembered is what a board that has joined remembers of Services. A file in the run directory says that the card lags.
type remembered struct {
	*storage.Table
	lags string
}

func (r remembered) Load() (rows map[string][]byte, whole bool, err error) {
	rows, damaged, err := r.All()
	if len(damaged) > 0 {
		slog.Error("some of what is remembered of Services is damaged and forgotten", "entries", len(damaged))
	}
	_, behind := os.Lstat(r.lags)
	return rows, len(damaged) == 0 && errors.Is(behind, os.ErrNotExist), err
}

func (r remembered) Lag() {
	if err := os.WriteFile(r.lags, nil, 0o600); err != nil { // a full tmpfs: after a crash what is remembered counts all the same
		slog.Debug("cannot note that Services are to be written down", "err", err)
	}
}

func (r remembered) Save(rows map[string][]byte) error {
	if len(rows) > 0 {
		if err := r.PutAll(rows); err != nil {
			return err
		}
	}
	if err := os.Remove(r.lags); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
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
