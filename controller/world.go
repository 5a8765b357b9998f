package controller

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/discovery"
	"ledge/api/kinds"
	"ledge/api/policy"
)

// World is what the loops look at: what one of them asks for is followed, once for all of them. A kind that has no objects yet
// is not followed until it has: it costs no goroutine, no watch and no copy.
type World struct {
	Client api.Client
	kinds  *api.Kinds
	views  map[string]*api.View[api.Object]    // by kind and selection
	with   map[*api.View[api.Object]]*api.Kind // what matters only beside objects of another kind
}

// NewWorld prepares a World; Run fills it. Without kinds it has those of a board.
func NewWorld(c api.Client, of *api.Kinds) *World {
	if of == nil {
		of = kinds.All
	}
	return &World{Client: c, kinds: of, views: map[string]*api.View[api.Object]{}, with: map[*api.View[api.Object]]*api.Kind{}}
}

// viewWith is a view of all objects of a kind that nobody looks at before there is one of another kind.
func (w *World) viewWith(kind, other *api.Kind) *api.View[api.Object] {
	v := w.view(kind, api.Selection{})
	w.with[v] = other
	return v
}

// view is the one of what a selection picks. Ask for it before Run.
func (w *World) view(kind *api.Kind, sel api.Selection) *api.View[api.Object] {
	name := fmt.Sprint(kind.GR(), sel.Namespace, sel.Fields)
	if w.views[name] == nil {
		w.views[name] = api.NewView[api.Object](w.Client, kind, sel)
	}
	return w.views[name]
}

// has says whether there are objects of a kind here.
func (w *World) has(kind *api.Kind) bool { return slices.Contains(w.kinds.Kept, kind) }

// Run follows until ctx ends.
func (w *World) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	begin := make(chan *api.View[api.Object], len(w.views)) // each comes once
	sparse, ok := w.Client.(api.Sparse)
	for _, v := range w.views {
		start, kind := func() { begin <- v }, v.Kind()
		if other := w.with[v]; other != nil {
			kind = other
		}
		switch {
		case !ok:
			start()
		case sparse.WhenAny(kind, start):
			v.Empty()
		}
	}
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case v := <-begin:
			g.Go(func() error { return v.Run(ctx) })
		}
	}
}

// follow is a view of which a loop need not know the type.
type follow interface {
	Synced() <-chan struct{}
	Tell(chan struct{})
}

// Of is a view of objects of one type.
type Of[T api.Object] struct{ *api.View[api.Object] }

// List is what the view holds now, in no order.
func (o Of[T]) List() []T {
	var out []T
	o.Each(func(obj api.Object) { out = append(out, obj.(T)) })
	return out
}

// Get finds one object.
func (o Of[T]) Get(namespace, name string) (obj T, ok bool) {
	found, ok := o.View.Get(namespace, name)
	if !ok {
		return obj, false
	}
	return found.(T), true
}

// listen gives a channel that receives after changes of any of these. Call it before they Run.
func listen(to ...follow) <-chan struct{} {
	ch := make(chan struct{}, 1)
	for _, f := range to {
		f.Tell(ch)
	}
	return ch
}

// What several loops look at.

func (w *World) nodes() Of[*corev1.Node] { return Of[*corev1.Node]{w.view(api.Nodes, api.Selection{})} }

func (w *World) pods() Of[*corev1.Pod] { return Of[*corev1.Pod]{w.view(api.Pods, api.Selection{})} }

func (w *World) leases() Of[*coordinationv1.Lease] {
	return Of[*coordinationv1.Lease]{w.view(coordination.Leases, api.Selection{Namespace: corev1.NamespaceNodeLease})}
}

func (w *World) budgets() Of[*policyv1.PodDisruptionBudget] {
	return Of[*policyv1.PodDisruptionBudget]{w.view(policy.PodDisruptionBudgets, api.Selection{})}
}

func (w *World) services() Of[*corev1.Service] {
	return Of[*corev1.Service]{w.view(api.Services, api.Selection{})}
}

func (w *World) slices() Of[*discoveryv1.EndpointSlice] {
	return Of[*discoveryv1.EndpointSlice]{w.view(discovery.EndpointSlices, api.Selection{})}
}
