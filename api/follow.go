package api

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Follower tells of all objects of a kind, then of each change, and of all again when the watch breaks. Unlike a View it keeps none.
type Follower struct {
	Client    Client
	Kind      *Kind
	Selection Selection
	All       func([]Object)
	One       func(Event)
	// Unknown is how long it waits where the server has no such kind; 0: as after any other failure.
	Unknown time.Duration
}

// Run follows until ctx ends. A broken watch is normal (restart, lapped, cut uplink): it waits a little,
// longer each time nothing was heard, and lists again.
func (f Follower) Run(ctx context.Context) error {
	const first, most = 100 * time.Millisecond, 10 * time.Second
	for wait := first; ctx.Err() == nil; wait = min(2*wait, most) {
		heard, err := f.listen(ctx)
		if ctx.Err() != nil {
			break
		}
		if heard {
			wait = first
		}
		if f.Unknown > 0 && apierrors.IsNotFound(err) {
			wait = f.Unknown
		}
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			slog.Debug("watch broke, listing again", "kind", f.Kind.Resource, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

func (f Follower) listen(ctx context.Context) (heard bool, err error) {
	list, err := f.Client.List(ctx, f.Kind, ListOptions{Selection: f.Selection})
	if err != nil {
		return false, err
	}
	f.All(list.Items)
	w, err := f.Client.Watch(ctx, f.Kind, WatchOptions{Selection: f.Selection, Revision: list.Revision})
	if err != nil {
		return true, err
	}
	defer w.Close()
	for {
		e, err := w.Next()
		if err != nil {
			return true, err
		}
		f.One(e)
	}
}
