package controller

import (
	"context"
	"errors"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/controller/endpoints"
)

// sliceBook is the slices of one manager as they are by now, and how they are written.
type sliceBook struct {
	w       *World
	manager string
	all     Of[*discoveryv1.EndpointSlice]
	made    latest[*discoveryv1.EndpointSlice]
	gone    map[types.UID]bool // by our doing, and the view still shows them
}

func newSliceBook(w *World, manager string) sliceBook {
	return sliceBook{w: w, manager: manager, all: w.slices(),
		made: latest[*discoveryv1.EndpointSlice]{}, gone: map[types.UID]bool{}}
}

// ofServices are the slices by the Services whose names they bear.
func (b *sliceBook) ofServices(ctx context.Context, now time.Time) map[types.NamespacedName][]*discoveryv1.EndpointSlice {
	out, unseen := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}, map[types.UID]bool{}
	for _, s := range b.made.over(b.all.List(), unknown[*discoveryv1.EndpointSlice](ctx, b.w.Client, discovery.EndpointSlices), now) {
		switch {
		case s.Labels[discoveryv1.LabelManagedBy] != b.manager:
		case b.gone[s.UID]:
			unseen[s.UID] = true
		default:
			key := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
			out[key] = append(out[key], s)
		}
	}
	b.gone = unseen
	return out
}

// wake is when to look again at what was written and does not show up.
func (b *sliceBook) wake() time.Duration {
	if len(b.made) > 0 {
		return madeDoubt
	}
	return idle
}

// write takes the steps of a plan until one fails.
func (b *sliceBook) write(ctx context.Context, p endpoints.Plan, now time.Time) error {
	for _, s := range p.Create {
		out, err := api.Create(ctx, b.w.Client, discovery.EndpointSlices, s)
		if err != nil {
			return err
		}
		b.made.note(out, now)
	}
	for _, s := range p.Update {
		out, err := api.Update(ctx, b.w.Client, discovery.EndpointSlices, s)
		if err != nil {
			return err
		}
		b.made.note(out, now)
	}
	return b.remove(ctx, p.Delete)
}

// remove deletes slices, of exactly these UIDs.
func (b *sliceBook) remove(ctx context.Context, list []*discoveryv1.EndpointSlice) error {
	var errs []error
	for _, s := range list {
		_, err := b.w.Client.Delete(ctx, discovery.EndpointSlices, s.Namespace, s.Name, api.DeleteOptions{UID: &s.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, err)
			continue
		}
		delete(b.made, s.UID)
		b.gone[s.UID] = true
	}
	return errors.Join(errs...)
}
