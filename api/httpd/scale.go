package httpd

import (
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

// The number of pods of a controller, seen and set as a Scale: clients that scale need not know what they scale.

func (h *handler) getScale(w *response, r *request) error {
	rc, err := api.Get[*corev1.ReplicationController](r.Context(), h.client, r.kind, r.namespace, r.name)
	if err != nil {
		return err
	}
	return h.scale(w, r, rc)
}

func (h *handler) updateScale(w *response, r *request) error {
	opts, err := r.writeOptions()
	if err != nil {
		return err
	}
	in := &autoscalingv1.Scale{}
	if err := h.readObject(w, r, boundSmall, in, api.Scales.GVK()); err != nil {
		return err
	}
	if err := r.adopt(in); err != nil {
		return err
	}
	if in.Name != r.name {
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", in.Name, r.name)
	}
	return h.rescale(w, r, opts, func(api.Object) (*autoscalingv1.Scale, error) { return in, nil })
}

// patchScale is a patch of what getScale answers.
func (h *handler) patchScale(w *response, r *request, patch api.Patch, opts api.WriteOptions, fields strictness) error {
	return h.rescale(w, r, opts, func(now api.Object) (*autoscalingv1.Scale, error) {
		next, problems, err := api.ApplyPatch(api.Scales, now, patch)
		if err != nil {
			return nil, err
		}
		return next.(*autoscalingv1.Scale), judge(w, fields, problems, api.Scales.GVK())
	})
}

// rescale gives a controller the number of pods that change makes of its Scale. Only that number is looked at: the rest is
// the controller's own, and a change of it by somebody else in between is no conflict, unless the caller says a revision.
func (h *handler) rescale(w *response, r *request, opts api.WriteOptions, change func(api.Object) (*autoscalingv1.Scale, error)) error {
	opts.Subresource = ""
	for try := 0; ; try++ {
		rc, err := api.Get[*corev1.ReplicationController](r.Context(), h.client, r.kind, r.namespace, r.name)
		if err != nil {
			return err
		}
		scale, err := change(api.ScaleOf(rc))
		if err != nil {
			return err
		}
		if n := scale.Spec.Replicas; n < 0 {
			return apierrors.NewInvalid(api.Scales.GVK().GroupKind(), r.name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0")})
		}
		if err := sameObject(r.kind, rc, scale); err != nil {
			return err
		}
		rc.Spec.Replicas = &scale.Spec.Replicas
		made, err := h.client.Update(r.Context(), r.kind, rc, opts)
		if apierrors.IsConflict(err) && try < scaleTries {
			continue
		}
		if err != nil {
			return err
		}
		return h.scale(w, r, made.(*corev1.ReplicationController))
	}
}

// scaleTries is how often a write may meet a newer controller: somebody writes its status now and then.
const scaleTries = 10

// sameObject: what the caller says of the object must be so.
func sameObject(kind *api.Kind, rc *corev1.ReplicationController, scale *autoscalingv1.Scale) error {
	stale := func(what string, said, is string) error {
		return apierrors.NewConflict(kind.GR(), rc.Name, badRequest("Precondition failed: %s in precondition: %s, %s in object meta: %s", what, said, what, is))
	}
	if uid := scale.UID; uid != "" && uid != rc.UID {
		return stale("UID", string(uid), string(rc.UID))
	}
	if v := scale.ResourceVersion; v != "" && v != rc.ResourceVersion {
		return stale("ResourceVersion", v, rc.ResourceVersion)
	}
	return nil
}

// scale answers with the Scale of a controller.
func (h *handler) scale(w *response, r *request, rc *corev1.ReplicationController) error {
	as := *r
	as.kind = api.Scales
	return h.object(w, &as, http.StatusOK, api.ScaleOf(rc))
}
