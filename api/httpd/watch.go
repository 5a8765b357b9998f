package httpd

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

// watchEvent is one line of a watch.
type watchEvent struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// watch streams changes until the client leaves, its time is up, the server stops or the reader fell behind; the
// last is said by an ERROR event (N-11.30).
func (h *handler) watch(w *response, r *request) error {
	opts, fromNow, err := r.watchOptions()
	if err != nil {
		return err
	}
	form, err := r.form()
	if err != nil {
		return err
	}
	limit, err := r.watchTime()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	defer context.AfterFunc(stopping(r.Context()), cancel)()
	if fromNow {
		here, err := h.client.List(ctx, r.kind, api.ListOptions{Selection: opts.Selection, Limit: 1})
		if err != nil {
			return err
		}
		opts.Revision = here.Revision
	}
	if wire, _, ok := h.wire(r); ok {
		return follow(ctx, h, w, r, opts, form, wire.WatchJSON, lengthOf, lineJSON)
	}
	return follow(ctx, h, w, r, opts, form, h.client.Watch, sizeOf, h.forms.lineOf(r, form))
}

// line writes one event of a watch; first says that it is the first one.
type line[T any] func(out io.Writer, e api.EventOf[T], first bool) error

// lineOf writes events in the form that a request asks for.
func (f *forms) lineOf(r *request, form form) line[api.Object] {
	peers := r.showsPeers()
	return func(out io.Writer, e api.Event, first bool) error {
		if peers && e.Type != api.Bookmark {
			e.Object = peerOf(e.Object)
		}
		r.kind.Stamp(e.Object)
		object, err := f.shape(form, r.kind, e.Object, first)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(watchEvent{string(e.Type), object})
	}
}

// begin is how a watch begins: api.Client's, or api.Wire's.
type begin[T any] func(context.Context, *api.Kind, api.WatchOptions) (api.Watcher[T], error)

// follow begins a watch and writes its events.
func follow[T any](ctx context.Context, h *handler, w *response, r *request, opts api.WatchOptions, form form, watch begin[T],
	size func(...T) int, write line[T]) error {
	events, err := lookFrom(ctx, h, w, r, opts, watch, size)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		events, err = failedWatch[T]{err}, nil // said inside the watch, as Kubernetes does
	}
	if err != nil {
		return err
	}
	defer events.Close()
	return pump(ctx, h.limits.answers, w, form, events, size, write)
}

// lookFrom begins a watch. One that begins with much of a present state holds it until it is written, and needs a place
// for that, as a list does.
func lookFrom[T any](ctx context.Context, h *handler, w *response, r *request, opts api.WatchOptions, watch begin[T],
	size func(...T) int) (api.Watcher[T], error) {
	if opts.Revision != "" && opts.Revision != "0" && !opts.InitialEvents {
		return watch(ctx, r.kind, opts)
	}
	read := func() (api.Watcher[T], error) {
		done, err := h.limits.looking(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		return watch(ctx, r.kind, opts)
	}
	stateSize := func(w api.Watcher[T]) (n int) {
		for _, e := range stateOf(w) {
			n += size(e.Object)
		}
		return n
	}
	return readInPlace(ctx, h.limits.answers, w, h.largeBefore(r.kind, opts.Selection), read, stateSize, api.Watcher[T].Close)
}

// stateOf is what is still to be told of the present state that a watch began with.
func stateOf[T any](w api.Watcher[T]) []api.EventOf[T] {
	if s, ok := w.(interface{ State() []api.EventOf[T] }); ok {
		return s.State()
	}
	return nil
}

// pump writes the events of a watch, one line each, until either end has had enough. The present state that it began with goes out in
// pieces, as a list does; what happens is sent when it happens.
func pump[T any](ctx context.Context, places *answers, w *response, form form, events api.Watcher[T], size func(...T) int,
	write line[T]) error {
	w.Header().Set("Content-Type", form.contentType())
	w.Header().Set("Cache-Control", "no-cache, private")
	w.extend()
	w.WriteHeader(http.StatusOK)
	if err := w.flush(); err != nil {
		return nil // the client is gone
	}
	out := gathering{w: w}
	defer out.send()
	for first := true; ; first = false {
		e, err := events.Next()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			_ = json.NewEncoder(out.piece()).Encode(watchEvent{"ERROR", statusOf(err)}) // the client may be gone
			return nil
		}
		if size(e.Object) >= largeAnswer && w.place == nil && (out.send() != nil || places.enter(ctx, w) != nil) {
			return nil // as if it had not read in time: it begins again
		}
		if write(out.piece(), e, first) != nil {
			return nil
		}
		if len(stateOf(events)) > 0 {
			continue
		}
		if out.send() != nil {
			return nil
		}
		places.leave(w)
	}
}

// gathering is what of a watch was not sent yet. A watch that waits has no memory for it.
type gathering struct {
	w   *response
	out *bufio.Writer
}

// piece is where to write what is to be sent.
func (g *gathering) piece() *bufio.Writer {
	if g.out == nil {
		g.out = newPiece(g.w)
	}
	return g.out
}

// send sends what was gathered.
func (g *gathering) send() error {
	if g.out == nil {
		return nil
	}
	err := endPiece(g.out)
	g.out = nil
	return cmp.Or(err, g.w.flush())
}

// failedWatch is a watch that has only its error to tell.
type failedWatch[T any] struct{ err error }

func (w failedWatch[T]) Next() (e api.EventOf[T], err error) { return e, w.err }
func (w failedWatch[T]) Close()                              {}

// watchTime is how long a watch may last: what the client says, or half an hour to an hour by chance, so that
// watches begun together do not end together.
func (r *request) watchTime() (time.Duration, error) {
	const least = 30 * time.Minute
	asked, err := queryInt(r.query, "timeoutSeconds")
	switch {
	case err != nil:
		return 0, err
	case asked == nil || *asked == 0:
		return least + rand.N(least), nil
	case *asked < 0:
		return 0, invalidOption("ListOptions", field.Invalid(field.NewPath("timeoutSeconds"), *asked, "must not be negative"))
	}
	return time.Duration(min(*asked, int64(24*time.Hour/time.Second))) * time.Second, nil
}
