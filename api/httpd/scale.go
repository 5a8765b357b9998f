package httpd

import (
	"net/http"

	"ledge/api"
)

// The number of pods of a controller, seen and set as a Scale: clients that scale need not know what they scale.

func (h *handler) getScale(w *response, r *request) error {
	obj, err := h.client.Get(r.Context(), r.kind, r.namespace, r.name)
	if err != nil {
		return err
	}
	return h.forms.spoken(w, r, http.StatusOK, r.kind.ScaleOf(obj))
}

// spoken is object for what the subresource of a request answers.
func (f *forms) spoken(w *response, r *request, code int, obj api.Object) error {
	as := *r
	as.kind = r.kind.As(r.sub)
	return f.object(w, &as, code, obj)
}
