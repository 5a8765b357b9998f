package dns

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// Follow keeps the zone as the API has Services, until ctx ends. Where there are none it costs nothing. What was heard last counts
// while the API cannot be reached.
func (z *Zone) Follow(ctx context.Context, client api.Client) error {
	f := follower[*corev1.Service]{client, api.Services, z.SetService, z.DeleteService, z.KeepServices, z.heardServices}
	return f.run(ctx)
}

// FollowSlices is Follow for EndpointSlices.
func (z *Zone) FollowSlices(ctx context.Context, client api.Client, kind *api.Kind) error {
	f := follower[*discoveryv1.EndpointSlice]{client, kind, z.SetSlice, z.DeleteSlice, z.KeepSlices, z.heardSlices}
	return f.run(ctx)
}

// Heard waits until Follow and FollowSlices know what there is, or until it has waited long enough: who asks before is told of a failure
// where the zone does not have the name.
func (z *Zone) Heard(ctx context.Context, within time.Duration) {
	late := time.NewTimer(within)
	defer late.Stop()
	for _, heard := range []chan struct{}{z.heardServices, z.heardSlices} {
		select {
		case <-heard:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// known says whether a name that is not in the zone does not exist.
func (z *Zone) known() bool {
	for _, heard := range []chan struct{}{z.heardServices, z.heardSlices} {
		select {
		case <-heard:
		default:
			return false
		}
	}
	return true
}

// follower tells of the objects of a kind as they come and go.
type follower[T api.Object] struct {
	client api.Client
	kind   *api.Kind
	set    func(T)
	gone   func(namespace, name string)
	keep   func(there func(namespace, name string) bool)
	heard  chan<- struct{} // is closed once it is known what there is
}

// told says once that it is known what there is.
func (f *follower[T]) told() {
	if f.heard != nil {
		close(f.heard)
		f.heard = nil
	}
}

func (f *follower[T]) run(ctx context.Context) error {
	if sparse, ok := f.client.(api.Sparse); ok {
		begin := make(chan struct{})
		if sparse.WhenAny(f.kind, func() { close(begin) }) {
			f.told() // there are none
			select {
			case <-begin:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return api.Follower{Client: f.client, Kind: f.kind, All: f.all, One: f.one}.Run(ctx)
}

func (f *follower[T]) all(list []api.Object) {
	there := map[types.NamespacedName]bool{}
	for _, o := range list {
		if t, ok := o.(T); ok {
			there[api.Key(o)] = true
			f.set(t)
		}
	}
	f.keep(func(namespace, name string) bool {
		return there[types.NamespacedName{Namespace: namespace, Name: name}]
	})
	f.told()
}

func (f *follower[T]) one(e api.Event) {
	t, ok := e.Object.(T)
	switch {
	case !ok || e.Type == api.Bookmark:
	case e.Type == api.Deleted:
		f.gone(t.GetNamespace(), t.GetName())
	default:
		f.set(t)
	}
}
