package httpd

import (
	"context"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
)

func (h *handler) get(w *response, r *request) error {
	revision, err := r.revision()
	if err != nil {
		return err
	}
	if revision == "" || revision == "0" {
		if wire, form, ok := h.wire(r); ok {
			return getJSON(w, r, h.limits.answers, wire, form)
		}
		obj, err := readInPlace(r.Context(), h.limits.answers, w, new(atomic.Bool),
			func() (api.Object, error) { return h.client.Get(r.Context(), r.kind, r.namespace, r.name) },
			func(o api.Object) int { return sizeOf(o) },
			func(api.Object) {})
		if err != nil {
			return err
		}
		return h.forms.object(w, r, http.StatusOK, obj)
	}
	// "Not older than": only a list can say that the revision has not happened yet (N-11.29).
	list, err := h.client.List(r.Context(), r.kind, api.ListOptions{
		Selection: api.Selection{Namespace: r.namespace, Fields: fields.OneTermEqualSelector("metadata.name", r.name)},
		Revision:  revision, Match: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return apierrors.NewNotFound(r.kind.GR(), r.name)
	}
	return h.forms.object(w, r, http.StatusOK, list.Items[0])
}

func (h *handler) list(w *response, r *request) error {
	opts, err := r.listOptions()
	if err != nil {
		return err
	}
	if _, err := r.form(); err != nil {
		return err
	}
	if wire, form, ok := h.wire(r); ok {
		list, err := readList(h, w, r, opts, wire.ListJSON, lengthOf)
		if err != nil {
			return err
		}
		return listJSON(w, r, form, list)
	}
	list, err := readList(h, w, r, opts, h.client.List, sizeOf)
	if err != nil {
		return err
	}
	if r.showsPeers() {
		list = peersOf(list)
	}
	return h.forms.objects(w, r, list)
}

// readList reads a page when it may be read, and written.
func readList[T any](h *handler, w *response, r *request, opts api.ListOptions,
	read func(context.Context, *api.Kind, api.ListOptions) (api.Page[T], error), size func(...T) int) (api.Page[T], error) {
	return readInPlace(r.Context(), h.limits.answers, w, h.largeBefore(r.kind, opts.Selection),
		func() (api.Page[T], error) {
			done, err := h.limits.looking(r.Context())
			if err != nil {
				return api.Page[T]{}, err
			}
			defer done()
			return read(r.Context(), r.kind, opts)
		},
		func(l api.Page[T]) int { return size(l.Items...) },
		func(api.Page[T]) {})
}
