package local

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
)

// Objects that belong to others, by ownerReferences, go with them: in the background soon after, or, where the one who
// deletes says so, before them, or not at all.

// collectWait gathers the deletions of a moment, so that many cost one look at everything.
const collectWait = 200 * time.Millisecond

// collectSoon has Run look for objects whose owners are gone.
func (c *Client) collectSoon() {
	select {
	case c.collect <- struct{}{}:
	default:
	}
}

// written has Run look after a write, which has lasted by now, that took an object away, or gave it an owner that is not there,
// or not any more: who made it, and who deleted its owner, need not have known of each other. old is nil where it was made.
func (c *Client) written(obj, old api.Object) {
	if finished(obj) {
		c.collectSoon()
		return
	}
	sameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	if owners := obj.GetOwnerReferences(); len(owners) == 0 || old != nil && slices.EqualFunc(owners, old.GetOwnerReferences(), sameOwner) {
		return
	}
	err := c.store.View(func(tx *storage.Tx) error {
		if slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return c.lost(tx, obj, r) }) {
			c.collectSoon()
		}
		return nil
	})
	if err != nil {
		c.collectSoon() // it cannot be told: that is for who looks at everything
	}
}

// lost says that an owner of an object is not there. Of a kind that is not known here it may be anywhere.
func (c *Client) lost(tx *storage.Tx, obj api.Object, owner metav1.OwnerReference) bool {
	kind := c.store.Kinds().ByGVK(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
	if kind == nil {
		return false
	}
	namespace := ""
	if kind.Namespaced {
		namespace = obj.GetNamespace()
	}
	is, err := tx.Get(kind, namespace, owner.Name)
	return errors.Is(err, storage.ErrNotFound) || err == nil && is.GetUID() != owner.UID
}

// owned is an object that names owners.
type owned struct {
	kind *api.Kind
	obj  api.Object
}

// Collect deletes the objects whose owners are all gone, and lets owners go that waited for theirs.
func (c *Client) Collect(ctx context.Context) error {
	var candidates, waiting []owned
	alive := map[types.UID]bool{}
	err := c.store.View(func(tx *storage.Tx) error {
		for _, kind := range c.store.Kinds().Kept {
			if kind == api.Events {
				continue // they have no owners, and expire
			}
			objs, err := list(tx, kind, "")
			if err != nil {
				return err
			}
			for _, obj := range objs {
				alive[obj.GetUID()] = true
				if len(obj.GetOwnerReferences()) > 0 {
					candidates = append(candidates, owned{kind, obj})
				}
				if obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents) {
					waiting = append(waiting, owned{kind, obj})
				}
			}
		}
		return nil
	})
	if err != nil {
		return status(err, "look for objects whose owners are gone")
	}
	going := map[types.UID]bool{}
	for _, w := range waiting {
		going[w.obj.GetUID()] = true
	}
	var errs []error
	for _, o := range candidates {
		if o.obj.GetDeletionTimestamp() == nil && c.abandoned(o.obj, alive, going) {
			uid := o.obj.GetUID()
			opts := api.DeleteOptions{UID: &uid, Propagation: metav1.DeletePropagationBackground} // whatever the kind says
			if slices.ContainsFunc(o.obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return going[r.UID] }) {
				opts.Propagation = metav1.DeletePropagationForeground // what waits for it waits for all of it
			}
			_, err := c.Delete(ctx, o.kind, o.obj.GetNamespace(), o.obj.GetName(), opts)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				errs = append(errs, err)
			}
		}
	}
	for _, w := range waiting {
		errs = append(errs, c.release(w))
	}
	return errors.Join(errs...)
}

// abandoned: every owner is gone, or waits for this object to go first. Owners of kinds that are not known here may be
// anywhere: they count as there.
func (c *Client) abandoned(obj api.Object, alive, going map[types.UID]bool) bool {
	return !slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		known := c.store.Kinds().ByGVK(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)) != nil
		return !known || alive[r.UID] && !going[r.UID]
	})
}

// release lets an owner go that has nothing left to wait for.
func (c *Client) release(w owned) error {
	err := c.store.Update(func(tx *storage.Tx) error {
		tx.SpendReserve()
		obj, err := get(tx, w.kind, w.obj.GetNamespace(), w.obj.GetName())
		if err != nil || obj.GetUID() != w.obj.GetUID() {
			return err
		}
		left, err := c.dependents(tx, w.kind, obj)
		if err != nil || slices.ContainsFunc(left, func(o owned) bool { return blocks(o.obj, obj.GetUID()) }) {
			return err
		}
		obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
		if !finished(obj) {
			return put(tx, w.kind, obj, false)
		}
		if err := drop(tx, w.kind, obj); err != nil {
			return err
		}
		return c.leaveNamespace(tx, w.kind, obj)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return status(err, "release %s %q", w.kind.Singular, w.obj.GetName())
}

func blocks(obj api.Object, owner types.UID) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID == owner && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}

// dependents are the objects that name an owner.
func (c *Client) dependents(tx *storage.Tx, kind *api.Kind, owner api.Object) ([]owned, error) {
	var out []owned
	for _, k := range c.store.Kinds().Kept {
		if k == api.Events || kind.Namespaced && !k.Namespaced {
			continue
		}
		objs, err := list(tx, k, owner.GetNamespace())
		if err != nil {
			return nil, err
		}
		for _, obj := range objs {
			if slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() }) {
				out = append(out, owned{k, obj})
			}
		}
	}
	return out, nil
}

// propagate prepares a deletion that says what becomes of the dependents: orphans lose the reference now, in the
// foreground the owner waits for them by a finalizer.
func (c *Client) propagate(tx *storage.Tx, kind *api.Kind, obj api.Object, how metav1.DeletionPropagation) error {
	if how != metav1.DeletePropagationOrphan && how != metav1.DeletePropagationForeground || obj.GetDeletionTimestamp() != nil {
		return nil
	}
	of, err := c.dependents(tx, kind, obj)
	if err != nil || len(of) == 0 {
		return err
	}
	if how == metav1.DeletePropagationForeground {
		obj.SetFinalizers(append(obj.GetFinalizers(), metav1.FinalizerDeleteDependents))
		return nil
	}
	for _, o := range of {
		o.obj.SetOwnerReferences(slices.DeleteFunc(o.obj.GetOwnerReferences(),
			func(r metav1.OwnerReference) bool { return r.UID == obj.GetUID() }))
		if err := put(tx, o.kind, o.obj, false); err != nil {
			return err
		}
	}
	return nil
}
