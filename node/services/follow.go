package services

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// follow hears all objects of a kind, then each change, and all again when the watch breaks. Unlike an api.View it keeps none.
func follow(ctx context.Context, c api.Client, kind *api.Kind, all func([]api.Object), one func(api.Event)) error {
	const first, most, unknown = 100 * time.Millisecond, 10 * time.Second, time.Minute
	for wait := first; ctx.Err() == nil; wait = min(wait*2, most) {
		heard, err := listen(ctx, c, kind, all, one)
		if heard {
			wait = first
		}
		if apierrors.IsNotFound(err) { // a control plane that has no such objects
			wait = unknown
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			slog.Debug("watch broke, listing again", "kind", kind.Resource, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

func listen(ctx context.Context, c api.Client, kind *api.Kind, all func([]api.Object), one func(api.Event)) (heard bool, err error) {
	list, err := c.List(ctx, kind, api.ListOptions{})
	if err != nil {
		return false, err
	}
	all(list.Items)
	w, err := c.Watch(ctx, kind, api.WatchOptions{Revision: list.Revision})
	if err != nil {
		return true, err
	}
	defer w.Close()
	for {
		e, err := w.Next()
		if err != nil {
			return true, err
		}
		if e.Type != api.Bookmark {
			one(e)
		}
	}
}
