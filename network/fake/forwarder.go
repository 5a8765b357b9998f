package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"ledge/network"
	"ledge/network/service"
)

// Kernel is what survives a restart of the process that runs a Forwarder.
type Kernel struct {
	mu       sync.Mutex
	services map[string]network.Service
	changes  int
}

// Services are those that are wanted, by name.
func (k *Kernel) Services() []network.Service {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.services), func(a, b network.Service) int { return cmp.Compare(a.Name, b.Name) })
}

// Changes counts what was done to it.
func (k *Kernel) Changes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes
}

// Forwarder forwards by a Kernel.
type Forwarder struct{ k *Kernel }

var _ network.Forwarder = (*Forwarder)(nil)

// NewForwarder is what a process does when it starts.
func NewForwarder(k *Kernel) *Forwarder { return &Forwarder{k} }

func (f *Forwarder) change(ctx context.Context, do func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.k.changes++
	if f.k.services == nil {
		f.k.services = map[string]network.Service{}
	}
	do()
	return nil
}

func (f *Forwarder) put(services []network.Service) {
	for _, s := range services {
		if f.k.services[s.Name] = s; len(s.Forwards)+len(s.ClusterIPs) == 0 {
			delete(f.k.services, s.Name)
		}
	}
}

// Update implements network.Forwarder.
func (f *Forwarder) Update(ctx context.Context, changed []network.Service) error {
	return f.change(ctx, func() { f.put(changed) })
}

// Prune implements network.Forwarder.
func (f *Forwarder) Prune(ctx context.Context, all []network.Service) error {
	return f.change(ctx, func() {
		clear(f.k.services)
		f.put(all)
	})
}

// Stands implements network.Forwarder.
func (f *Forwarder) Stands(ctx context.Context) (bool, error) {
	return len(f.k.Services()) > 0, ctx.Err()
}

// Short implements network.Forwarder.
func (f *Forwarder) Short() map[string]string {
	_, short := service.Allot(f.k.Services())
	return short
}

// Delete implements network.Forwarder.
func (f *Forwarder) Delete(ctx context.Context) error {
	return f.change(ctx, func() { clear(f.k.services) })
}
