package local

import (
	"context"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

// updateScale sets the number of pods of an object.
func (c *Client) updateScale(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if !kind.HasScale() {
		return nil, noSubresource(kind, api.Scale)
	}
	if err := checkKind(api.Scales, obj); err != nil {
		return nil, err
	}
	return c.rescale(ctx, kind, obj.GetNamespace(), obj.GetName(), opts, func(api.Object) (api.Object, error) { return clone(obj), nil })
}

// patchScale patches what an object shows of its number of pods.
func (c *Client) patchScale(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch,
	opts api.WriteOptions) (api.Object, error) {
	if !kind.HasScale() {
		return nil, noSubresource(kind, api.Scale)
	}
	return c.rescale(ctx, kind, namespace, name, opts, func(now api.Object) (api.Object, error) {
		return patched(ctx, api.Scales, namespace, name, now, patch, opts)
	})
}

// rescale gives an object the number of pods that change makes of its Scale. Only that number is looked at: the rest is the
// object's own, and a change of it by somebody else in between is no conflict, unless the caller says a revision.
func (c *Client) rescale(ctx context.Context, kind *api.Kind, namespace, name string, opts api.WriteOptions,
	change func(now api.Object) (api.Object, error)) (api.Object, error) {
	opts.Subresource = ""
	out, err := c.modify(ctx, kind, namespace, name, opts, func(obj api.Object) (api.Object, error) {
		to, err := change(kind.ScaleOf(obj))
		if err != nil {
			return nil, err
		}
		scale := to.(*autoscalingv1.Scale)
		if n := scale.Spec.Replicas; n < 0 {
			return nil, apierrors.NewInvalid(api.Scales.GVK().GroupKind(), name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0")})
		}
		if err := sameObject(kind, obj, scale); err != nil {
			return nil, err
		}
		kind.SetReplicas(obj, scale.Spec.Replicas)
		return obj, nil
	})
	if err != nil {
		return nil, err
	}
	return kind.ScaleOf(out), nil
}

// sameObject: what the caller says of the object must be so.
func sameObject(kind *api.Kind, obj api.Object, scale *autoscalingv1.Scale) error {
	stale := func(what string, said, is string) error {
		return conflict(kind, obj.GetName(), "Precondition failed: %s in precondition: %s, %s in object meta: %s", what, said, what, is)
	}
	if uid := scale.UID; uid != "" && uid != obj.GetUID() {
		return stale("UID", string(uid), string(obj.GetUID()))
	}
	if v := scale.ResourceVersion; v != "" && v != obj.GetResourceVersion() {
		return stale("ResourceVersion", v, obj.GetResourceVersion())
	}
	return nil
}
