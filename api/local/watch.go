package local

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/storage"
)

// Watch implements api.Client.
func (c *Client) Watch(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	if kind.View != nil {
		return watchView(ctx, c, kind, opts)
	}
	return watchAs(ctx, c, kind, opts, decoded)
}

func watchAs[T any](ctx context.Context, c *Client, kind *api.Kind, opts api.WatchOptions, as shape[T]) (api.Watcher[T], error) {
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
	w := &watch[T]{store: c.store, kind: kind, opts: opts, as: as, every: c.cfg.Bookmarks}
	if now := c.store.Revision(); from > now {
		return nil, tooLarge(from, now)
	}
	if from == 0 || opts.InitialEvents {
		l := newLook(kind, opts.Selection, as)
		if err := l.read(c); err != nil {
			return nil, err
		}
		if err := w.present(l); err != nil {
			return nil, err
		}
		from = l.rev
	}
	if w.changes, err = c.store.Watch(kind, from); err != nil {
		return nil, tooOld(err)
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.bookmarkAt = time.Now().Add(w.every)
	return w, nil
}

// watch is one reader of the ring of changes. It holds no queue but the present state it began with.
type watch[T any] struct {
	ctx    context.Context // of the request: ends the watch
	cancel context.CancelFunc

	store   *storage.Store
	kind    *api.Kind
	opts    api.WatchOptions
	picks   func(api.Object) bool
	as      shape[T]
	changes *storage.Watch
	first   []api.EventOf[T] // still to be delivered, before any change

	every      time.Duration
	bookmarkAt time.Time
}

// present queues the present state as Added events, and says where it ends to those who asked (N-11.31).
func (w *watch[T]) present(l *look[T]) error {
	for _, i := range l.items {
		w.first = append(w.first, api.EventOf[T]{Type: api.Added, Object: i.value})
	}
	if !w.opts.InitialEvents {
		return nil
	}
	e, err := w.bookmark(l.rev, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	w.first = append(w.first, e)
	return err
}

func (w *watch[T]) bookmark(rev uint64, annotations map[string]string) (api.EventOf[T], error) {
	obj := w.kind.New()
	obj.SetResourceVersion(strconv.FormatUint(rev, 10))
	obj.SetAnnotations(annotations)
	w.kind.Stamp(obj)
	return eventOf(api.Bookmark, obj, w.as.shared)
}

// eventOf is an event of what made gives for its source.
func eventOf[S, T any](what api.EventType, source S, made func(S) (T, error)) (e api.EventOf[T], err error) {
	e.Type = what
	if e.Object, err = made(source); err != nil {
		return e, apierrors.NewInternalError(err)
	}
	return e, nil
}

// State is what is still to be told of the present state that the watch began with.
func (w *watch[T]) State() []api.EventOf[T] { return w.first }

// Next implements api.Watch.
func (w *watch[T]) Next() (e api.EventOf[T], err error) {
	for {
		if err := w.ctx.Err(); err != nil {
			return e, fmt.Errorf("%w: %w", timeout(err), err)
		}
		if len(w.first) > 0 {
			e := w.first[0]
			w.first[0] = api.EventOf[T]{}
			w.first = w.first[1:]
			return e, nil
		}
		ch, ok, err := w.wait()
		if err != nil {
			return e, err
		}
		if !ok {
			// The revision is read before the ring: whatever it counts is in the ring already, so when the
			// ring has nothing for us a reader may resume from there.
			rev := w.store.Revision()
			ch, err = w.changes.Next(noWait)
			if errors.Is(err, context.Canceled) {
				w.bookmarkAt = time.Now().Add(w.every)
				return w.bookmark(rev, nil)
			}
			if err != nil {
				return e, tooOld(err)
			}
		}
		if e, ok, err := w.event(ch); ok {
			return e, err
		}
	}
}

// wait takes the next change; ok is false when it is time for a bookmark instead.
func (w *watch[T]) wait() (ch storage.Change, ok bool, err error) {
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
func (w *watch[T]) event(ch storage.Change) (e api.EventOf[T], some bool, err error) {
	if w.picks == nil {
		w.picks = w.opts.Matcher(w.kind)
	}
	is := ch.Type != api.Deleted && w.picks(ch.Object)
	was := ch.Old != nil && w.picks(ch.Old)
	switch {
	case is && was:
		e, err = eventOf(api.Modified, ch, w.as.change)
	case is:
		e, err = eventOf(api.Added, ch, w.as.change)
	case was && ch.Type == api.Deleted:
		e, err = eventOf(api.Deleted, ch, w.as.change)
	case was:
		last := clone(ch.Old)
		last.SetResourceVersion(strconv.FormatUint(ch.Rev, 10))
		e, err = eventOf(api.Deleted, last, w.as.shared)
	default:
		return e, false, nil
	}
	return e, true, err
}

// Close implements api.Watch.
func (w *watch[T]) Close() {
	w.cancel()
	w.changes.Close()
}

func tooOld(err error) error {
	return fmt.Errorf("%w: %w", expired("too old resource version, or the reader fell behind; list again"), err)
}
