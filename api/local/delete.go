package local

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/storage"
)

// Delete implements api.Client.
func (c *Client) Delete(ctx context.Context, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (out api.Object, err error) {
	if kind.View != nil {
		out, err := c.Delete(ctx, kind.View.Of, namespace, name, opts)
		return show(kind, out, err)
	}
	err = c.write(ctx, opts.DryRun, func(tx *storage.Tx) error {
		out, err = c.delete(ctx, tx, kind, namespace, name, opts)
		return err
	})
	if err != nil {
		return nil, status(err, "delete %s %q", kind.Singular, name)
	}
	if !opts.DryRun && kind != api.Events {
		c.collector.soon()
	}
	switch {
	case opts.DryRun:
	case kind == api.Events:
		c.events.add(-1)
		c.events.authors.forget(out)
	case isNamespaceObject(kind, name), isAPIObject(kind, namespace, name):
		c.restoreSoon()
	}
	return out, nil
}

// restoreSoon has Run create again what every namespace must have.
func (c *Client) restoreSoon() { soon(c.restore) }

func (in *inTx) delete(ctx context.Context, tx *storage.Tx, kind *api.Kind, namespace, name string, opts api.DeleteOptions) (api.Object,
	error) {
	tx.SpendReserve() // to mark is to write, and a full store must be emptied by it
	obj, err := tx.Get(kind, namespace, name)
	if errors.Is(err, storage.ErrDamaged) {
		// The one way out for a value that cannot be read. Nothing of it is known but its name.
		obj = kind.New()
		obj.SetNamespace(namespace)
		obj.SetName(name)
		if err := restrictDelete(ctx, kind, obj); err != nil {
			return nil, err
		}
		return obj, dropObject(in, tx, kind, obj)
	}
	if err != nil {
		return nil, storeError(err, kind, namespace, name)
	}
	kind.Stamp(obj)
	if err := deletePreconditions(kind, obj, opts); err != nil {
		return nil, err
	}
	if err := restrictDelete(ctx, kind, obj); err != nil {
		return nil, err
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		return ns, in.deleteNamespace(tx, ns)
	}
	g := gates(kind)
	if g.mayDelete != nil {
		if err := g.mayDelete(obj); err != nil {
			return nil, err
		}
	}
	if err := in.propagateAndMark(tx, kind, obj, opts); err != nil {
		return nil, err
	}
	if err := in.then(tx, g.deleted, obj); err != nil {
		return nil, err
	}
	return obj, in.leaveNamespace(tx, kind, obj)
}

// deletePreconditions is N-7.25.
func deletePreconditions(kind *api.Kind, obj api.Object, opts api.DeleteOptions) error {
	if opts.UID != nil && *opts.UID != obj.GetUID() {
		return conflict(kind, obj.GetName(), "Precondition failed: UID in precondition: %s, UID in object meta: %s", *opts.UID, obj.GetUID())
	}
	if opts.Revision != nil && *opts.Revision != obj.GetResourceVersion() {
		return conflict(kind, obj.GetName(), "Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s",
			*opts.Revision, obj.GetResourceVersion())
	}
	return nil
}

func (in *inTx) propagateAndMark(tx *storage.Tx, kind *api.Kind, obj api.Object, opts api.DeleteOptions) error {
	finalizers := obj.GetFinalizers()
	if err := in.collector.propagate(tx, kind, obj, opts.Propagation); err != nil {
		return err
	}
	if !mark(kind, obj, opts.Grace, in.now()) && slices.Equal(finalizers, obj.GetFinalizers()) {
		return nil
	}
	return putOrDrop(in, tx, kind, obj)
}

// markOrDrop removes an object, or, while a pod has grace left or somebody's finalizer holds it, marks it as
// going (N-7.23, N-7.24, N-11.40). obj becomes what it is afterwards, or its last state.
func (in *inTx) markOrDrop(tx *storage.Tx, kind *api.Kind, obj api.Object, asked *int64) error {
	if !mark(kind, obj, asked, in.now()) {
		return nil
	}
	return putOrDrop(in, tx, kind, obj)
}

func putOrDrop(in *inTx, tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	if finished(obj) {
		return dropObject(in, tx, kind, obj)
	}
	return put(tx, kind, obj, false)
}

// mark says in an object when it is to be gone, and whether that is news.
func mark(kind *api.Kind, obj api.Object, asked *int64, now metav1.Time) bool {
	if asked != nil && *asked < 0 {
		one := int64(1)
		asked = &one
	}
	held := obj.GetDeletionGracePeriodSeconds()
	switch {
	case obj.GetDeletionTimestamp() == nil || held == nil:
		grace := kind.Grace(obj, asked)
		end := metav1.NewTime(now.Add(time.Duration(grace) * time.Second))
		obj.SetDeletionTimestamp(&end)
		obj.SetDeletionGracePeriodSeconds(&grace)
		if obj.GetGeneration() > 0 {
			obj.SetGeneration(obj.GetGeneration() + 1)
		}
	case asked == nil || *asked >= *held:
		return false // a second delete can only shorten
	default:
		start := obj.GetDeletionTimestamp().Add(-time.Duration(*held) * time.Second)
		end := metav1.NewTime(start.Add(time.Duration(*asked) * time.Second))
		if end.Before(&now) {
			end = now
		}
		obj.SetDeletionTimestamp(&end)
		obj.SetDeletionGracePeriodSeconds(asked)
	}
	return true
}

// dropObject removes an object for good, with what follows from that for its kind.
func dropObject(in *inTx, tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	if err := removeObject(tx, kind, obj); err != nil {
		return err
	}
	return in.then(tx, gates(kind).gone, obj)
}

// removeObject removes an object for good. obj becomes its last state: as it went, with the marks of this deletion.
func removeObject(tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	gone, err := tx.Delete(kind, obj.GetNamespace(), obj.GetName())
	if err != nil {
		return storeError(err, kind, obj.GetNamespace(), obj.GetName())
	}
	if gone != nil { // nil: it was damaged
		obj.SetResourceVersion(gone.GetResourceVersion())
	}
	kind.Stamp(obj)
	return nil
}
