package local

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/storage"
)

// Watch implements api.Client.
func (c *Client) Watch(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	if kind.View != nil {
		return c.watchView(ctx, kind, opts)
	}
	if err := ctx.Err(); err != nil {
		return nil, timeout(err)
	}
	if err := api.CheckFields(kind, opts.Fields); err != nil {
		return nil, err
	}
	if !kind.Namespaced {
		opts.Namespace = ""
	}
	from, err := revision(opts.Revision)
	if err != nil {
		return nil, err
	}
	w := &watch{store: c.store, kind: kind, opts: opts, every: c.cfg.Bookmarks}
	if now := c.store.Revision(); from > now {
		return nil, tooLarge(from, now)
	}
	if from == 0 || opts.InitialEvents {
		objs, rev, err := c.read(kind, opts.Selection)
		if err != nil {
			return nil, err
		}
		w.present(objs, rev)
		from = rev
	}
	if w.changes, err = c.store.Watch(kind, from); err != nil {
		return nil, tooOld(err)
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.bookmarkAt = time.Now().Add(w.every)
	return w, nil
}

// watch is one reader of the ring of changes. It holds no queue but the present state it began with.
type watch struct {
	ctx    context.Context // of the request: ends the watch
	cancel context.CancelFunc

	store   *storage.Store
	kind    *api.Kind
	opts    api.WatchOptions
	changes *storage.Watch
	first   []api.Event // still to be delivered, before any change

	every      time.Duration
	bookmarkAt time.Time
}

// present queues the present state as Added events, and says where it ends to those who asked (N-11.31).
func (w *watch) present(objs []api.Object, rev uint64) {
	for _, o := range objs {
		if w.opts.Matches(w.kind, o) {
			w.kind.Stamp(o)
			w.first = append(w.first, api.Event{Type: api.Added, Object: o})
		}
	}
	if w.opts.InitialEvents {
		e := w.bookmark(rev)
		e.Object.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.first = append(w.first, e)
	}
}

func (w *watch) bookmark(rev uint64) api.Event {
	obj := w.kind.New()
	obj.SetResourceVersion(strconv.FormatUint(rev, 10))
	w.kind.Stamp(obj)
	return api.Event{Type: api.Bookmark, Object: obj}
}

// State is what is still to be told of the present state that the watch began with.
func (w *watch) State() []api.Event { return w.first }

// Next implements api.Watch.
func (w *watch) Next() (api.Event, error) {
	for {
		if err := w.ctx.Err(); err != nil {
			return api.Event{}, fmt.Errorf("%w: %w", timeout(err), err)
		}
		if len(w.first) > 0 {
			e := w.first[0]
			w.first[0] = api.Event{}
			w.first = w.first[1:]
			return e, nil
		}
		ch, ok, err := w.wait()
		if err != nil {
			return api.Event{}, err
		}
		if !ok {
			// The revision is read before the ring: whatever it counts is in the ring already, so when the
			// ring has nothing for us a reader may resume from there.
			rev := w.store.Revision()
			ch, err = w.changes.Next(noWait)
			if errors.Is(err, context.Canceled) {
				w.bookmarkAt = time.Now().Add(w.every)
				return w.bookmark(rev), nil
			}
			if err != nil {
				return api.Event{}, tooOld(err)
			}
		}
		if e, ok := w.event(ch); ok {
			return e, nil
		}
	}
}

// wait takes the next change; ok is false when it is time for a bookmark instead.
func (w *watch) wait() (ch storage.Change, ok bool, err error) {
	ctx := w.ctx
	if w.opts.Bookmarks {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, w.bookmarkAt)
		defer cancel()
	}
	ch, err = w.changes.Next(ctx)
	switch {
	case err == nil:
		return ch, true, nil
	case w.ctx.Err() != nil:
		return ch, false, fmt.Errorf("%w: %w", timeout(w.ctx.Err()), w.ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return ch, false, nil
	}
	return ch, false, tooOld(err)
}

// event is what a change means to someone who sees only a part: what leaves it is deleted, what comes into it
// is added (N-11.30).
func (w *watch) event(ch storage.Change) (api.Event, bool) {
	is := ch.Type != api.Deleted && w.opts.Matches(w.kind, ch.Object)
	was := ch.Old != nil && w.opts.Matches(w.kind, ch.Old)
	e := api.Event{}
	switch {
	case is && was:
		e = api.Event{Type: api.Modified, Object: clone(ch.Object)}
	case is:
		e = api.Event{Type: api.Added, Object: clone(ch.Object)}
	case was:
		last := ch.Old
		if ch.Type == api.Deleted {
			last = ch.Object
		}
		e = api.Event{Type: api.Deleted, Object: clone(last)}
		e.Object.SetResourceVersion(strconv.FormatUint(ch.Rev, 10))
	default:
		return e, false
	}
	w.kind.Stamp(e.Object)
	return e, true
}

// Close implements api.Watch.
func (w *watch) Close() {
	w.cancel()
	w.changes.Close()
}

func tooOld(err error) error {
	return fmt.Errorf("%w: %w", expired("too old resource version, or the reader fell behind; list again"), err)
}
