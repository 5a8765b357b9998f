package httpd

import (
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/websocket"
)

// log sends a container's log as text, as it comes.
func (p *podStreams) log(w *response, r *request) error {
	opts, err := r.logOptions()
	if err != nil {
		return err
	}
	if p.streams == nil {
		return status(http.StatusNotImplemented, "NotImplemented", "this server has no access to container logs")
	}
	if p.boards.dialBoard != nil {
		pod, err := api.Get[*corev1.Pod](r.Context(), p.client, api.Pods, r.namespace, r.name)
		if err != nil {
			return err
		}
		if p.boards.elsewhere(pod) {
			return p.boards.logElsewhere(w, r, pod, opts.Container)
		}
	}
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	log, err := p.streams.Logs(ctx, r.namespace, r.name, opts)
	if err != nil {
		return err
	}
	defer log.Close()
	if websocket.Wanted(r.Request) {
		return logMessages(w, r, log, cancel)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Cache-Control", "no-cache, private")
	confine(w.Header(), sandboxAll)
	w.extend()
	w.WriteHeader(http.StatusOK)
	if w.flush() != nil {
		return nil
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := log.Read(buf)
		if n > 0 {
			w.extend()
			if _, werr := w.Write(buf[:n]); werr != nil || w.flush() != nil {
				return nil
			}
		}
		switch {
		case err == io.EOF || err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err // cuts the connection: the text is not complete
		}
	}
}

// logMessages sends a log over a WebSocket, as binary messages.
func logMessages(w *response, r *request, log io.Reader, cancel func()) error {
	protocol, err := agree(r, "binary.k8s.io", "")
	if err != nil {
		return err
	}
	w.begun = true
	conn, err := websocket.Accept(w.ResponseWriter, r.Request, protocol)
	if err != nil {
		return nil //nolint:nilerr // the connection is gone: there is nobody to tell
	}
	defer conn.Close()
	go func() { // the client has nothing to say but that it leaves
		defer cancel()
		buf := make([]byte, 512)
		for {
			if _, _, _, err := conn.Next(buf); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := log.Read(buf)
		if n > 0 && conn.WriteMessage(buf[:n]) != nil || err != nil {
			return nil //nolint:nilerr // the end of the log is the end of the connection
		}
	}
}

// logOptions reads which log is asked for (N-11.43).
func (r *request) logOptions() (api.LogOptions, error) {
	o := api.LogOptions{Container: r.query.Get("container")}
	for name, to := range map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps} {
		v, err := queryBool(r.query, name)
		if err != nil {
			return o, err
		}
		*to = v
	}
	var since *int64
	for name, to := range map[string]**int64{"tailLines": &o.TailLines, "limitBytes": &o.LimitBytes, "sinceSeconds": &since} {
		v, err := queryInt(r.query, name)
		if err != nil {
			return o, err
		}
		*to = v
	}
	sinceTime := r.query.Get("sinceTime")
	if v := r.query.Get("stream"); v != "" && v != corev1.LogStreamAll {
		return o, invalidLog(field.NotSupported(field.NewPath("stream"), v, []string{corev1.LogStreamAll}))
	}
	switch {
	case o.TailLines != nil && *o.TailLines < 0:
		return o, invalidLog(field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	case o.LimitBytes != nil && *o.LimitBytes < 1:
		return o, invalidLog(field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	case since != nil && *since < 1:
		return o, invalidLog(field.Invalid(field.NewPath("sinceSeconds"), *since, "must be greater than 0"))
	case since != nil && sinceTime != "":
		return o, invalidLog(field.Forbidden(field.NewPath("sinceSeconds"), "at most one of sinceTime or sinceSeconds may be specified"))
	case since != nil:
		const most = 1 << 32 // seconds; more would overflow a Duration
		o.Since = time.Now().Add(-time.Duration(min(*since, most)) * time.Second)
	case sinceTime != "":
		t, err := time.Parse(time.RFC3339Nano, sinceTime)
		if err != nil {
			return o, badRequest("the query parameter sinceTime=%q is not a time", sinceTime)
		}
		o.Since = t
	}
	return o, nil
}

func invalidLog(err *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, "", field.ErrorList{err})
}
