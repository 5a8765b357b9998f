package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// Watch opens a watch. It returns when the server has accepted it.
func (c *Client) Watch(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	req, err := c.collection("GET", kind, opts.Namespace)
	if err != nil {
		return nil, err
	}
	selectors(req, opts.Selection)
	req.Param("watch", "true")
	param(req, "resourceVersion", opts.Revision)
	if opts.InitialEvents {
		req.Param("sendInitialEvents", "true").Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	if opts.Bookmarks {
		req.Param("allowWatchBookmarks", "true")
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := req.Stream(ctx)
	if err != nil {
		cancel()
		return nil, asStatus(err)
	}
	w := &watch{ctx: ctx, kind: kind, body: stream, lines: json.NewDecoder(stream)}
	w.close = sync.OnceFunc(func() { cancel(); stream.Close() })
	return w, nil
}

// watch reads one watch, a JSON value per event.
type watch struct {
	ctx   context.Context
	kind  *api.Kind
	body  io.ReadCloser
	lines *json.Decoder
	close func()
	over  error
}

// Next reads the next event.
func (w *watch) Next() (api.Event, error) {
	if w.over != nil {
		return api.Event{}, w.over
	}
	e, err := w.next()
	if err != nil {
		w.over = err
		w.close()
	}
	return e, err
}

func (w *watch) next() (api.Event, error) {
	var line struct {
		Type   api.EventType   `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := w.lines.Decode(&line); err != nil {
		return api.Event{}, w.broken(err)
	}
	switch line.Type {
	case api.Added, api.Modified, api.Deleted, api.Bookmark:
		obj, err := decode(w.kind, line.Object)
		return api.Event{Type: line.Type, Object: obj}, err
	case "ERROR":
		var s metav1.Status
		if err := json.Unmarshal(line.Object, &s); err != nil {
			return api.Event{}, badAnswer(w.kind, err)
		}
		return api.Event{}, apierrors.FromObject(&s)
	}
	return api.Event{}, api.NewInternal("the server sent a watch event of type %q", line.Type)
}

// broken explains the end of the stream: ours, the server's (its time was up, it stops), or an accident.
func (w *watch) broken(err error) error {
	switch {
	case w.ctx.Err() != nil:
		err = w.ctx.Err()
	case errors.Is(err, io.EOF):
		err = errors.New("the server ended the watch")
	}
	return asStatus(err)
}

// Close ends the watch.
func (w *watch) Close() { w.close() }
