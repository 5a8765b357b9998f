package local

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/storage"
)

// Update implements api.Client.
func (c *Client) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	if opts.Subresource == api.Scale {
		return c.updateScale(ctx, kind, obj, opts)
	}
	if err := checkKind(kind, obj); err != nil {
		return nil, err
	}
	if kind.View != nil {
		out, err := c.Update(ctx, kind.View.Of, kind.View.Read(obj), opts)
		return show(kind, out, err)
	}
	return c.modify(ctx, kind, obj.GetNamespace(), obj.GetName(), opts, func(old api.Object) (api.Object, error) {
		if kind.Compared && obj.GetResourceVersion() == "" {
			return nil, apierrors.NewInvalid(kind.GVK().GroupKind(), old.GetName(), field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
		}
		if uid := obj.GetUID(); uid != "" && uid != old.GetUID() { // in a patch it is a change, which validation refuses
			return nil, conflict(kind, old.GetName(), "Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.GetUID())
		}
		return clone(obj), nil
	})
}

// Patch implements api.Client.
func (c *Client) Patch(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch, opts api.WriteOptions) (api.Object,
	error) {
	if kind.View != nil {
		return c.patchView(ctx, kind, namespace, name, patch, opts)
	}
	if patch.Type == types.ApplyYAMLPatchType {
		return c.apply(ctx, kind, namespace, name, patch.Data, opts)
	}
	if opts.Subresource == api.Scale {
		return c.patchScale(ctx, kind, namespace, name, patch, opts)
	}
	return c.modify(ctx, kind, namespace, name, opts, func(old api.Object) (api.Object, error) {
		return patched(ctx, kind, namespace, name, old, patch, opts)
	})
}

// patched is what a patch makes of an object, if it is still the same object.
func patched(ctx context.Context, kind *api.Kind, namespace, name string, old api.Object, patch api.Patch,
	opts api.WriteOptions) (api.Object, error) {
	obj, dropped, err := api.ApplyPatch(kind, old, patch)
	if err != nil {
		return nil, err
	}
	if opts.Strict && len(dropped) > 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("strict decoding error: %s", dropped[0]))
	}
	for _, text := range dropped {
		api.Warn(ctx, text)
	}
	if err := checkKind(kind, obj); err != nil {
		return nil, err
	}
	if !kind.Namespaced {
		obj.SetNamespace("")
	}
	if obj.GetName() != name || obj.GetNamespace() != namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			path(obj.GetNamespace(), obj.GetName()), path(namespace, name)))
	}
	return obj, nil
}

func path(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// modify changes one object in one transaction. What change answers becomes the client's.
func (c *Client) modify(ctx context.Context, kind *api.Kind, namespace, name string, opts api.WriteOptions,
	change func(old api.Object) (api.Object, error)) (out api.Object, err error) {
	if !kind.Has(opts.Subresource) {
		return nil, noSubresource(kind, opts.Subresource)
	}
	var old api.Object
	err = c.write(ctx, opts.DryRun, func(tx *storage.Tx) error {
		if old, err = get(tx, kind, namespace, name); err != nil {
			return err
		}
		obj, err := change(clone(old))
		if err != nil {
			return err
		}
		out, err = c.update(ctx, tx, kind, obj, old, how{sub: opts.Subresource, manager: opts.Manager})
		return err
	})
	if err != nil {
		return nil, status(err, "update %s %q", kind.Singular, name)
	}
	if opts.DryRun {
		out.SetResourceVersion(old.GetResourceVersion())
		return out, nil
	}
	c.collector.written(out, old)
	return out, nil
}

// how says what kind of update this is.
type how struct {
	sub     string // the subresource
	manager string // who changes
	applied bool   // by server-side apply, which has noted already who set what
	events  *int   // of a creation: how many there are with this one, 0 when they were not counted
}

// update admits obj in the place of old and stores it, unless nothing changed: then nothing is written and
// nobody is told, which is what keeps a board that only repeats itself off its flash.
func (in *inTx) update(ctx context.Context, tx *storage.Tx, kind *api.Kind, obj, old api.Object, ch how) (api.Object, error) {
	sub := ch.sub
	if err := precondition(kind, obj, old); err != nil {
		return nil, err
	}
	keep(kind, obj, old, sub)
	kind.Default(obj)
	if err := restrictUpdate(ctx, kind, obj, old, sub); err != nil {
		return nil, err
	}
	g, a := gates(kind), admission{kind, obj, old, sub}
	if err := in.ask(ctx, tx, g.update, a); err != nil {
		return nil, err
	}
	if err := kind.ValidateUpdate(obj, old, sub); err != nil {
		return nil, err
	}
	if err := holdToLimits(tx, a); err != nil {
		return nil, err
	}
	if err := in.security.admit(ctx, tx, g, a); err != nil {
		return nil, err
	}
	if !ch.applied {
		if err := in.fields.Update(kind, old, obj, sub, ch.manager); err != nil {
			return nil, err
		}
	}
	kind.Stamp(obj)
	if finished(obj) {
		if err := dropObject(in, tx, kind, obj); err != nil {
			return nil, err
		}
		return obj, in.leaveNamespace(tx, kind, obj)
	}
	if kind.Same(obj, old) {
		return old, nil
	}
	if sub != api.StatusSub && kind.OtherSpec(obj, old) {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if sub != api.StatusSub {
		if err := in.quotas.admit(tx, a, in.cfg.Now()); err != nil {
			return nil, err
		}
	}
	if err := in.shares.put(ctx, tx, kind, obj, old, sub, kind.IsHeartbeat(obj, old)); err != nil {
		return nil, err
	}
	return obj, in.then(tx, g.updated, obj)
}

// precondition is the compare of compare-and-swap (N-11.32).
func precondition(kind *api.Kind, obj, old api.Object) error {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	switch obj.GetResourceVersion() {
	case "", old.GetResourceVersion():
		obj.SetResourceVersion(old.GetResourceVersion())
		return nil
	}
	return conflict(kind, old.GetName(), "the object has been modified; please apply your changes to the latest version and try again")
}

// keep puts back what this kind of update may not touch (N-1.8).
func keep(kind *api.Kind, obj, old api.Object, sub string) {
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if old.GetDeletionTimestamp() != nil {
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
		obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
	obj.SetGeneration(old.GetGeneration())
	obj.SetSelfLink("")
	if sub == api.StatusSub {
		obj.SetFinalizers(old.GetFinalizers())
		obj.SetOwnerReferences(old.GetOwnerReferences())
	}
	if sub == api.Resize || sub == api.Ephemeral { // of the metadata nothing may change
		obj.SetFinalizers(old.GetFinalizers())
		obj.SetOwnerReferences(old.GetOwnerReferences())
		obj.SetLabels(old.GetLabels())
		obj.SetAnnotations(old.GetAnnotations())
	}
	kind.Keep(obj, old, sub)
}

// finished says that an object only waited for its finalizers, and has none left.
func finished(obj api.Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(obj.GetFinalizers()) == 0
}

// setCondition puts a condition into a pod's list; its time moves only when its status does.
func setCondition(list []corev1.PodCondition, cond corev1.PodCondition, now metav1.Time) []corev1.PodCondition {
	cond.LastTransitionTime = now
	for i := range list {
		if list[i].Type != cond.Type {
			continue
		}
		if list[i].Status == cond.Status {
			cond.LastTransitionTime = list[i].LastTransitionTime
		}
		list[i] = cond
		return list
	}
	return append(list, cond)
}
