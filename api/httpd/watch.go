package httpd

import (
	"context"
	"encoding/json"
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
	events, err := h.lookFrom(ctx, w, r, opts)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		events, err = failedWatch{err}, nil // said inside the watch, as Kubernetes does
	}
	if err != nil {
		return err
	}
	defer events.Close()

	return h.pump(ctx, w, r.kind, form, events)
}

// lookFrom begins a watch. One that begins with much of a present state holds it until it is written, and needs a place
// for that, as a list does.
func (h *handler) lookFrom(ctx context.Context, w *response, r *request, opts api.WatchOptions) (api.Watch, error) {
	begin := func() (api.Watch, error) {
		done, err := h.limits.looking(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		return h.client.Watch(ctx, r.kind, opts)
	}
	if opts.Revision != "" && opts.Revision != "0" && !opts.InitialEvents {
		return h.client.Watch(ctx, r.kind, opts)
	}
	return readInPlace(ctx, h.limits.answers, w, h.largeBefore(r.kind, opts.Selection), begin, stateSize, api.Watch.Close)
}

// stateSize is about how long the present state is that a watch begins with and has not told yet.
func stateSize(w api.Watch) (n int) {
	if s, ok := w.(interface{ State() []api.Event }); ok {
		for _, e := range s.State() {
			n += sizeOf(e.Object)
		}
	}
	return n
}

// hasState is stateSize in short.
func hasState(w api.Watch) bool {
	s, ok := w.(interface{ State() []api.Event })
	return ok && len(s.State()) > 0
}

// pump writes the events of a watch, one line each, until either end has had enough.
func (h *handler) pump(ctx context.Context, w *response, kind *api.Kind, form form, events api.Watch) error {
	w.Header().Set("Content-Type", form.contentType())
	w.Header().Set("Cache-Control", "no-cache, private")
	w.extend()
	w.WriteHeader(http.StatusOK)
	if err := w.flush(); err != nil {
		return nil // the client is gone
	}
	out := json.NewEncoder(&pacer{w})
	for first := true; ; first = false {
		e, err := events.Next()
		if ctx.Err() != nil {
			return nil
		}
		line := watchEvent{Type: "ERROR"}
		if err != nil {
			line.Object = statusOf(err)
		} else {
			if sizeOf(e.Object) >= largeAnswer && h.limits.answers.enter(ctx, w) != nil {
				return nil // as if it had not read in time: it begins again
			}
			line.Type = string(e.Type)
			kind.Stamp(e.Object)
			if line.Object, err = h.shape(form, kind, e.Object, first); err != nil {
				return err
			}
		}
		if out.Encode(line) != nil || w.flush() != nil || line.Type == "ERROR" {
			return nil
		}
		if !hasState(events) {
			h.limits.answers.leave(w)
		}
	}
}

// failedWatch is a watch that has only its error to tell.
type failedWatch struct{ err error }

func (w failedWatch) Next() (api.Event, error) { return api.Event{}, w.err }
func (w failedWatch) Close()                   {}

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
