package httpd

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// measurements are the present objects of a measured kind.
func (h *handler) measurements(ctx context.Context, k *api.Kind) ([]api.Object, error) {
	if h.metrics == nil {
		return nil, status(http.StatusNotImplemented, "NotImplemented", "this server measures nothing")
	}
	if k == api.MetricsOfPods {
		return objects(h.PodMetrics(ctx))
	}
	others, err := h.measuredElsewhere(ctx)
	return objects(slices.Concat(h.metrics.NodeMetrics(ctx), others.Nodes), err)
}

func objects[T api.Object](list []T, err error) ([]api.Object, error) {
	var out []api.Object
	for _, m := range list {
		out = append(out, m)
	}
	return out, err
}

// PodMetrics implements Handler.
func (h *handler) PodMetrics(ctx context.Context) ([]*api.PodMetrics, error) {
	if h.metrics == nil {
		return nil, nil
	}
	others, err := h.measuredElsewhere(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(h.metrics.PodMetrics(ctx), others.Pods), nil
}

// listMeasured answers kubectl top.
func (h *handler) listMeasured(w *response, r *request) error {
	sel, err := r.selection()
	if err != nil {
		return err
	}
	all, err := h.measurements(r.Context(), r.kind)
	if err != nil {
		return err
	}
	return h.forms.objects(w, r, api.List{Items: slices.DeleteFunc(all, func(o api.Object) bool { return !sel.Matches(r.kind, o) })})
}

// getMeasured answers kubectl top with a name.
func (h *handler) getMeasured(w *response, r *request) error {
	all, err := h.measurements(r.Context(), r.kind)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.GetNamespace() == r.namespace && o.GetName() == r.name {
			return h.forms.object(w, r, http.StatusOK, o)
		}
	}
	return apierrors.NewNotFound(r.kind.GR(), r.name)
}

// nodeProxy answers what a kubelet would, asked through the API: kubectl get --raw /api/v1/nodes/x/proxy/stats/summary.
func (h *handler) nodeProxy(w *response, r *request) error {
	if h.metrics == nil || r.name != h.metrics.Node() {
		if _, err := h.client.Get(r.Context(), api.Nodes, "", r.name); err != nil {
			return err
		}
		switch path := "/" + r.rest; {
		case h.dialBoard == nil:
			return status(http.StatusNotImplemented, "NotImplemented", fmt.Sprintf("this server cannot reach node %q", r.name))
		case !slices.Contains(boardPages, path):
			return errNoPath()
		default:
			return h.handOver(w, r, r.name, path, nil)
		}
	}
	return h.page(w, r, "/"+r.rest)
}

// ownPage is the same page without a node's name.
func (h *handler) ownPage(w *response, r *request) error {
	if h.metrics == nil {
		return errNoPath()
	}
	return h.page(w, r, r.route.on)
}

func (h *handler) page(w *response, r *request, path string) error {
	media, data, ok, err := h.metrics.Page(r.Context(), path)
	switch {
	case err != nil:
		return err
	case !ok:
		return errNoPath()
	}
	w.body(http.StatusOK, media, data)
	return nil
}
