package httpd

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// measures answers what this board and the others measure, and the pages that they serve of it.
type measures struct {
	client    api.Client
	metrics   api.Metrics // of this board; nil: it measures nothing
	boards    *otherBoards
	forms     *forms
	measuring measuring // of the others
}

// measurements are the present objects of a measured kind.
func (m *measures) measurements(ctx context.Context, k *api.Kind) ([]api.Object, error) {
	if m.metrics == nil {
		return nil, status(http.StatusNotImplemented, "NotImplemented", "this server measures nothing")
	}
	if k == api.MetricsOfPods {
		return objects(m.PodMetrics(ctx))
	}
	others, err := m.measuredElsewhere(ctx)
	return objects(slices.Concat(m.metrics.NodeMetrics(ctx), others.Nodes), err)
}

func objects[T api.Object](list []T, err error) ([]api.Object, error) {
	var out []api.Object
	for _, m := range list {
		out = append(out, m)
	}
	return out, err
}

// PodMetrics is what the pods of all boards use.
func (m *measures) PodMetrics(ctx context.Context) ([]*api.PodMetrics, error) {
	if m.metrics == nil {
		return nil, nil
	}
	others, err := m.measuredElsewhere(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(m.metrics.PodMetrics(ctx), others.Pods), nil
}

// listMeasured answers kubectl top.
func (m *measures) listMeasured(w *response, r *request) error {
	sel, err := r.selection()
	if err != nil {
		return err
	}
	all, err := m.measurements(r.Context(), r.kind)
	if err != nil {
		return err
	}
	return m.forms.objects(w, r, api.List{Items: slices.DeleteFunc(all, func(o api.Object) bool { return !sel.Matches(r.kind, o) })})
}

// getMeasured answers kubectl top with a name.
func (m *measures) getMeasured(w *response, r *request) error {
	all, err := m.measurements(r.Context(), r.kind)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.GetNamespace() == r.namespace && o.GetName() == r.name {
			return m.forms.object(w, r, http.StatusOK, o)
		}
	}
	return apierrors.NewNotFound(r.kind.GR(), r.name)
}

// nodeProxy answers what a kubelet would, asked through the API: kubectl get --raw /api/v1/nodes/x/proxy/stats/summary.
func (m *measures) nodeProxy(w *response, r *request) error {
	if m.metrics == nil || r.name != m.metrics.Node() {
		if _, err := m.client.Get(r.Context(), api.Nodes, "", r.name); err != nil {
			return err
		}
		switch path := "/" + r.rest; {
		case m.boards.dialBoard == nil:
			return status(http.StatusNotImplemented, "NotImplemented", fmt.Sprintf("this server cannot reach node %q", r.name))
		case !slices.Contains(boardPages, path):
			return errNoPath()
		default:
			return m.boards.handOver(w, r, r.name, path, nil)
		}
	}
	if path := "/" + r.rest; slices.Contains(boardPages, path) {
		return m.page(w, r, path)
	}
	return errNoPath()
}

// ownPage is the same page without a node's name.
func (m *measures) ownPage(w *response, r *request) error {
	if m.metrics == nil {
		return errNoPath()
	}
	return m.page(w, r, r.route.on)
}

func (m *measures) page(w *response, r *request, path string) error {
	media, data, ok, err := m.metrics.Page(r.Context(), path)
	switch {
	case err != nil:
		return err
	case !ok:
		return errNoPath()
	}
	w.body(http.StatusOK, media, data)
	return nil
}
