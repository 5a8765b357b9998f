package httpd

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
)

func isGone(err error) bool { return apierrors.IsNotFound(err) }

// bind says on which node a pod runs.
func (h *handler) bind(w *response, r *request) error {
	binding := &corev1.Binding{}
	return h.act(w, r, binding, corev1.SchemeGroupVersion.WithKind("Binding"))
}

// evict asks for a pod to be deleted in an orderly way (N-11.1).
func (h *handler) evict(w *response, r *request) error {
	eviction := &policyv1.Eviction{}
	return h.act(w, r, eviction, policyv1.SchemeGroupVersion.WithKind("Eviction"),
		schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "Eviction"})
}

// act is a Create on a pod's subresource, which answers a Status.
func (h *handler) act(w *response, r *request, obj api.Object, kinds ...schema.GroupVersionKind) error {
	opts, err := r.writeOptions()
	if err != nil {
		return err
	}
	if err := h.intake.readObject(w, r, boundSmall, obj, kinds...); err != nil {
		return err
	}
	if err := r.adopt(obj); err != nil {
		return err
	}
	if obj.GetName() == "" {
		obj.SetName(r.name)
	}
	if obj.GetName() != r.name {
		return badRequest("name in URL does not match name in %s object", kinds[0].Kind)
	}
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	if _, err := h.client.Create(r.Context(), r.kind, obj, opts); err != nil {
		return err
	}
	return w.json(http.StatusCreated, success(http.StatusCreated), false)
}
