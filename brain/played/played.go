// Package played is rims of a brain that touch no machine, for simulations and benchmarks.
package played

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/brain"
	"ledge/host"
	"ledge/images"
	"ledge/network"
	"ledge/node"
	"ledge/runtime"
	"ledge/shutdown"
	"ledge/storage"
)

// Board is what a brain gets.
type Board struct {
	Host    *host.Host
	Machine node.Machine
	Engine  node.Engine
	Images  brain.Images
	// Network opens the network of the pods.
	Network func(cidr, cidr6 netip.Prefix) (brain.PodNetwork, error)
	Signals chan os.Signal
	Keys    string // a directory without power keys
	// Sizes hold its claims to their sizes. Nil: the kernel does, where it can.
	Sizes *Sizes
}

// Rims are those of the board. Its store does not wait for the disk, nobody knocks at its door, and nothing switches it off.
func (b Board) Rims() brain.Rims {
	rims := brain.Rims{
		Host: b.Host, Machine: b.Machine,
		Store: func(ctx context.Context, dir string) (*storage.Store, error) {
			return storage.Open(ctx, storage.Config{Dir: dir, NoSync: true})
		},
		Images:  func(context.Context, images.StoreConfig) (brain.Images, error) { return b.Images, nil },
		Keeper:  brain.Keeper{Open: func([]string) brain.Engine { return keeper{b.Engine} }},
		Network: networks{b},
		Power: brain.Power{Signals: b.Signals, Keys: b.Keys, GoingDown: func(context.Context) bool { return false },
			Off: func(_ context.Context, by shutdown.Backend, _ bool) error {
				return fmt.Errorf("no board is switched off by %s here", by)
			}},
		Doors: func(string) ([]*httpd.Listener, error) {
			l, _ := httpd.Pipe(api.User{Name: "nobody"})
			return []*httpd.Listener{l}, nil
		},
	}
	if b.Sizes != nil { // a nil *Sizes in it would not be nil
		rims.Sizes = b.Sizes
	}
	return rims
}

// keeper is an engine in the same process.
type keeper struct{ node.Engine }

// Run implements brain.Engine: nobody's files have to be held.
func (keeper) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Process implements brain.Engine.
func (keeper) Process(context.Context) (int, runtime.Info, error) {
	return 0, runtime.Info{}, errors.New("a played keeper is no process")
}

// Reset implements brain.Engine.
func (keeper) Reset(context.Context) error { return errors.New("a played keeper does not end") }

// networks are those of one board, which nobody else wants.
type networks struct{ b Board }

// Check implements brain.Network.
func (networks) Check(string) error { return nil }

// Hold implements brain.Network.
func (networks) Hold(context.Context) (func(), error) { return func() {}, nil }

// Forwarder implements brain.Network: no packets are played.
func (networks) Forwarder(string) network.Forwarder { return nil }

// Fencer implements brain.Network.
func (networks) Fencer(string) network.Fencer { return nil }

// Open implements brain.Network.
func (n networks) Open(_ string, cidr, cidr6 netip.Prefix) (brain.PodNetwork, error) {
	return n.b.Network(cidr, cidr6)
}
